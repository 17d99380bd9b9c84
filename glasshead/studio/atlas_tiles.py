"""Tiles of a pooled map: sums of weights over blocks, pyramids of them, and their cache."""

import math
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from glasshead.attention import Weights
from glasshead.recipe.validation import whole_number
from glasshead.watching.joined_weights import JoinedWeights

Cancel = Callable[[], bool] | None


class Cancelled(Exception):  # noqa: N818 - no error, but an answer to who asked for it
    """The work was ended by who had asked for it."""


class NotYetError(RuntimeError):
    """A tile of so many weights that it comes from the overview, which is not there yet."""


def stop_if(cancelled: Cancel) -> None:
    """Raise `Cancelled` where `cancelled()` says so.

    >>> stop_if(None), stop_if(lambda: False)
    (None, None)
    """
    if cancelled is not None and cancelled():
        raise Cancelled("the work was cancelled before it was done.")


Work = TypeVar("Work")
Result = TypeVar("Result")
_lock = threading.Lock()
_crews: list[ThreadPoolExecutor] = []


def run_parallel(work: Callable[[Work], Result], parts: Iterable[Work]) -> Iterator[Result]:
    """The results of `work` for each of the parts, in their order, from a few threads.

    They are as many as PyTorch uses. What has not begun is left out where one of them raises, or
    nobody takes the next.

    >>> list(run_parallel(lambda number: number**2, range(5)))
    [0, 1, 4, 9, 16]
    """
    futures = [_crew().submit(work, part) for part in parts]
    try:
        for future in futures:
            yield future.result()
    finally:
        for future in futures:
            future.cancel()


def _crew() -> ThreadPoolExecutor:
    with _lock:
        if not _crews:
            threads = torch.get_num_threads()
            crew, all_there = ThreadPoolExecutor(threads, "atlas"), threading.Barrier(threads)

            def begin(_: int) -> None:
                # Of this thread alone, which else would take the common number at its first work.
                torch.get_num_threads()
                torch.set_num_threads(1)
                all_there.wait()

            list(crew.map(begin, range(threads)))
            # Threads that begin later take the number that was set last.
            torch.set_num_threads(threads)
            _crews.append(crew)
        return _crews[0]


def _forget() -> None:
    """Begin anew in a child process, which has none of its parent's threads."""
    global _lock  # noqa: PLW0603 - it is the module's
    _lock = threading.Lock()
    _crews.clear()


os.register_at_fork(after_in_child=_forget)


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
    for band, summed in zip(bands, run_parallel(of_band, bands), strict=True):
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


# How often who waits for another's work looks whether it is still wanted, in seconds.
_LOOK = 0.02


class TileCache:
    """Keeps tiles of any number of atlases, within so many bytes; the longest unused goes first.

    Any number of threads may ask. What is asked for while it is being computed is waited for, and
    not computed twice.

    Args:
        limit: The bytes that tiles may take, 64 MiB if not given.

    Errors: a TypeError or ValueError where the limit is not a whole number of at least 0.

    >>> import torch
    >>> cache = TileCache(limit=100)
    >>> for name in "aba":
    ...     tile = cache.get(name, lambda: print("computed", name) or torch.zeros(5, 5))
    computed a
    computed b
    computed a
    >>> cache.bytes, len(cache)
    (100, 1)
    """

    def __init__(self, limit: int = 2**26) -> None:
        self.limit = whole_number(limit, "TileCache(limit)")
        self._tiles: OrderedDict[Hashable, Tensor] = OrderedDict()
        self._making: dict[Hashable, threading.Event] = {}
        self._lock = threading.Lock()
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """How many bytes the tiles take that are kept."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._tiles)

    def get(self, key: Hashable, make: Callable[[], Tensor], cancelled: Cancel = None) -> Tensor:
        """The tile of a key, which `make()` computes where it is not kept.

        An error of `make` is raised to who had it computed, and who waited tries again.

        Errors: `Cancelled` where `cancelled()` says so while another computes the tile.
        """
        while True:
            with self._lock:
                if key in self._tiles:
                    self._tiles.move_to_end(key)
                    return self._tiles[key]
                others = self._making.get(key)
                if others is None:
                    self._making[key] = threading.Event()
                    break
            while not others.wait(_LOOK):
                stop_if(cancelled)
        try:
            tile = make()
            self._keep(key, tile)
        finally:
            with self._lock:
                self._making.pop(key).set()
        return tile

    def _keep(self, key: Hashable, tile: Tensor) -> None:
        size = tile.numel() * tile.itemsize
        if size > self.limit:
            return
        with self._lock:
            self._tiles[key] = tile
            self._bytes += size
            while self._bytes > self.limit:
                _, oldest = self._tiles.popitem(last=False)
                self._bytes -= oldest.numel() * oldest.itemsize
