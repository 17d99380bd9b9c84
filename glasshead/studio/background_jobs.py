"""Background work: progress, cancellation, limits, refusals, and a cache of computed values."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, Self, TypeVar

from glasshead.drawing.printable import one_line
from glasshead.message import Message


class Refusal(ValueError):  # noqa: N818 - it is no fault of the studio's
    """A request that cannot be met, with the reason in one sentence.

    Attributes:
        status: As HTTP numbers it.

    Args:
        sentence: As of `Message`, or a message itself.
        places: The values of its placeholders.

    >>> str(Refusal("there is no head {head}.", head=7))
    'there is no head 7.'
    """

    status = 400

    def __init__(self, sentence: str, /, **places: object) -> None:
        super().__init__(sentence if isinstance(sentence, Message) else Message(sentence, **places))

    @classmethod
    def of(cls, error: Exception) -> Self:
        """Return a refusal that says what an error does, in one short line."""
        return cls(Message.joined("", [one_line(str(error))]))


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
    >>> work.report("reading", 3, 7)
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

    def report(self, stage: str, done: int, of: int) -> None:
        """Report progress, from the thread that does the work.

        Args:
            stage: Name of the stage, a key of `words`.
            done, of: Units of the stage that are done, and their total.

        Errors: `Cancelled` if the work was cancelled.
        """
        self.check()
        now = time.monotonic()
        stage_is_new = self._progress is None or self._progress["stage"] != stage
        if stage_is_new or done >= of or now - self._reported >= _INTERVAL:
            self._progress, self._reported = {"stage": stage, "done": done, "of": of}, now

    def follow(self, other: "Work | None") -> None:
        """Report the progress of another's work, which this one waits for.

        Errors: `Cancelled` if this work was cancelled.
        """
        self.check()
        if other is not None and (progress := other.news()) is not None:
            self.report(**progress)

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
        """Raise `Cancelled` if the work was cancelled."""
        if self.cancelled:
            raise Cancelled


class Slots:
    """A semaphore that limits concurrent work, by refusing or by waiting.

    >>> slots = Slots(1)
    >>> with slots.taken():
    ...     with slots.taken():
    ...         pass
    Traceback (most recent call last):
    glasshead.studio.background_jobs.Busy: the limit of concurrent tasks is 1, ...
    """

    def __init__(self, count: int) -> None:
        self._count, self._free = count, threading.Semaphore(count)

    def take(self) -> None:
        """Acquire a slot, to be released by `give_back`.

        Errors: `Busy` if all are taken.
        """
        if not self._free.acquire(blocking=False):
            raise Busy(
                "the limit of concurrent tasks is {count}, and it is reached. Wait for one of "
                "them to end.",
                count=self._count,
            )

    def give_back(self) -> None:
        """Release a slot, from any thread."""
        self._free.release()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Hold a slot while the block runs, without waiting for one.

        Errors: `Busy` if all are taken.
        """
        self.take()
        try:
            yield
        finally:
            self.give_back()

    @contextmanager
    def turn(self, work: Work) -> Iterator[None]:
        """Wait for a free slot and hold it while the block runs.

        Errors: `Cancelled` if the work is cancelled meanwhile.
        """
        while not self._free.acquire(timeout=_INTERVAL):
            work.check()
        try:
            work.check()
            yield
        finally:
            self.give_back()


# Seconds between two calls of `wait`, by which a thread that waits for another can give up.
_POLL = 0.02

_T = TypeVar("_T")


class Cache(Generic[_T]):
    """A thread-safe cache, from which the least recently used values go first.

    Args:
        limit: Largest total size of the values; a larger one is returned, but not stored.
        size_of: Size of a value; if not given it is 1, so that `limit` counts values.

    >>> cache = Cache(2)
    >>> for name in "abacb":
    ...     value = cache.get(name, lambda: print("computed", name) or name.upper())
    computed a
    computed b
    computed c
    computed b
    >>> len(cache), cache.find("a"), cache.find("b")
    (2, None, 'B')
    """

    def __init__(self, limit: int, size_of: Callable[[_T], int] = lambda _: 1) -> None:
        self.limit = limit
        self._size_of, self._changed = size_of, threading.Condition()
        self._values: OrderedDict[Any, _T] = OrderedDict()
        self._under_way: dict[Hashable, Work | None] = {}
        self._reserved = 0

    def __contains__(self, key: Hashable) -> bool:
        with self._changed:
            return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    @property
    def size(self) -> int:
        """Total size of the values."""
        with self._changed:
            return sum(map(self._size_of, self._values.values()))

    def find(self, key: Hashable) -> _T | None:
        """Return the value of a key, or None."""
        with self._changed:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def get(
        self,
        key: Hashable,
        make: Callable[[], _T],
        wait: Callable[[Work | None], object] | None = None,
        work: Work | None = None,
    ) -> _T:
        """Return the value of a key: cached, awaited from the thread computing it, or computed.

        An error of `make` is raised in the thread that called it; threads that waited try again.

        Args:
            key: Identifies the value.
            make: Computes the value.
            wait: Called every few milliseconds while another thread computes the value, with the
                `work` of that one; may raise, to give up.
            work: Given to the `wait` of other threads.
        """
        with self._changed:
            while key in self._under_way:
                self._changed.wait(_POLL)
                if wait is not None and key in self._under_way:
                    wait(self._under_way[key])
            cached = self.find(key)
            if cached is not None:
                return cached
            self._under_way[key] = work
        try:
            value = make()
            self.put(key, value)
            return value
        finally:
            with self._changed:
                del self._under_way[key]
                self._changed.notify_all()

    def put(self, key: Hashable, value: _T) -> None:
        """Store a value."""
        if self._size_of(value) > self.limit:
            return
        with self._changed:
            self._values[key] = value
            self._values.move_to_end(key)
            self._evict(0)

    def drop(self, is_gone: Callable[[Any], bool]) -> None:
        """Drop the values of the keys for which `is_gone` returns True."""
        with self._changed:
            for key in [key for key in self._values if is_gone(key)]:
                del self._values[key]

    def _evict(self, size: int) -> None:
        """Drop values until there is room for one of this size."""
        taken = self.size
        while self._values and taken + size + self._reserved > self.limit:
            _, evicted = self._values.popitem(last=False)
            taken -= self._size_of(evicted)


class Sized(Protocol):
    """A value that knows its own size."""

    @property
    def size(self) -> int:
        """Bytes of memory."""
        ...


_S = TypeVar("_S", bound=Sized)


class SizedCache(Cache[_S]):
    """A cache of values that know their size, in which room can be reserved for another.

    Args:
        limit: Bytes that the values may take, with those that are being computed.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(limit, lambda value: value.size)

    @contextmanager
    def reserved(self, size: int) -> Iterator[None]:
        """Reserve bytes for a value while it is computed, evicting the least recently used.

        Errors: `TooMuch` if the limit is smaller than `size`, `Busy` if other computations
        have reserved it.
        """
        if size > self.limit:
            raise TooMuch(
                "queries and keys of a text may take at most {limit:,} bytes, but this text needs "
                "{size:,}. Choose a shorter text.",
                size=size,
                limit=self.limit,
            )
        with self._changed:
            if size + self._reserved > self.limit:
                raise Busy("another text is being read, which takes the memory. Wait for it.")
            self._evict(size)
            self._reserved += size
        try:
            yield
        finally:
            with self._changed:
                self._reserved -= size
