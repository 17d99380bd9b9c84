"""Studio: what is shown, and what is shared by all who look."""

import secrets
from pathlib import Path
from weakref import WeakSet

from glasshead.studio.limits import Limits
from glasshead.studio.readings import Readings
from glasshead.studio.subject import Subject
from glasshead.studio.texts import Texts
from glasshead.studio.work import Slots, Work


class Studio:
    """A subject, the texts that it is asked to read, and the limits of what is done at once.

    Args:
        folder: Of a run or a model; None: only what needs none.
        limits: What is refused beyond.

    Attributes:
        id: Another one each time, so that a page sees that the studio was started anew.
        slots: Of texts that are read; who finds none free is refused.
        turns: Of smaller pieces of work; who finds none free waits.
    """

    def __init__(self, folder: Path | None = None, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.subject = Subject(folder)
        self.texts = Texts(self.limits)
        self.readings = Readings(self.limits.memory)
        self.slots = Slots(self.limits.jobs)
        self.turns = Slots(self.limits.turns)
        self.id = secrets.token_hex(8)
        self._works: WeakSet[Work] = WeakSet()

    def begin(self) -> Work:
        """A new piece of work, which `end` cancels."""
        work = Work()
        self._works.add(work)
        return work

    def end(self) -> None:
        """Cancel all that is being done, as nobody will wait for it."""
        for work in tuple(self._works):
            work.cancel()
