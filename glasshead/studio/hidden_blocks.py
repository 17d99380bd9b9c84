"""Find the blocks of a head's weights that its mask hides: those of a map's pixels."""

from dataclasses import replace
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from glasshead.attention import JoinedWeights, Weights
from glasshead.recipe.masks.base import Mask

OneHead = Weights | JoinedWeights

# Pairs that are looked at one by one to find hidden blocks, where queries see no single range.
_LOOKED_AT = 2**24


def mark_hidden(
    blocks: Float[Tensor, "row_blocks column_blocks"],
    weights: OneHead,
    rows: range,
    columns: range,
    block: int = 1,
) -> Float[Tensor, "row_blocks column_blocks"]:
    """Return sums of blocks with −0 if a block's pairs are all hidden, and 0 if some are not.

    −0 equals 0 in every sum and comparison; only its sign tells a weight that has become 0 from a
    pair that the mask hides.

    Args:
        blocks: Sums of weights.
        weights: Weights of one head.
        rows, columns: The rectangle of the blocks, aligned to blocks at its start.
        block: Side of a block in queries and in keys.

    >>> import glasshead as gh
    >>> x = torch.tensor([[0.0], [200.0]])
    >>> W = gh.Attention(mask=gh.causal()).weights(x, -x)
    >>> mark_hidden(W.dense(), W, range(2), range(2))
    tensor([[1., -0.],
            [1., 0.]])
    """
    shown = _shown_blocks(weights, rows, columns, block)
    if shown is None:
        return blocks
    return blocks.masked_fill(~shown & (blocks == 0), -0.0)


def _shown_blocks(
    weights: OneHead, rows: range, columns: range, block: int
) -> Bool[Tensor, "row_blocks column_blocks"] | None:
    """Return which blocks have a visible pair; None where all have, or too many pairs are read."""
    problem = getattr(weights, "_problem", None)
    if problem is None or (problem.mask is None and not problem.biases):
        return None
    tile = replace(problem.tile(), queries=rows, keys=columns)
    ranges = None if problem.biases else cast("Mask", problem.mask).intervals(tile)
    if ranges is not None and ranges.starts[..., 0].numel() == len(rows):
        starts, stops = (ends.flatten() for ends in ranges)
        empty = starts >= stops
        first = -_summit(-starts.masked_fill(empty, columns.stop), block)
        last = _summit(stops.masked_fill(empty, columns.start), block)
        begins = torch.arange(columns.start, columns.stop, block, device=first.device)
        ends = (begins + block).clamp(max=columns.stop)
        return ((first[:, None] < ends) & (last[:, None] > begins)).cpu()
    if len(rows) * len(columns) > _LOOKED_AT:
        return None
    _, visible = problem.bias_and_visible(problem.mask, tile)
    if visible is None or visible[..., 0, 0].numel() != 1:
        return None
    each = visible.expand(*visible.shape[:-2], len(rows), len(columns)).flatten(0, -3)[0].long()
    across = torch.stack([_summit(row, block) for row in each.T])
    return torch.stack([_summit(row, block) for row in across.T]).bool().cpu()


def _summit(values: Int[Tensor, " length"], block: int) -> Int[Tensor, " blocks"]:
    """Return the largest of each block of values; the last block may be shorter."""
    least = torch.iinfo(values.dtype).min
    return F.pad(values, (0, -len(values) % block), value=least).unflatten(0, (-1, block)).amax(1)
