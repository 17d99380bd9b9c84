"""The sums of all blocks of a matrix, from the finest that are kept to the coarsest."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from glasshead.studio.atlas.refusing import Cancel
from glasshead.studio.atlas.summing import OneHead, block_sums

# The numbers of the finest level that is kept, 16 MiB, and a third more for the coarser ones.
_KEPT = 2**22
# How many queries are gone through between two reports of progress, at least.
_BAND = 512


def kept_level(queries: int, keys: int) -> int:
    """The finest level whose sums may be kept.

    >>> kept_level(2048, 2048), kept_level(65_536, 65_536)
    (0, 5)
    """
    level = 0
    while math.prod(-(-length // 2**level) for length in (queries, keys)) > _KEPT:
        level += 1
    return level


def pyramid(
    weights: OneHead,
    levels: int,
    progress: Callable[[float], object] | None = None,
    cancelled: Cancel = None,
) -> dict[int, Float[Tensor, "row_blocks column_blocks"]]:
    """Σ_ij P_ij of each block of each level that is kept, in float32, by level.

    One pass over the matrix, a band of queries at a time; a coarser block is the sum of four finer
    ones. Sums are added in float64.

    Args:
        weights: Of one head.
        levels: How many there are, those that are not kept included.
        progress: Called with the share of the work that is done, after each band.
        cancelled: Asked every few milliseconds.

    Errors: `Cancelled` where that was so.

    >>> import glasshead as gh
    >>> W = gh.Attention().weights(torch.zeros(3, 1), torch.zeros(3, 1))
    >>> pyramid(W, levels=3)[1]
    tensor([[1.3333, 0.6667],
            [0.6667, 0.3333]])
    """
    queries, keys = weights.shape
    finest = kept_level(queries, keys)
    block = 2**finest
    step = max(_BAND, block)
    bands = [range(first, min(first + step, queries)) for first in range(0, queries, step)]
    pairs = [len(band) * len(weights.seen(band)) for band in bands]
    sums = torch.zeros(-(-queries // block), -(-keys // block))
    done = 0
    for band, work in zip(bands, pairs, strict=True):
        part = block_sums(weights, band, range(keys), block, cancelled)
        first = band.start // block
        sums[first : first + len(part)] = part
        done += work
        if progress is not None:
            progress(done / max(sum(pairs), 1))
    kept = {finest: sums}
    for level in range(finest + 1, levels):
        kept[level] = _coarser(kept[level - 1])
    return kept


def _coarser(sums: Tensor) -> Tensor:
    """The sums of blocks twice as long."""
    rows, columns = sums.shape
    even = F.pad(sums, (0, columns % 2, 0, rows % 2)).double()
    return even.unflatten(1, (-1, 2)).sum(2).unflatten(0, (-1, 2)).sum(1).float()
