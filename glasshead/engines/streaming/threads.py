"""A thread pool beside PyTorch's, and the schedule that divides work among its threads."""

import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from glasshead.engines.streaming.kernels.processor import at_hand, columns_of
from glasshead.engines.streaming.operands import LoweredProblem, real_of

_Unit = TypeVar("_Unit")
_lock = threading.Lock()
_pools: dict[int, ThreadPoolExecutor] = {}


def share(units: Iterable[_Unit], work: Callable[[Iterator[_Unit]], None], threads: int) -> None:
    """Call `work` in each thread with an iterator over the remaining units; each is taken once.

    An error in one of the threads, or Ctrl-C here, ends the work of all and is raised here.
    """
    if threads == 1:
        work(iter(units))
        return
    left = _Shared(units)
    futures = [_pool(threads).submit(work, left) for _ in range(threads)]
    try:
        for future in futures:
            future.result()
    except BaseException:
        left.end()
        for future in futures:
            future.exception()
        raise


def threads_for(operations: int) -> int:
    """Return how many threads to use: one for little work, else as many as PyTorch uses."""
    return 1 if operations < 50_000_000 else torch.get_num_threads()


def _pool(threads: int) -> ThreadPoolExecutor:
    with _lock:
        if threads not in _pools:
            _pools[threads] = ThreadPoolExecutor(threads, thread_name_prefix="glasshead")
        return _pools[threads]


def _forget() -> None:
    """Reset the pools in a forked child, where the lock may be held by a thread that is gone."""
    global _lock  # noqa: PLW0603 - it is the module's
    _lock = threading.Lock()
    _pools.clear()


os.register_at_fork(after_in_child=_forget)


class _Shared(Iterator[_Unit]):
    """Thread-safe iterator shared by several threads."""

    def __init__(self, units: Iterable[_Unit]) -> None:
        self._units = iter(units)
        self._lock = threading.Lock()

    def __next__(self) -> _Unit:
        with self._lock:
            return next(self._units)

    def end(self) -> None:
        """End the iteration for all threads."""
        with self._lock:
            self._units = iter(())


# Queries per block; fewer where the block's scores would not stay in cache.
_HEIGHT = 64


class WorkItem(NamedTuple):
    """Unit of work for a thread: every n-th block of some heads of one batch row."""

    batch: int
    heads: range
    stripe: int


class Schedule:
    """Division of the work into blocks of queries, stripes of blocks, and work items.

    Args:
        problem: The tensors, with the bounds of each query.
        numbers: The most scores of a block.
        shares: The least number of work items per thread.
    """

    def __init__(self, problem: LoweredProblem, *, numbers: int, shares: int) -> None:
        query, bounds = problem.query, problem.recipe.bounds
        self.batch, self.heads, self.queries, dim = query.shape
        self.kv_heads, self.keys = problem.key.shape[1:3]
        self.group = self.heads // self.kv_heads
        real = real_of(query)
        self.width = columns_of(real.itemsize)
        seen = (bounds[:, 1] - bounds[:, 0]).clamp(min=0)
        pairs = int(seen.sum()) * (self.batch // len(bounds)) * self.heads
        self.threads = threads_for(4 * pairs * dim)
        across = int(seen.max()) + _HEIGHT + 2 * self.width if seen.numel() else 1
        height = min(_HEIGHT, max(8, numbers // across), self.queries)
        rows = at_hand().tile.rows
        self.height = -(-height // rows) * rows
        sets = self.batch * self.kv_heads
        blocks = -(-self.queries // self.height)
        self.stripes = 1
        if self.threads > 1:
            self.stripes = max(1, min(blocks, math.ceil(shares * self.threads / sets)))
        self.threads = min(self.threads, sets * self.stripes)

    def padded(self, length: int) -> int:
        """Round a length up to whole panels."""
        return -(-length // self.width) * self.width

    def units(self) -> list[WorkItem]:
        """Return all work items; the heads of one share their keys."""
        return [
            WorkItem(batch, range(head * self.group, (head + 1) * self.group), stripe)
            for batch in range(self.batch)
            for head in range(self.kv_heads)
            for stripe in range(self.stripes)
        ]

    def rows(self, stripe: int) -> tuple[int, int]:
        """Return the first row of a stripe, and the step to its next block."""
        return stripe * self.height, self.stripes * self.height

    def largest(self, bounds: np.ndarray) -> int:
        """Return the most keys that a block spans, in whole panels."""
        most = 0
        for first in range(0, self.queries, self.height):
            starts, stops = bounds[:, :, first : first + self.height].swapaxes(0, 1)
            seeing = starts < stops
            if seeing.any():
                low = np.where(seeing, starts, self.keys).min(-1)
                most = max(most, int((np.where(seeing, stops, 0).max(-1) - low).max()))
        return most + 2 * self.width
