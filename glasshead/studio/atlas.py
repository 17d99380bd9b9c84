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

# How many blocks a tile has along a side.
SIDE = 256
# The weights of a tile that is computed while there is no overview, 4096 a side.
_AT_ONCE = 2**24
_numbers = itertools.count()


class Atlas:
    """mean_{i in block r} Σ_{j in block c} P_ij, for blocks of 2^level queries and keys.

    At level 0 a block is one weight; each level further has blocks twice as long, until one tile of
    256 × 256 blocks holds the whole. Blocks begin with query 0 and key 0, and are ragged at the
    lower and right edge. Every number is computed from the weights of its own block, as
    `PooledMap` has it, none from a picture.

    Coarse tiles come from an overview, one pass over the matrix, that is made once; fine ones are
    computed when they are asked for, and kept.

    Args:
        weights: Of one head, `[queries, keys]`: `W.head(0, 3)`.
        cache: Where tiles are kept, which several atlases may share; one of 64 MiB if not given.

    Attributes:
        queries, keys: The size of the matrix.
        levels: How many levels there are, from 0.
        overview_level: The finest level that the overview has; finer tiles are computed.

    Errors: a ValueError for weights of several heads, or where there is no query or no key.

    Source: the numbers are those of `PooledMap`.

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
        self._kept: dict[int, Tensor] = {}
        self._making = threading.Lock()

    @property
    def ready(self) -> bool:
        """Whether the overview is there."""
        return bool(self._kept)

    def size(self, level: int) -> tuple[int, int]:
        """How many rows and columns of tiles a level has.

        Errors: a TypeError or ValueError for a level that is not there.
        """
        return tuple(-(-blocks // SIDE) for blocks in self.blocks(level))  # type: ignore[return-value]

    def blocks(self, level: int) -> tuple[int, int]:
        """How many rows and columns of blocks a level has.

        Errors: a TypeError or ValueError for a level that is not there.
        """
        length = 2 ** _below(level, self.levels, "level")
        return -(-self.queries // length), -(-self.keys // length)

    def tile(
        self, level: int, row: int, column: int, cancelled: Cancel = None
    ) -> Float[Tensor, "row_blocks column_blocks"]:
        """The blocks from `[256 · row, 256 · column]` on, at most 256 × 256, in float32.

        Any number of threads may ask at once.

        Args:
            level: Of blocks of 2^level queries and keys.
            row, column: Which of the tiles of `size(level)`.
            cancelled: Asked every few milliseconds whether nobody wants the tile any more.

        Errors: a TypeError or ValueError for a tile that is not there, `NotYetError` for one of
        more than 2^24 weights while there is no overview, `Cancelled` where that was so.
        """
        rows, columns = self.size(level)
        row, column = _below(row, rows, "row"), _below(column, columns, "column")
        stop_if(cancelled)
        if level in self._kept:
            first, left = SIDE * row, SIDE * column
            sums = self._kept[level][first : first + SIDE, left : left + SIDE]
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
        made = self._cache.get(key, lambda: self._made(level, row, column, cancelled), cancelled)
        # A copy, as what is kept is others', too.
        return made.clone()

    def overview(
        self, progress: Callable[[float], object] | None = None, cancelled: Cancel = None
    ) -> None:
        """Go through the matrix once, for the tiles of the coarse levels.

        A second call finds it done; one made meanwhile waits.

        Args:
            progress: Called with the share of the work that is done, from 0 to 1.
            cancelled: Asked every few milliseconds; then nothing is kept.

        Errors: `Cancelled` where that was so.
        """
        while not self._making.acquire(timeout=0.02):
            stop_if(cancelled)
        try:
            if not self._kept:
                self._kept = pyramid(self._weights, self.levels, progress, cancelled)
        finally:
            self._making.release()
        if progress is not None:
            progress(1.0)

    def _made(self, level: int, row: int, column: int, cancelled: Cancel) -> Tensor:
        rows = self._places(level, row, self.queries)
        columns = self._places(level, column, self.keys)
        sums = block_sums(self._weights, rows, columns, 2**level, cancelled)
        return self._mean(sums, level, row)

    def _places(self, level: int, number: int, length: int) -> range:
        """The queries of a row of tiles, or the keys of a column."""
        side = SIDE * 2**level
        return range(number * side, min((number + 1) * side, length))

    def _mean(self, sums: Tensor, level: int, row: int) -> Tensor:
        """Sums over a block's queries as means over them."""
        places = self._places(level, row, self.queries)
        begins = torch.arange(places.start, places.stop, 2**level)
        counts = (places.stop - begins).clamp(max=2**level)
        return (sums / counts[:, None]).float()

    def __repr__(self) -> str:
        return f"Atlas of {self.queries} queries and {self.keys} keys, {self.levels} levels"


def _below(number: int, count: int, name: str) -> int:
    """A level, row or column that is there."""
    number = whole_number(number, f"Atlas.tile({name})")
    if number >= count:
        raise ValueError(
            f"Atlas.tile({name}) takes a whole number below {count}, and got {number}."
        )
    return number
