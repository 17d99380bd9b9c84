"""How the work is cut, and shared among threads."""

import math
from typing import NamedTuple

import numpy as np
from torch import Tensor

from glasshead.engines.streaming import workers
from glasshead.engines.streaming.kernels.product import ROWS, columns_of
from glasshead.engines.streaming.structure import Structure, real_of

# A block has this many queries, or fewer where its scores would not stay near the core.
_HEIGHT = 64


class Unit(NamedTuple):
    """What a thread does in one go: every so many-th block of some heads of a batch row."""

    batch: int
    heads: range
    stripe: int


class Cut:
    """Blocks of queries, stripes of blocks, units of heads and stripes.

    Args:
        query, key: `[batch, heads, length, dim]`.
        structure: What each query sees.
        numbers: How many scores a block may have.
        shares: How many units there are to be for each thread, at least.
    """

    def __init__(
        self, query: Tensor, key: Tensor, structure: Structure, *, numbers: int, shares: int
    ) -> None:
        self.batch, self.heads, self.queries, dim = query.shape
        self.kv_heads, self.keys = key.shape[1:3]
        self.group = self.heads // self.kv_heads
        real = real_of(query)
        self.width = columns_of(real.itemsize)
        bounds = structure.bounds
        seen = (bounds[:, 1] - bounds[:, 0]).clamp(min=0)
        pairs = int(seen.sum()) * (self.batch // len(bounds)) * self.heads
        self.threads = workers.threads_for(4 * pairs * dim)
        across = int(seen.max()) + _HEIGHT + 2 * self.width if seen.numel() else 1
        height = min(_HEIGHT, max(8, numbers // across), self.queries)
        self.height = -(-height // ROWS) * ROWS
        sets = self.batch * self.kv_heads
        blocks = -(-self.queries // self.height)
        self.stripes = 1
        if self.threads > 1:
            self.stripes = max(1, min(blocks, math.ceil(shares * self.threads / sets)))
        self.threads = min(self.threads, sets * self.stripes)

    def padded(self, length: int) -> int:
        """A length made up to whole panels."""
        return -(-length // self.width) * self.width

    def units(self) -> list[Unit]:
        """All units; the heads of one read the same keys."""
        return [
            Unit(batch, range(head * self.group, (head + 1) * self.group), stripe)
            for batch in range(self.batch)
            for head in range(self.kv_heads)
            for stripe in range(self.stripes)
        ]

    def rows(self, stripe: int) -> tuple[int, int]:
        """The first row of a stripe, and the step to its next block."""
        return stripe * self.height, self.stripes * self.height

    def largest(self, bounds: np.ndarray) -> int:
        """How many keys a block spans at most, in whole panels."""
        most = 0
        for first in range(0, self.queries, self.height):
            starts, stops = bounds[:, :, first : first + self.height].swapaxes(0, 1)
            seeing = starts < stops
            if seeing.any():
                low = np.where(seeing, starts, self.keys).min(-1)
                most = max(most, int((np.where(seeing, stops, 0).max(-1) - low).max()))
        return most + 2 * self.width
