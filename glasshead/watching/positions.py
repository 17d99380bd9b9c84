"""Positions: where queries stand among keys, where nobody says so."""

import torch
from jaxtyping import Bool
from torch import Tensor


def position_among(
    queries: int, keys: int, visible: Bool[Tensor, "... #queries #keys"] | None
) -> int:
    """The position of query 0 among the keys, as the mask of a causal attention tells it.

    A query of a growing text sees no key after its own, so that the last one visible is its own,
    unless the text is shorter than others of its batch. Where a cache has room for keys to come,
    fewer than keys - queries stand before the first query; never more do.

    >>> position_among(1, 7, None)
    6
    >>> position_among(1, 7, torch.tensor([[True, True, True, True, False, False, False]]))
    3
    """
    last = keys - queries
    if visible is None or last <= 0:
        return max(last, 0)
    visible = visible.expand(*visible.shape[:-2], queries, keys)
    places = torch.arange(keys, device=visible.device)
    own = torch.where(visible, places, -1).amax(-1) - torch.arange(queries, device=visible.device)
    return max(0, min(last, int(own.max())))
