"""A cache bounded by memory that computes each value once, however many threads ask for it."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from glasshead.studio.work import Busy, TooMuch, Work

# Seconds between two checks whether a thread that waits for another was cancelled.
_POLL = 0.05


class Sized(Protocol):
    """A value that knows its own size."""

    @property
    def size(self) -> int:
        """Bytes of memory."""
        ...


_T = TypeVar("_T", bound=Sized)


class SizedCache(Generic[_T]):
    """A least-recently-used cache of values, bounded by the bytes that they take.

    Args:
        budget: Bytes that the values may take, with those that are being computed.
    """

    def __init__(self, budget: int) -> None:
        self._budget, self._changed = budget, threading.Condition()
        self._values: OrderedDict[Hashable, _T] = OrderedDict()
        self._under_way: dict[Hashable, Work] = {}
        self._reserved = 0

    def __contains__(self, key: Hashable) -> bool:
        with self._changed:
            return key in self._values

    def get(self, key: Hashable, work: Work, make: Callable[[], _T]) -> _T:
        """Return the value of a key: cached, awaited from the thread computing it, or computed.

        Args:
            key: Identifies the value.
            work: Receives progress, and is checked for cancellation while waiting.
            make: Computes the value.

        Errors: those of `make`, and `Cancelled` where `work` was cancelled while waiting.
        """
        cached = self._cached_or_claimed(key, work)
        if cached is not None:
            return cached
        try:
            made = make()
            with self._changed:
                self._values[key] = made
                self._evict(0)
            return made
        finally:
            with self._changed:
                del self._under_way[key]
                self._changed.notify_all()

    @contextmanager
    def reserved(self, size: int) -> Iterator[None]:
        """Reserve bytes for a value while it is computed, evicting the least recently used.

        Errors: `TooMuch` where the budget is smaller than `size`, `Busy` where other computations
        have reserved it.
        """
        if size > self._budget:
            raise TooMuch(
                f"queries and keys of this text would take {size:,} bytes, and {self._budget:,} "
                f"are allowed: take a shorter text."
            )
        with self._changed:
            if size + self._reserved > self._budget:
                raise Busy("another text is being read, which takes the memory: wait for it.")
            self._evict(size)
            self._reserved += size
        try:
            yield
        finally:
            with self._changed:
                self._reserved -= size

    def _cached_or_claimed(self, key: Hashable, work: Work) -> _T | None:
        """Wait while another thread computes a key; return its value, or None to compute it."""
        with self._changed:
            while key not in self._values:
                if key not in self._under_way:
                    self._under_way[key] = work
                    return None
                if (progress := self._under_way[key].news()) is not None:
                    work.tell(**progress)
                self._changed.wait(_POLL)
                work.check()
            self._values.move_to_end(key)
            return self._values[key]

    def _evict(self, size: int) -> None:
        taken = sum(value.size for value in self._values.values())
        while self._values and taken + size + self._reserved > self._budget:
            _, evicted = self._values.popitem(last=False)
            taken -= evicted.size
