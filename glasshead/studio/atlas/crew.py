"""Threads that compute side by side, each on one core.

Where PyTorch shares one operation among threads, these wait for each other after each, which takes
many times as long as the operation where other programs have the cores.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Work = TypeVar("Work")
Result = TypeVar("Result")
_lock = threading.Lock()
_crews: list[ThreadPoolExecutor] = []


def side_by_side(work: Callable[[Work], Result], parts: Iterable[Work]) -> Iterator[Result]:
    """The results of `work` for each of the parts, in their order, from a few threads.

    They are as many as PyTorch uses. What has not begun is left out where one of them raises, or
    nobody takes the next.

    >>> list(side_by_side(lambda number: number**2, range(5)))
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
