"""Threads of our own, beside PyTorch's.

The pool belongs to one process, as a child that was forked has none of its parent's threads.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Unit = TypeVar("Unit")
_lock = threading.Lock()
_pools: dict[int, ThreadPoolExecutor] = {}


def share(units: Iterable[Unit], work: Callable[[Iterator[Unit]], None], threads: int) -> None:
    """Call `work` in each of the threads with what is left of the units; each is taken once.

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
    """How many threads are worth their start: one for little work, else as many as PyTorch uses."""
    return 1 if operations < 50_000_000 else torch.get_num_threads()


def _pool(threads: int) -> ThreadPoolExecutor:
    with _lock:
        if threads not in _pools:
            _pools[threads] = ThreadPoolExecutor(threads, thread_name_prefix="glasshead")
        return _pools[threads]


def _forget() -> None:
    """Begin anew in a child process, where the lock may be held by a thread that is not there."""
    global _lock  # noqa: PLW0603 - it is the module's
    _lock = threading.Lock()
    _pools.clear()


os.register_at_fork(after_in_child=_forget)


class _Shared(Iterator[Unit]):
    """An iterator that several threads take from."""

    def __init__(self, units: Iterable[Unit]) -> None:
        self._units = iter(units)
        self._lock = threading.Lock()

    def __next__(self) -> Unit:
        with self._lock:
            return next(self._units)

    def end(self) -> None:
        """Let no more be taken."""
        with self._lock:
            self._units = iter(())
