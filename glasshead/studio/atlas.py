"""The attention of a long text as a pyramid of exact pooled tiles: block sums, levels, a cache."""

import itertools
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from glasshead.recipe.validation import whole_number
from glasshead.studio.background_jobs import Cache, Cancelled
from glasshead.studio.hidden_blocks import OneHead, mark_hidden

Cancel = Callable[[], bool] | None


class NotYetError(RuntimeError):
    """A tile of so many weights that it comes from the overview, which is not there yet."""


def stop_if(cancelled: Cancel) -> None:
    """Raise `Cancelled` if `cancelled()` returns True.

    >>> stop_if(None), stop_if(lambda: False)
    (None, None)
    """
    if cancelled is not None and cancelled():
        raise Cancelled("the work was cancelled before it was done.")


Work = TypeVar("Work")
Result = TypeVar("Result")
_lock = threading.Lock()
_pools: list[ThreadPoolExecutor] = []


def run_parallel(work: Callable[[Work], Result], parts: Iterable[Work]) -> Iterator[Result]:
    """Map `work` over parts in a thread pool, yielding results in order.

    The pool has as many threads as PyTorch uses. Parts that have not started are dropped when one
    raises or the caller stops iterating.

    >>> list(run_parallel(lambda number: number**2, range(5)))
    [0, 1, 4, 9, 16]
    """
    futures = [_pool().submit(work, part) for part in parts]
    try:
        for future in futures:
            yield future.result()
    finally:
        for future in futures:
            future.cancel()


def _pool() -> ThreadPoolExecutor:
    with _lock:
        if not _pools:
            threads = torch.get_num_threads()
            pool, all_started = ThreadPoolExecutor(threads, "atlas"), threading.Barrier(threads)

            def start(_: int) -> None:
                # Read first: else the thread takes PyTorch's default at its first operation.
                torch.get_num_threads()
                torch.set_num_threads(1)
                all_started.wait()

            list(pool.map(start, range(threads)))
            # Threads that start later take the number that was set last.
            torch.set_num_threads(threads)
            _pools.append(pool)
        return _pools[0]


def _reset_after_fork() -> None:
    """Drop the thread pool in a child process, which has none of its parent's threads."""
    global _lock  # noqa: PLW0603 - the module's own lock
    _lock = threading.Lock()
    _pools.clear()


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


# Numbers and queries of one chunk: small enough for the cores' caches, and for prompt cancellation.
_NUMBERS, _HEIGHT = 2**20, 128


def block_sums(
    weights: OneHead, rows: range, columns: range, block: int, cancelled: Cancel = None
) -> Float[Tensor, "row_blocks column_blocks"]:
    """Return Σ_{i in block r} Σ_{j in block c} P_ij of a rectangle in float64; edges are ragged.

    Keys that no query sees are skipped.

    Args:
        weights: Weights of one head, `[queries, keys]`.
        rows, columns: The rectangle, aligned to blocks at its start.
        block: Side of a block in queries and in keys, a power of 2.
        cancelled: Polled every few milliseconds, from the pool's threads.

    Errors: `Cancelled` if `cancelled()` returned True.

    >>> import glasshead as gh
    >>> x = torch.zeros(5, 1)
    >>> W = gh.Attention(mask=gh.causal()).weights(x, x)
    >>> block_sums(W, range(5), range(5), block=4)
    tensor([[4.0000, 0.0000],
            [0.8000, 0.2000]], dtype=torch.float64)
    """
    height, width = _chunk_shape(weights.numbers_a_pair)
    across = _count(columns, block)

    def band_sums(band: range) -> Tensor:
        summed = torch.zeros(_count(band, block), across, dtype=torch.float64)
        seen = weights.seen(band)
        # Starting at a block's edge, each part is whole blocks, or lies within one.
        start = max(columns.start, seen.start // block * block)
        for part in _parts(range(start, min(columns.stop, seen.stop)), width):
            stop_if(cancelled)
            blocks = _summed(_summed(weights.tile(band, part), block).T, block).T
            left = (part.start - columns.start) // block
            summed[:, left : left + blocks.shape[1]] += blocks.cpu()
        return summed

    sums = torch.zeros(_count(rows, block), across, dtype=torch.float64)
    bands = list(_parts(rows, height))
    for band, summed in zip(bands, run_parallel(band_sums, bands), strict=True):
        first = (band.start - rows.start) // block
        sums[first : first + len(summed)] += summed
    return sums


def _chunk_shape(numbers_a_pair: int) -> tuple[int, int]:
    """Return the queries and keys of one chunk, powers of 2."""
    pairs = _power_of_2_below(_NUMBERS // numbers_a_pair)
    height = min(_HEIGHT, pairs)
    return height, pairs // height


def _power_of_2_below(number: int) -> int:
    """Return the largest power of 2 not above a number, and at least 1."""
    return 1 << (max(number, 1).bit_length() - 1)


def _count(places: range, block: int) -> int:
    """Return the number of blocks that cover a range."""
    return -(-len(places) // block)


def _parts(places: range, size: int) -> Iterator[range]:
    """Split a range into parts of a size; the last may be smaller."""
    for first in range(places.start, places.stop, size):
        yield range(first, min(first + size, places.stop))


def _summed(tile: Float[Tensor, "length others"], block: int) -> Float[Tensor, "blocks others"]:
    """Sum over blocks of the first axis, or over all of it where it is shorter than a block."""
    length = tile.shape[0]
    block = min(block, length)
    if block == 1:
        return tile
    if length % block:
        tile = F.pad(tile, (0, 0, 0, -length % block))
    return tile.unflatten(0, (-1, block)).sum(1)


# Numbers of the finest stored level, 16 MiB; the coarser ones take a third more.
_KEPT = 2**22
# Minimum number of queries between two progress reports.
_BAND = 512


def kept_level(queries: int, keys: int) -> int:
    """Return the finest level whose sums are stored.

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
    """Compute Σ_ij P_ij of each block of each stored level, in float32, keyed by level.

    One pass over the matrix, a band of queries at a time; a coarser block is the sum of four finer
    ones. Sums are added in float64.

    Args:
        weights: Weights of one head.
        levels: Number of levels, including those not stored.
        progress: Called with the fraction of the work done, after each band.
        cancelled: Polled every few milliseconds.

    Errors: `Cancelled` if `cancelled()` returned True.

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
    stored = {finest: sums}
    for level in range(finest + 1, levels):
        stored[level] = _coarser(stored[level - 1])
    return stored


def _coarser(sums: Tensor) -> Tensor:
    """Return the sums of blocks twice as long."""
    rows, columns = sums.shape
    even = F.pad(sums, (0, columns % 2, 0, rows % 2)).double()
    return even.unflatten(1, (-1, 2)).sum(2).unflatten(0, (-1, 2)).sum(1).float()


class TileCache(Cache[Tensor]):
    """A least-recently-used cache of tiles, shared by any number of atlases.

    Thread-safe: a tile that another thread is computing is awaited, not computed twice.

    Args:
        limit: Maximum size in bytes, 64 MiB by default.

    Errors: a TypeError or ValueError if the limit is not a whole number of at least 0.

    >>> import torch
    >>> cache = TileCache(limit=100)
    >>> for name in "aba":
    ...     tile = cache.get(name, lambda: print("computed", name) or torch.zeros(5, 5))
    computed a
    computed b
    computed a
    >>> cache.size, len(cache)
    (100, 1)
    """

    def __init__(self, limit: int = 2**26) -> None:
        super().__init__(whole_number(limit, "TileCache(limit)"), lambda tile: tile.nbytes)


# Blocks along a side of a tile.
SIDE = 256
# Weights of the largest tile that is computed without the overview, 4096 a side.
_AT_ONCE = 2**24
_atlas_numbers = itertools.count()


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

    Errors: a ValueError for weights of several heads, or if there is no query or no key.

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
    tensor([[1.0000, -0.0000, -0.0000],
            [0.6345, 0.3655, -0.0000]])
    """

    def __init__(self, weights: OneHead, cache: TileCache | None = None) -> None:
        if len(weights.shape) != 2:
            raise ValueError(
                "Atlas needs the weights of one head, [queries, keys], got "
                f"{list(weights.shape)}. Use W.head(…)."
            )
        if 0 in weights.shape:
            raise ValueError(
                f"Atlas needs at least one query and one key, got {list(weights.shape)}."
            )
        self.queries, self.keys = weights.shape
        self.levels = max(-(-max(weights.shape) // SIDE) - 1, 0).bit_length() + 1
        self.overview_level = kept_level(self.queries, self.keys)
        self._weights, self._number = weights, next(_atlas_numbers)
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

        A block whose pairs are all hidden is −0. Thread-safe.

        Args:
            level: Blocks have 2^level queries and keys.
            row, column: Position among the tiles of `size(level)`.
            cancelled: Polled every few milliseconds.

        Errors: a TypeError or ValueError for a tile that does not exist, `NotYetError` for one of
        more than 2^24 weights without an overview, `Cancelled` if `cancelled()` returned True.
        """
        rows, columns = self.size(level)
        row, column = _below(row, rows, "row"), _below(column, columns, "column")
        stop_if(cancelled)
        if level in self._stored:
            first, left = SIDE * row, SIDE * column
            sums = self._stored[level][first : first + SIDE, left : left + SIDE]
            return self._marked(self._mean(sums, level, row), level, row, column)
        pairs = len(self._places(level, row, self.queries)) * len(
            self._places(level, column, self.keys)
        )
        if level >= self.overview_level and pairs > _AT_ONCE:
            raise NotYetError(
                f"a tile of level {level} needs the overview, which is not there yet. Call "
                "overview() first."
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

        Errors: `Cancelled` if `cancelled()` returned True.
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
        return self._marked(self._mean(sums, level, row), level, row, column)

    def _marked(self, means: Tensor, level: int, row: int, column: int) -> Tensor:
        """Mark the blocks in which everything is hidden."""
        rows = self._places(level, row, self.queries)
        columns = self._places(level, column, self.keys)
        return mark_hidden(means, self._weights, rows, columns, 2**level)

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
        raise ValueError(f"Atlas.tile({name}) must be a whole number below {count}, got {number}.")
    return number
