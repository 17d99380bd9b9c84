"""Background work: progress, cancellation, concurrency limits, and refusals with a status."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Refusal(ValueError):  # noqa: N818 - it is no fault of the studio's
    """A request that cannot be met, with the reason in one sentence.

    Attributes:
        status: As HTTP numbers it.
    """

    status = 400


class NotThere(Refusal):
    """There is no such thing, or none of it here."""

    status = 404


class NotYet(Refusal):
    """The request depends on something that has to be computed first."""

    status = 409


class Forgotten(Refusal):
    """The text is no longer stored, and has to be sent again."""

    status = 410


class TooMuch(Refusal):
    """The request exceeds the studio's limits."""

    status = 413


class Busy(Refusal):
    """All slots are taken."""

    status = 429


# Seconds between two progress reports, and between two checks while waiting for a slot.
_INTERVAL = 0.1


class Cancelled(Exception):  # noqa: N818 - nothing went wrong
    """Raised inside work that was cancelled, as nobody waits for its result any more."""


class Work:
    """Progress and cancellation of one job, shared by its thread and the one that waits.

    >>> work = Work()
    >>> work.tell("reading", 3, 7)
    >>> work.news()
    {'stage': 'reading', 'done': 3, 'of': 7}
    >>> work.cancel()
    >>> work.check()
    Traceback (most recent call last):
    glasshead.studio.background_jobs.Cancelled
    """

    def __init__(self) -> None:
        self._cancelled = threading.Event()
        self._progress: dict[str, Any] | None = None
        self._reported = 0.0

    def tell(self, stage: str, done: int, of: int) -> None:
        """Report progress, from the thread that does the work.

        Args:
            stage: Name of the stage, a key of `words`.
            done, of: Units of the stage that are done, and their total.

        Errors: `Cancelled` where the work was cancelled.
        """
        self.check()
        now = time.monotonic()
        stage_is_new = self._progress is None or self._progress["stage"] != stage
        if stage_is_new or done >= of or now - self._reported >= _INTERVAL:
            self._progress, self._reported = {"stage": stage, "done": done, "of": of}, now

    def follow(self, other: "Work | None") -> None:
        """Report the progress of another's work, which this one waits for.

        Errors: `Cancelled` where this work was cancelled.
        """
        self.check()
        if other is not None and (progress := other.news()) is not None:
            self.tell(**progress)

    def news(self) -> dict[str, Any] | None:
        """Return the progress that was reported last."""
        return self._progress

    def cancel(self) -> None:
        """Cancel the work: its next `tell` or `check` raises `Cancelled`."""
        self._cancelled.set()

    @property
    def cancelled(self) -> bool:
        """Whether the work was cancelled."""
        return self._cancelled.is_set()

    def check(self) -> None:
        """Raise `Cancelled` where the work was cancelled."""
        if self.cancelled:
            raise Cancelled


class Slots:
    """A semaphore that limits concurrent work, by refusing or by waiting.

    >>> slots = Slots(1)
    >>> with slots.taken():
    ...     with slots.taken():
    ...         pass
    Traceback (most recent call last):
    glasshead.studio.background_jobs.Busy: 1 piece of work is under way already, ...
    """

    def __init__(self, count: int) -> None:
        self._count, self._free = count, threading.Semaphore(count)

    def take(self) -> None:
        """Acquire a slot, to be released by `give_back`.

        Errors: `Busy` where all are taken.
        """
        if not self._free.acquire(blocking=False):
            pieces = (
                "1 piece of work is" if self._count == 1 else f"{self._count} pieces of work are"
            )
            raise Busy(f"{pieces} under way already, as many as are allowed at once: wait for one.")

    def give_back(self) -> None:
        """Release a slot, from any thread."""
        self._free.release()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Hold a slot while the block runs, without waiting for one.

        Errors: `Busy` where all are taken.
        """
        self.take()
        try:
            yield
        finally:
            self.give_back()

    @contextmanager
    def turn(self, work: Work) -> Iterator[None]:
        """Wait for a free slot and hold it while the block runs.

        Errors: `Cancelled` where the work is cancelled meanwhile.
        """
        while not self._free.acquire(timeout=_INTERVAL):
            work.check()
        try:
            work.check()
            yield
        finally:
            self.give_back()
