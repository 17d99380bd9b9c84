"""The blocks of watches and interventions, and what is entered and patched while one is open.

The first watch and the first intervention of a thread enter a mode, the last ones leave it and
restore what was patched, on every way out of their blocks. Blocks may be nested, and closed in any
order, in another thread or by the garbage collector.

There is no lock, for which a block that the garbage collector closes could wait for ever. Opening a
block comes before its patches, and closing them looks for open blocks before each.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from glasshead.watching.interception.circumstances import OpenBlocks
from glasshead.watching.interception.interfaces import Intervening, SharedMode
from glasshead.watching.interception.session import PATIENCE, THREADS, Patch, Session
from glasshead.watching.module_calls import calling
from glasshead.watching.watcher import Watcher


@contextmanager
def watching(
    session: Session, watcher: Watcher, patches: Sequence[Patch], mode: SharedMode
) -> Iterator[None]:
    """Open a watcher; each sees every call.

    Args:
        session: The session of the thread that the block belongs to.
        watcher: The watcher.
        patches: What it installs, unless it is installed already.
        mode: What the first watcher enters.
    """
    session.pending = PATIENCE
    watcher.observer.singles.undisturbed = session.undisturbed
    with _among(session, session.watches, watcher, patches, mode):
        yield


@contextmanager
def intervening(
    session: Session, intervener: Intervening, patches: Sequence[Patch], mode: SharedMode
) -> Iterator[None]:
    """Open an intervener, as `watching` opens a watcher."""
    with _among(session, session.interventions, intervener, patches, mode):
        yield


@contextmanager
def _among(
    session: Session,
    blocks: OpenBlocks[Any],
    entry: Any,
    patches: Sequence[Patch],
    mode: SharedMode,
) -> Iterator[None]:
    """Open a block; the last one restores what was there before.

    It is closed twice, as an interrupt may end the first closing at any line. What is closed
    already stays closed.
    """
    try:
        try:
            _open(session, blocks, entry, patches, mode)
            yield
        finally:
            _close(session, blocks, entry)
    finally:
        _close(session, blocks, entry)


def _open(
    session: Session,
    blocks: OpenBlocks[Any],
    entry: Any,
    patches: Sequence[Patch],
    mode: SharedMode,
) -> None:
    running = any(calling(one.names) is not None for one in session.watches.every)
    if not running:
        # What an interrupt has left of a call, in this block or an earlier one.
        session.forget_calls()
    if not (session.watches or session.interventions):
        session.leave_modes()
    for one in session.modes:
        one.step_back(late=running)
    THREADS.opened[entry] = session
    blocks.add(entry)
    _note_bits(session)
    PATCHES.install(patches)
    if blocks.mode is None:
        blocks.mode = mode
        mode.__enter__()


def _close(session: Session, blocks: OpenBlocks[Any], entry: Any) -> None:
    """Close a block, in this thread or in another; one that is closed stays so."""
    blocks.remove(entry)
    _note_bits(session)
    THREADS.opened.pop(entry, None)
    PATCHES.restore()
    mode = blocks.mode
    if mode is not None and not blocks:
        mode.closed = True
        if THREADS.session is session:
            mode.leave()
        blocks.mode = None
    if not session.watches:
        session.masks.forget()
    if THREADS.session is session and not (session.watches or session.interventions):
        session.forget_calls()
        session.leave_modes()


def _note_bits(session: Session) -> None:
    every = session.watches.every
    session.allows_other_bits = any(not one.choice.same_bits for one in every)


class _Patches:
    """The patches of the process, which only report to the session of the calling thread.

    Attributes:
        installed: Those that are installed.
    """

    def __init__(self) -> None:
        self.installed: list[Patch] = []

    def install(self, patches: Sequence[Patch]) -> None:
        """Patch the functions that models call until the last block is closed."""
        known = {one.place: one for one in [*self.installed]}
        for one in patches:
            if one.place not in known:
                self.installed.append(one)
            known.get(one.place, one).open()

    @contextmanager
    def originals(self) -> Iterator[None]:
        """Restore the functions that models call for the moment in which a compiler reads them."""
        patches = [*self.installed]
        try:
            for one in patches:
                one.close()
            yield
        finally:
            for one in patches if THREADS.opened else ():
                one.open()

    def restore(self) -> None:
        """Restore the functions that models call, unless a block is open."""
        for one in [*self.installed]:
            if not THREADS.opened:
                one.close()
        if not THREADS.opened:
            self.installed.clear()


PATCHES = _Patches()
