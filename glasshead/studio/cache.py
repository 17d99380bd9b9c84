"""A cache of what was read: one reading at a time, however many ask for it."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from glasshead.studio.work import Busy, TooMuch, Work

if TYPE_CHECKING:
    from glasshead.studio.views.reading import ModelPass


# How often who waits for another looks whether somebody still waits for him, in seconds.
_EACH = 0.05


class ModelPassCache:
    """The last readings that there is room for.

    Args:
        most: Bytes that they may take, with those that are under way.
    """

    def __init__(self, most: int) -> None:
        self._most, self._changed = most, threading.Condition()
        self._kept: OrderedDict[Hashable, ModelPass] = OrderedDict()
        self._under_way: dict[Hashable, Work] = {}
        self._reserved = 0

    def __contains__(self, key: Hashable) -> bool:
        with self._changed:
            return key in self._kept

    def get(self, key: Hashable, work: Work, make: Callable[[], "ModelPass"]) -> "ModelPass":
        """The reading of a key: the one that is kept, that of who is reading it, or a new one.

        Args:
            key: What is read, and how.
            work: Is told how far it is, and cancelled where nobody waits.
            make: Reads.

        Errors: those of `make`, and `Cancelled` where nobody waits any more.
        """
        known = self._known_or_begun(key, work)
        if known is not None:
            return known
        try:
            made = make()
            with self._changed:
                self._kept[key] = made
                self._make_room(0)
            return made
        finally:
            with self._changed:
                del self._under_way[key]
                self._changed.notify_all()

    @contextmanager
    def reserved(self, size: int) -> Iterator[None]:
        """Room for a reading while it is made; the one that was used longest ago goes first.

        Errors: `TooMuch` where there never is as much, `Busy` where others are taking it.
        """
        if size > self._most:
            raise TooMuch(
                f"queries and keys of this text would take {size:,} bytes, and {self._most:,} are "
                f"allowed: take a shorter text."
            )
        with self._changed:
            if size + self._reserved > self._most:
                raise Busy("another text is being read, which takes the memory: wait for it.")
            self._make_room(size)
            self._reserved += size
        try:
            yield
        finally:
            with self._changed:
                self._reserved -= size

    def _known_or_begun(self, key: Hashable, work: Work) -> "ModelPass | None":
        """What is kept, once nobody is reading it any more; None: it is ours to read now."""
        with self._changed:
            while key not in self._kept:
                if key not in self._under_way:
                    self._under_way[key] = work
                    return None
                if (news := self._under_way[key].news()) is not None:
                    work.tell(**news)
                self._changed.wait(_EACH)
                work.check()
            self._kept.move_to_end(key)
            return self._kept[key]

    def _make_room(self, size: int) -> None:
        taken = sum(one.size for one in self._kept.values())
        while self._kept and taken + size + self._reserved > self._most:
            _, forgotten = self._kept.popitem(last=False)
            taken -= forgotten.size
