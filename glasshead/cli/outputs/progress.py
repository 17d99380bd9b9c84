"""Progress: a long run says that it is going on, where somebody can see it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

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
