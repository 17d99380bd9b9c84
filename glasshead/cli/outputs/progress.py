"""Progress: a long run says that it is going on, where somebody can see it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import Progress

_SECONDS = 2.0


@contextmanager
def going_on(doing: str) -> Iterator[None]:
    """Show in the terminal what is being done, from some seconds on until it is.

    It is written to standard error, so that a pipe does not take it; and not where that is no
    terminal.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    status = console.status(doing)
    timer = threading.Timer(_SECONDS, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        # It may be about to begin.
        timer.join()
        status.stop()


class Counter:
    """A bar in the terminal for work whose parts can be counted; nothing where there is none.

    >>> with Counter("evaluating") as counter:
    ...     counter.show(1, 2)
    """

    def __init__(self, doing: str, *, shown: bool = True) -> None:
        console = Console(stderr=True)
        hidden = not (shown and console.is_terminal)
        self._bar = Progress(console=console, transient=True, disable=hidden)
        self._task = self._bar.add_task(doing, total=None)

    def show(self, done: int, of: int) -> None:
        """Say how much is done."""
        self._bar.update(self._task, completed=done, total=of)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()
