"""Work that takes a while: its progress, its cancellation, and refusals in one sentence."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Refusal(ValueError):  # noqa: N818 - it is no fault of the studio's
    """What was asked for is not to be had.

    Attributes:
        status: As HTTP numbers it.
    """

    status = 400


class NotThere(Refusal):
    """There is no such thing, or none of it here."""

    status = 404


class NotYet(Refusal):
    """It takes something else that has to be made first."""

    status = 409


class Forgotten(Refusal):
    """It was there, and has to be sent again."""

    status = 410


class TooMuch(Refusal):
    """It is larger than the studio's limits."""

    status = 413


class Busy(Refusal):
    """As much is being done already as is allowed at once."""

    status = 429


# How often somebody is told, and whoever waits for a turn looks around, in seconds.
_EACH = 0.1


class Cancelled(Exception):  # noqa: N818 - nothing went wrong
    """Nobody waits for the work any more."""


class Work:
    """One piece of work, between the thread that does it and the one that waits for it.

    >>> work = Work()
    >>> work.tell("reading", 3, 7)
    >>> work.news()
    {'stage': 'reading', 'done': 3, 'of': 7}
    >>> work.cancel()
    >>> work.check()
    Traceback (most recent call last):
    glasshead.studio.work.Cancelled
    """

    def __init__(self) -> None:
        self._cancelled = threading.Event()
        self._news: dict[str, Any] | None = None
        self._told = 0.0

    def tell(self, stage: str, done: int, of: int) -> None:
        """How far it is, from the thread that does it.

        Args:
            stage: What is being done, a word of `words`.
            done, of: How much of it is done.

        Errors: `Cancelled` where nobody waits any more.
        """
        self.check()
        now = time.monotonic()
        stage_is_new = self._news is None or self._news["stage"] != stage
        if stage_is_new or done >= of or now - self._told >= _EACH:
            self._news, self._told = {"stage": stage, "done": done, "of": of}, now

    def news(self) -> dict[str, Any] | None:
        """How far it is, as told last."""
        return self._news

    def cancel(self) -> None:
        """Nobody waits any more."""
        self._cancelled.set()

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits any more."""
        return self._cancelled.is_set()

    def check(self) -> None:
        """Raise `Cancelled` where nobody waits any more."""
        if self.cancelled:
            raise Cancelled


class Slots:
    """How many pieces of work are done at once.

    >>> slots = Slots(1)
    >>> with slots.taken():
    ...     with slots.taken():
    ...         pass
    Traceback (most recent call last):
    glasshead.studio.work.Busy: 1 piece of work is under way already, ...
    """

    def __init__(self, count: int) -> None:
        self._count, self._free = count, threading.Semaphore(count)

    def take(self) -> None:
        """Take one of them, until `give_back`.

        Errors: `Busy` where all are taken.
        """
        if not self._free.acquire(blocking=False):
            pieces = (
                "1 piece of work is" if self._count == 1 else f"{self._count} pieces of work are"
            )
            raise Busy(f"{pieces} under way already, as many as are allowed at once: wait for one.")

    def give_back(self) -> None:
        """Give back one that was taken, from any thread."""
        self._free.release()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """One of them, while the block runs.

        Errors: `Busy` where all are taken.
        """
        self.take()
        try:
            yield
        finally:
            self.give_back()

    @contextmanager
    def turn(self, work: Work) -> Iterator[None]:
        """One of them, as soon as one is free, while the block runs.

        Errors: `Cancelled` where nobody waits for the work any more.
        """
        while not self._free.acquire(timeout=_EACH):
            work.check()
        try:
            work.check()
            yield
        finally:
            self.give_back()
