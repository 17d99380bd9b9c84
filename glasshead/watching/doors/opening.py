"""Opening: the doors are open while anybody watches or removes heads, and never after."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from glasshead.watching.ablater import Ablater
from glasshead.watching.active import ACTIVE
from glasshead.watching.doors.functions import by_any_name, functions
from glasshead.watching.doors.kernels import Kernels
from glasshead.watching.doors.mask_tensors import forget_masks
from glasshead.watching.doors.replacing import Replaced
from glasshead.watching.doors.rules import rules
from glasshead.watching.doors.transformers_models import interface
from glasshead.watching.watcher import Watcher

# What is replaced is replaced for all threads, and only who watches in its own is told.
_lock = threading.Lock()
_open: list[Replaced] = []
_threads = 0


@contextmanager
def opened(watcher: Watcher) -> Iterator[None]:
    """Let a watcher see what runs in this thread.

    Watchers may stand within each other, and leave in any order: each sees all.
    """
    # A block may be left in another thread, as that of a generator, and is this one's all the same.
    with _among(ACTIVE.watchers, watcher, ACTIVE.watching, Kernels()), ACTIVE.everywhere(watcher):
        yield


@contextmanager
def ablated(ablater: Ablater) -> Iterator[None]:
    """Let an ablater remove heads of what runs in this thread, as watchers see it."""
    with (
        _among(ACTIVE.ablaters, ablater, ACTIVE.ablating, by_any_name()),
        ACTIVE.anywhere(ablater),
    ):
        yield


@contextmanager
def _among(
    those: list[Any], one: Any, doors: ExitStack, mode: AbstractContextManager[Any]
) -> Iterator[None]:
    """One more of those; the first of them opens the doors, the last closes them."""
    if not those:
        doors.enter_context(_replaced())
        doors.enter_context(mode)
    those.append(one)
    try:
        yield
    finally:
        those.remove(one)
        if not those:
            doors.close()
            forget_masks()


@contextmanager
def _replaced() -> Iterator[None]:
    """Functions that models call, replaced until the last thread has left."""
    global _threads  # noqa: PLW0603 - as what is replaced is the whole process's
    with _lock:
        for one in (*functions(), *rules(), *interface()):
            # Another thread may have opened it, or have done so before transformers was imported.
            if not any(one.home is other.home and one.name == other.name for other in _open):
                one.open()
                _open.append(one)
        _threads += 1
    try:
        yield
    finally:
        with _lock:
            _threads -= 1
            while _open and not _threads:
                _open.pop().close()
