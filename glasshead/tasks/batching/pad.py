"""Pad: rows of unequal length as one tensor."""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


def pad(
    rows: Sequence[Sequence[int]], value: int, side: Literal["left", "right"] = "right"
) -> Int[Tensor, "rows longest"]:
    """The rows as one tensor, short ones filled up with a value.

    Args:
        rows: At least one; a row may be empty.
        value: What fills them up.
        side: Where it stands: "right" of a row, or "left".

    Errors: a ValueError where there is no row, or another side.

    >>> pad([[5, 6, 7], [8]], value=0, side="left")
    tensor([[5, 6, 7],
            [0, 0, 8]])
    """
    if not len(rows):
        raise ValueError("rows takes at least one row, and got none.")
    if side not in {"left", "right"}:
        raise ValueError(f"side takes 'left' or 'right', and got {side!r}.")
    tensors = [torch.as_tensor(row, dtype=torch.long) for row in rows]
    return pad_sequence(tensors, batch_first=True, padding_value=value, padding_side=side)
