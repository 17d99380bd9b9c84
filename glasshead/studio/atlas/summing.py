"""Sums of weights over blocks of queries and keys, of which none but a few are there at a time."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from glasshead.attention import Weights
from glasshead.studio.atlas.crew import side_by_side
from glasshead.studio.atlas.refusing import Cancel, stop_if
from glasshead.watching.joined_weights import JoinedWeights

OneHead = Weights | JoinedWeights

# So many numbers are held at a time, of so many queries: they stay near the cores, and between one
# and the next there is time to be cancelled.
_NUMBERS, _HEIGHT = 2**20, 128


def block_sums(
    weights: OneHead, rows: range, columns: range, block: int, cancelled: Cancel = None
) -> Float[Tensor, "row_blocks column_blocks"]:
    """Σ_{i in block r} Σ_{j in block c} P_ij of a rectangle, in float64; the last may be smaller.

    Keys that no query sees are not gone through.

    Args:
        weights: Of one head, `[queries, keys]`.
        rows, columns: The rectangle, which begins where blocks begin.
        block: How many queries, and how many keys, a power of 2.
        cancelled: Asked every few milliseconds, by threads of its own.

    Errors: `Cancelled` where that was so.

    >>> import glasshead as gh
    >>> x = torch.zeros(5, 1)
    >>> W = gh.Attention(mask=gh.causal()).weights(x, x)
    >>> block_sums(W, range(5), range(5), block=4)
    tensor([[4.0000, 0.0000],
            [0.8000, 0.2000]], dtype=torch.float64)
    """
    height, width = _chunk(weights.numbers_a_pair)
    across = _count(columns, block)

    def of_band(band: range) -> Tensor:
        summed = torch.zeros(_count(band, block), across, dtype=torch.float64)
        seen = weights.seen(band)
        # From where a block begins, each part is whole blocks, or within one.
        start = max(columns.start, seen.start // block * block)
        for part in _parts(range(start, min(columns.stop, seen.stop)), width):
            stop_if(cancelled)
            blocks = _summed(_summed(weights.tile(band, part), block).T, block).T
            left = (part.start - columns.start) // block
            summed[:, left : left + blocks.shape[1]] += blocks.cpu()
        return summed

    sums = torch.zeros(_count(rows, block), across, dtype=torch.float64)
    bands = list(_parts(rows, height))
    for band, summed in zip(bands, side_by_side(of_band, bands), strict=True):
        first = (band.start - rows.start) // block
        sums[first : first + len(summed)] += summed
    return sums


def _chunk(numbers_a_pair: int) -> tuple[int, int]:
    """How many queries and keys are gone through at once, powers of 2."""
    pairs = _below(_NUMBERS // numbers_a_pair)
    height = min(_HEIGHT, pairs)
    return height, pairs // height


def _below(number: int) -> int:
    """The largest power of 2 that is not above a number, and at least 1."""
    return 1 << (max(number, 1).bit_length() - 1)


def _count(places: range, block: int) -> int:
    """How many blocks hold so many places."""
    return -(-len(places) // block)


def _parts(places: range, size: int) -> Iterator[range]:
    """Parts of a range, each but the last as large as said."""
    for first in range(places.start, places.stop, size):
        yield range(first, min(first + size, places.stop))


def _summed(tile: Float[Tensor, "length others"], block: int) -> Float[Tensor, "blocks others"]:
    """Sums over blocks of the first axis, which may be a part of one."""
    length = tile.shape[0]
    block = min(block, length)
    if block == 1:
        return tile
    if length % block:
        tile = F.pad(tile, (0, 0, 0, -length % block))
    return tile.unflatten(0, (-1, block)).sum(1)
