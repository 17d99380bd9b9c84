"""Packed texts: nested tensors, whose texts lie one after the other without padding."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from glasshead.recipe.masks import Mask, dense, padding


def filled(x: Tensor) -> tuple[Float[Tensor, "batch ... longest dim"], list[int]]:
    """Texts of one length, that of the longest, with zeros after each; and how long each is."""
    texts = x.unbind()
    lengths = [text.shape[-2] for text in texts]
    longest = max(lengths, default=0)
    ends = [F.pad(text, (0, 0, 0, longest - text.shape[-2])) for text in texts]
    return torch.stack(ends), lengths


def within(queries: Sequence[int], keys: Sequence[int]) -> Mask:
    """What was filled in is no query, which sees nothing, and no key, which nobody sees.

    Args:
        queries, keys: How many of each every text of the batch has.
    """
    shown = torch.arange(max(queries)) < torch.tensor(queries)[:, None]
    return padding(list(keys)) & dense(shown[:, None, :, None])
