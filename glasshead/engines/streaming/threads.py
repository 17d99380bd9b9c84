"""Threads, PyTorch's own where it lends them, and the schedule that divides work among them."""

import ctypes
import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from glasshead.engines.streaming import matrix_tiles
from glasshead.engines.streaming.kernels.processor import SQUARE, at_hand, columns_of
from glasshead.engines.streaming.machine_code import Kernel
from glasshead.engines.streaming.operands import LoweredProblem, real_of

_Unit = TypeVar("_Unit")


def share(units: Sequence[_Unit], work: Callable[[Iterator[_Unit]], None], threads: int) -> None:
    """Call `work` in each thread with an iterator over the remaining units; each is taken once.

    An error in one of the threads, or Ctrl-C here, ends the work of all and is raised here. So is
    a second Ctrl-C, at whatever line it arrives.
    """
    if threads == 1:
        work(iter(units))
        return
    left, errors = _Shared(units), []

    def take() -> None:
        try:
            work(left.each())
        except BaseException as error:  # noqa: BLE001 - it is raised below
            # Before anything else, as Ctrl-C may end these lines, too.
            errors.append(error)
            left.end()

    run = _in_own_pool if _is_forked else _openmp() or _in_own_pool
    try:
        run(take, threads)
    finally:
        if errors:
            raise errors[0]
    if left.finished < len(units):
        raise RuntimeError(
            f"of {len(units)} units of work {left.finished} were finished: this is a bug."
        )


# With fewer operations one thread computes alone, as others would take longer to begin.
_FEW = 1_000_000


_Run = Callable[[Callable[[], None], int], None]


@cache
def _openmp() -> _Run | None:
    """Return what runs a function in PyTorch's OpenMP threads, this one among them, if it has any.

    They wait for work by spinning for some milliseconds: threads of our own would get half of a
    core after each of PyTorch's operators, and so would its threads after ours.
    """
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    parallel = _gomp(callback, ctypes.c_void_p)
    if parallel is None:
        return None

    def run(take: Callable[[], None], threads: int) -> None:
        own, others, ended = threading.get_ident(), iter(range(threads - 1)), False

        def start(_: None) -> None:
            nonlocal ended
            # This thread is always one of them, as Ctrl-C reaches no other.
            is_own = threading.get_ident() == own
            if is_own or next(others, None) is not None:
                take()
            # Python handles no signal between this assignment and the end.
            ended = ended or is_own

        # All of PyTorch's threads, as a smaller team would end the others.
        parallel(callback(start), None, torch.get_num_threads(), 0)
        if not ended:
            # Nothing but a signal's handler raises outside of `take`, and ctypes ignores it.
            raise KeyboardInterrupt

    return run


def _gomp(function: Any, given: Any) -> Callable[[Any, Any, int, int], None] | None:
    """Return what starts PyTorch's OpenMP threads, for a function and what it is given."""
    if not torch.backends.openmp.is_available():
        return None
    try:
        # Looked up through PyTorch's library, as others load an OpenMP of their own.
        library = ctypes.CDLL(torch._C.__file__)  # noqa: SLF001 - its path alone
        kind = ctypes.CFUNCTYPE(None, function, given, ctypes.c_uint, ctypes.c_uint)
        return kind(("GOMP_parallel", library))
    except (AttributeError, OSError):
        return None


@cache
def _gomp_of_code() -> Callable[[Any, Any, int, int], None] | None:
    """Return what starts PyTorch's OpenMP threads for machine code and its packed arguments."""
    return _gomp(ctypes.c_void_p, ctypes.c_char_p)


def call_in_threads(kernel: Kernel, packed: bytes, threads: int) -> None:
    """Call a kernel in each thread with the same packed arguments, without Python in any."""
    if threads == 1:
        kernel.function(kernel.unused, kernel.unused, packed)
        return
    parallel = None if _is_forked else _gomp_of_code()
    if parallel is None:
        _in_own_pool(lambda: kernel.function(kernel.unused, kernel.unused, packed), threads)
    else:
        parallel(kernel.in_thread, packed, torch.get_num_threads(), 0)


_is_forked = False
_lock = threading.Lock()
_pools: dict[int, ThreadPoolExecutor] = {}


def _in_own_pool(take: Callable[[], None], threads: int) -> None:
    """Run a function in this thread and in others of our own."""
    futures: list[Future] = []
    try:
        with _lock:
            if threads not in _pools:
                _pools[threads] = ThreadPoolExecutor(threads - 1, thread_name_prefix="glasshead")
            for _ in range(threads - 1):
                futures.append(_pools[threads].submit(take))  # noqa: PERF401 - kept at Ctrl-C
        take()
    finally:
        _wait_for(futures)


def _wait_for(futures: Sequence[Future]) -> None:
    """Wait for work to end, at Ctrl-C, too: it writes to memory that is freed afterwards."""
    interrupt = None
    while True:
        try:
            wait(futures)
            break
        except KeyboardInterrupt as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt


def _forget() -> None:
    """Give up all threads in a forked child: they are gone, and a lock may be held by one.

    It would wait for those of OpenMP without end.
    """
    global _lock, _is_forked
    _lock, _is_forked = threading.Lock(), True
    _pools.clear()


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class _Shared(Generic[_Unit]):
    """Units of work that several threads take one by one.

    There is no lock, which Ctrl-C could leave held: each operation of a deque or a list is whole.
    """

    def __init__(self, units: Iterable[_Unit]) -> None:
        self._left = deque(units)
        self._finished: list[_Unit] = []

    @property
    def finished(self) -> int:
        """Return how many units are finished."""
        return len(self._finished)

    def each(self) -> Iterator[_Unit]:
        """Yield one unit after the other; one is finished when the next is asked for."""
        while True:
            try:
                unit = self._left.popleft()
            except IndexError:
                return
            yield unit
            self._finished.append(unit)

    def end(self) -> None:
        """End the iteration for all threads."""
        self._left.clear()


# The most scores of a block: a few megabytes, however long the text. The backward pass holds two
# blocks, and may take no more memory. On matrix tiles products take so little time that the scores
# have to stay in the L2 cache.
_FORWARD_NUMBERS, _BACKWARD_NUMBERS, _TILED_NUMBERS = 2**21, 2**20, 2**18
# Queries per block; fewer where the block's scores would not stay in cache.
_HEIGHT = 64


@dataclass(frozen=True)
class Schedule:
    """Division of the work into blocks of queries, stripes of blocks, and work items.

    Attributes:
        batch, heads, kv_heads, queries, keys: The sizes of the problem.
        width: The keys of a panel.
        height: The queries of a block.
        rows: Of which the height is a multiple.
        across: The most keys that a block spans, in whole panels.
        stripes: In how many parts the queries are divided.
        threads: How many take part.
        tiled: Whether products of bfloat16 are computed on matrix tiles.
        operations: Of the products, by which the work is divided.
    """

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    width: int
    height: int
    rows: int
    across: int
    stripes: int
    threads: int
    tiled: bool
    operations: int = field(compare=False)

    @classmethod
    def forward(cls, problem: LoweredProblem) -> "Schedule":
        """Divide the work of a forward pass."""
        tiled = takes_tiles(problem)
        numbers = _TILED_NUMBERS if tiled else _FORWARD_NUMBERS
        return cls.of(problem, numbers=numbers, shares=4, tiled=tiled)

    @classmethod
    def backward(cls, problem: LoweredProblem) -> "Schedule":
        """Divide the work of a backward pass."""
        tiled = takes_tiles(problem)
        return cls.of(problem, numbers=_BACKWARD_NUMBERS, shares=1, tiled=tiled)

    @classmethod
    def of(
        cls, problem: LoweredProblem, *, numbers: int, shares: int, tiled: bool = False
    ) -> "Schedule":
        """Divide the work of a problem.

        Args:
            problem: The tensors, with the bounds of each query.
            numbers: The most scores of a block.
            shares: The least number of work items per thread.
            tiled: Whether products of bfloat16 are computed on matrix tiles.
        """
        query, bounds = problem.query, problem.recipe.bounds
        batch, heads, queries, dim = query.shape
        kv_heads, keys = problem.key.shape[1:3]
        width = columns_of(real_of(query).itemsize)
        seen = (bounds[:, 1] - bounds[:, 0]).clamp(min=0)
        operations = 4 * int(seen.sum()) * (batch // len(bounds)) * heads * dim
        threads = 1 if operations < _FEW else torch.get_num_threads()
        most = int(seen.max()) + _HEIGHT + 2 * width if seen.numel() else 1
        height = min(_HEIGHT, max(8, numbers // most), queries)
        rows = SQUARE if tiled else at_hand().tile.rows
        height = -(-height // rows) * rows
        sets, stripes = batch * kv_heads, 1
        if threads > 1:
            blocks = -(-queries // height)
            stripes = max(1, min(blocks, math.ceil(shares * threads / sets)))
        return cls(
            batch=batch,
            heads=heads,
            kv_heads=kv_heads,
            queries=queries,
            keys=keys,
            width=width,
            height=height,
            rows=rows,
            across=_across(bounds.numpy(), keys, height) + 2 * width,
            stripes=stripes,
            threads=min(threads, sets * stripes),
            tiled=tiled,
            operations=operations,
        )

    @property
    def group(self) -> int:
        """Return how many heads share keys."""
        return self.heads // self.kv_heads

    def padded(self, length: int) -> int:
        """Round a length up to whole panels."""
        return -(-length // self.width) * self.width


def takes_tiles(problem: LoweredProblem) -> bool:
    """Return whether the products of a problem are computed on matrix tiles.

    Of few queries most rows of a tile would be empty.
    """
    inputs = problem.query, problem.key, problem.value
    return (
        all(x is None or x.dtype == torch.bfloat16 for x in inputs)
        and 2 * problem.query.shape[2] >= SQUARE
        and matrix_tiles.refusal() is None
    )


def _across(bounds: np.ndarray, keys: int, height: int) -> int:
    """Return the most keys that a block of queries spans."""
    starts, stops = bounds.swapaxes(0, 1)
    seeing, firsts = starts < stops, range(0, bounds.shape[-1], height)
    low = np.minimum.reduceat(np.where(seeing, starts, keys), firsts, axis=-1)
    high = np.maximum.reduceat(np.where(seeing, stops, 0), firsts, axis=-1)
    return max(0, int((high - low).max()))
