"""Ctrl-C, and the like: training ends after the step, saved."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):  # noqa: N818 - it is no error
    """Training was interrupted, and has been saved; its message says how to go on."""


class Interruption:
    """Whether somebody asked for the end.

    Attributes:
        asked: Whether this process was asked.
        ended: Whether it was asked twice.
    """

    def __init__(self) -> None:
        self.asked = self.ended = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen for Ctrl-C and for SIGTERM; a second one ends at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        older = {number: signal.getsignal(number) for number in _SIGNALS}
        self.listen()
        try:
            yield
        finally:
            for number, handler in older.items():
                signal.signal(number, handler)

    def listen(self) -> None:
        """Take the signals, which Lightning may have taken meanwhile."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                signal.signal(number, self._heard)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.asked:
            self.ended = True
            raise KeyboardInterrupt
        self.asked = True
        # What prints may be in the midst of printing.
        with suppress(OSError):
            os.write(2, b"\nEnding after this step, and saving; once more ends at once.\n")
