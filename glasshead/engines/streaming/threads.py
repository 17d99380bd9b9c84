"""Threads that share the work of a pass: PyTorch's own where it lends them."""

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from typing import Any, Generic, TypeVar

import torch

from glasshead.engines.streaming.machine_code import Kernel

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
    began: list[int] = []

    def take() -> None:
        try:
            began.append(threading.get_ident())
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
    if threading.get_ident() not in began:
        # Ctrl-C before the first line, which OpenMP's callback passes over.
        raise KeyboardInterrupt
    if left.finished < len(units):
        raise RuntimeError(
            f"of {len(units)} units of work {left.finished} were finished: this is a bug."
        )


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
    """Call a kernel in each of several threads with the same packed arguments, without Python."""
    parallel = None if _is_forked else _gomp_of_code()
    if parallel is None:
        _in_own_pool(lambda: kernel.run(packed), threads)
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
