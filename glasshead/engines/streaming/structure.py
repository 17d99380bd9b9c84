"""A recipe as tensors that always have the axes batch and heads."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

VisibleRule = Callable[[range, range], Tensor]


class Structure(NamedTuple):
    """What the passes read beside queries, keys and values.

    Attributes:
        bounds: The first key that each query sees, and the one after the last,
            `[#batch, 2, queries]`; `visible`, `rule` and `bias` hide more of them.
        offsets: The position of query 0 among the keys, `[#batch]`.
        visible: Which pairs are visible, `[#batch, #heads, #queries, #keys]`.
        rule: The same, asked for some queries and some keys.
        bias: What is added to the scores, `[#batch, #heads, #queries, #keys]`; -inf hides.
        table: What is added along the diagonals, `[#batch, #heads, queries + keys - 1]`: pair
            (i, j) reads place queries - 1 - i + j.
        sink: A score without a key for each head, `[#heads]`.
        scale: β.
        softcap: Scores become softcap · tanh(score / softcap); 0 leaves them.
    """

    bounds: Tensor
    offsets: Tensor
    visible: Tensor | None = None
    rule: VisibleRule | None = None
    bias: Tensor | None = None
    table: Tensor | None = None
    sink: Tensor | None = None
    scale: float = 1.0
    softcap: float = 0.0


class Wanted(NamedTuple):
    """Which sums are taken beside the context.

    Attributes:
        keyed: The key of each row's maximum.
        far: Each row's sum of weights times distance.
        diagonal: The sums along the diagonals.
        top: How many of each row's largest weights.
        maps: The rows and columns of block maps, one map after the other.
        per_key: What is multiplied from the right, `[#batch, #heads, r, keys]`.
        per_query: What is multiplied from the left, `[#batch, #heads, l, queries]`.
    """

    keyed: bool = False
    far: bool = False
    diagonal: bool = False
    top: int = 0
    maps: tuple[int, ...] = ()
    per_key: Tensor | None = None
    per_query: Tensor | None = None

    def sizes(self) -> list[tuple[int, int]]:
        """Rows and columns of each map."""
        return list(zip(self.maps[::2], self.maps[1::2], strict=True))


def real_of(tensor: Tensor) -> np.dtype:
    """In which numbers a tensor is computed."""
    return np.dtype(np.float64 if tensor.dtype == torch.float64 else np.float32)
