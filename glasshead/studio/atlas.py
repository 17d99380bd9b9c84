"""The attention of a long text as a pyramid of exact pooled tiles."""

import itertools
import threading
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.recipe.validation import whole_number
from glasshead.studio.atlas_tiles import (
    Cancel,
    NotYetError,
    OneHead,
    TileCache,
    block_sums,
    kept_level,
    pyramid,
    stop_if,
)

# Blocks along a side of a tile.
SIDE = 256
# Weights of the largest tile that is computed without the overview, 4096 a side.
_AT_ONCE = 2**24
_numbers = itertools.count()


class Atlas:
    """A zoomable attention map: mean_{i in block r} Σ_{j in block c} P_ij at every scale.

    Blocks have 2^level queries and keys. At level 0 a block is one weight; each further level has
    blocks twice as long, until one tile of 256 × 256 blocks holds the whole. Blocks start at query
    0 and key 0, and are ragged at the lower and right edge. Every number is computed from the
    weights of its own block, as in `PooledMap`, none from a picture.

    Coarse tiles come from an overview, one pass over the matrix; fine ones are computed on demand
    and cached.

    Args:
        weights: Weights of one head, `[queries, keys]`: `W.head(0, 3)`.
        cache: A tile cache, which several atlases may share; one of 64 MiB if not given.

    Attributes:
        queries, keys: Size of the matrix.
        levels: Number of levels, counted from 0.
        overview_level: Finest level of the overview; finer tiles are computed on demand.

    Errors: a ValueError for weights of several heads, or where there is no query or no key.

    Source: the numbers equal those of `PooledMap`.

    >>> import torch
    >>> import glasshead as gh
    >>> x = torch.zeros(1, 2, 1000, 8)
    >>> atlas = Atlas(gh.Attention(mask=gh.causal()).weights(x, x).head(0, 1))
    >>> atlas
    Atlas of 1000 queries and 1000 keys, 3 levels
    >>> atlas.size(0), atlas.tile(0, 3, 3).shape
    ((4, 4), torch.Size([232, 232]))
    >>> atlas.overview()
    >>> atlas.tile(2, 0, 0)[:2, :3]                     # queries 0 to 3, and 4 to 7
    tensor([[1.0000, 0.0000, 0.0000],
            [0.6345, 0.3655, 0.0000]])
    """

    def __init__(self, weights: OneHead, cache: TileCache | None = None) -> None:
        if len(weights.shape) != 2:
            raise ValueError(
                f"Atlas takes the weights of one head, [queries, keys], and got "
                f"{list(weights.shape)}: take W.head(…)."
            )
        if 0 in weights.shape:
            raise ValueError(
                f"Atlas takes at least one query and one key, and got {list(weights.shape)}."
            )
        self.queries, self.keys = weights.shape
        self.levels = max(-(-max(weights.shape) // SIDE) - 1, 0).bit_length() + 1
        self.overview_level = kept_level(self.queries, self.keys)
        self._weights, self._number = weights, next(_numbers)
        self._cache = TileCache() if cache is None else cache
        self._stored: dict[int, Tensor] = {}
        self._making = threading.Lock()

    @property
    def ready(self) -> bool:
        """Whether the overview has been computed."""
        return bool(self._stored)

    def size(self, level: int) -> tuple[int, int]:
        """Return the number of rows and columns of tiles at a level.

        Errors: a TypeError or ValueError for a level that is not there.
        """
        return tuple(-(-blocks // SIDE) for blocks in self.blocks(level))  # type: ignore[return-value]

    def blocks(self, level: int) -> tuple[int, int]:
        """Return the number of rows and columns of blocks at a level.

        Errors: a TypeError or ValueError for a level that is not there.
        """
        length = 2 ** _below(level, self.levels, "level")
        return -(-self.queries // length), -(-self.keys // length)

    def tile(
        self, level: int, row: int, column: int, cancelled: Cancel = None
    ) -> Float[Tensor, "row_blocks column_blocks"]:
        """Return a tile: the blocks from `[256 · row, 256 · column]`, up to 256 × 256, in float32.

        Thread-safe.

        Args:
            level: Blocks have 2^level queries and keys.
            row, column: Position among the tiles of `size(level)`.
            cancelled: Polled every few milliseconds.

        Errors: a TypeError or ValueError for a tile that does not exist, `NotYetError` for one of
        more than 2^24 weights without an overview, `Cancelled` where `cancelled()` returned True.
        """
        rows, columns = self.size(level)
        row, column = _below(row, rows, "row"), _below(column, columns, "column")
        stop_if(cancelled)
        if level in self._stored:
            first, left = SIDE * row, SIDE * column
            sums = self._stored[level][first : first + SIDE, left : left + SIDE]
            return self._mean(sums, level, row)
        pairs = len(self._places(level, row, self.queries)) * len(
            self._places(level, column, self.keys)
        )
        if level >= self.overview_level and pairs > _AT_ONCE:
            raise NotYetError(
                f"a tile of level {level} takes the overview, which is not there yet: call "
                f"overview() first."
            )
        key = (self._number, level, row, column)
        tile = self._cache.get(
            key,
            lambda: self._compute(level, row, column, cancelled),
            wait=lambda _: stop_if(cancelled),
        )
        # A copy, as the cached tile is shared.
        return tile.clone()

    def overview(
        self, progress: Callable[[float], object] | None = None, cancelled: Cancel = None
    ) -> None:
        """Compute the tiles of the coarse levels in one pass over the matrix.

        Later calls return at once; concurrent calls wait.

        Args:
            progress: Called with the fraction of the work done, from 0 to 1.
            cancelled: Polled every few milliseconds; on cancellation nothing is stored.

        Errors: `Cancelled` where `cancelled()` returned True.
        """
        while not self._making.acquire(timeout=0.02):
            stop_if(cancelled)
        try:
            if not self._stored:
                self._stored = pyramid(self._weights, self.levels, progress, cancelled)
        finally:
            self._making.release()
        if progress is not None:
            progress(1.0)

    def _compute(self, level: int, row: int, column: int, cancelled: Cancel) -> Tensor:
        rows = self._places(level, row, self.queries)
        columns = self._places(level, column, self.keys)
        sums = block_sums(self._weights, rows, columns, 2**level, cancelled)
        return self._mean(sums, level, row)

    def _places(self, level: int, number: int, length: int) -> range:
        """Return the queries of a row of tiles, or the keys of a column."""
        side = SIDE * 2**level
        return range(number * side, min((number + 1) * side, length))

    def _mean(self, sums: Tensor, level: int, row: int) -> Tensor:
        """Divide the sums of each block by its number of queries."""
        places = self._places(level, row, self.queries)
        begins = torch.arange(places.start, places.stop, 2**level)
        counts = (places.stop - begins).clamp(max=2**level)
        return (sums / counts[:, None]).float()

    def __repr__(self) -> str:
        return f"Atlas of {self.queries} queries and {self.keys} keys, {self.levels} levels"


def _below(number: int, count: int, name: str) -> int:
    """Check a level, row or column index."""
    number = whole_number(number, f"Atlas.tile({name})")
    if number >= count:
        raise ValueError(
            f"Atlas.tile({name}) takes a whole number below {count}, and got {number}."
        )
    return number
