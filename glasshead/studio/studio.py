"""The studio: its subject, its limits, and the texts that were sent to it."""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakSet

from glasshead.studio.background_jobs import (
    Cache,
    Forgotten,
    Refusal,
    SizedCache,
    Slots,
    TooMuch,
    Work,
)
from glasshead.studio.subject import ModelPass, StudioSubject, check_place


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a studio; a request beyond one is refused in a sentence that names it.

    Attributes:
        sentence: Characters of a sentence in the step-by-step and alignment views.
        words: Words of such a sentence.
        text: Bytes of a text that is sent to be read.
        texts: Texts that are remembered; the least recently used is forgotten first.
        prompt: Tokens of a prompt that is typed.
        heads: Tokens of a text in the heads view.
        atlas: Tokens of a text in the atlas view.
        jobs: Texts read at the same time; further ones are refused.
        turns: Smaller jobs done at the same time; further ones wait.
        requests: Requests answered at the same time.
        patience: Timeout in seconds between two parts of a request.
        memory: Bytes that queries, keys and maps of one text may take.
    """

    sentence: int = 500
    words: int = 24
    text: int = 2**23
    texts: int = 32
    prompt: int = 256
    heads: int = 1024
    atlas: int = 2**17
    jobs: int = 2
    turns: int = 4
    requests: int = 64
    patience: float = 20.0
    memory: int = 2**32


class SentTexts:
    """Texts by name, the first 16 hexadecimal digits of their SHA-256.

    >>> texts = SentTexts(Limits())
    >>> name = texts.add("Once upon a time")
    >>> texts[name]
    'Once upon a time'
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._texts: Cache[str] = Cache(limits.texts)

    def add(self, text: str) -> str:
        """Store a text and return its name.

        Errors: a `Refusal` if it has no word or is too long.
        """
        # A lone surrogate cannot be encoded as UTF-8, so no response could return it.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        content = text.encode()
        if not text.strip():
            raise Refusal("Enter at least one word, or choose a text.")
        if len(content) > self._limits.text:
            raise TooMuch(
                "A text must have at most {most:,} bytes, but this text has {count:,}. Choose a "
                "shorter text.",
                most=self._limits.text,
                count=len(content),
            )
        name = hashlib.sha256(content).hexdigest()[:16]
        self._texts.put(name, text)
        return name

    def __getitem__(self, name: str) -> str:
        """Return the text of a name.

        Errors: `Forgotten` if there is no such text, or no longer.
        """
        text = self._texts.find(name)
        if text is None:
            raise Forgotten("this text is no longer here. Open it again.")
        return text


class Studio:
    """A subject, the texts sent to be read, and the limits of concurrent work.

    Args:
        folder: A run or model folder; None: only the views that need no model.
        limits: Limits on requests and on concurrent work.
        other_folders: Folders of further models and runs, to compare the first one with.
        tour: A tour that the page begins with, as of `read_tour`; None: it offers the built-in one.

    Attributes:
        subject: What the folder holds.
        others: What the further folders hold.
        id: A random identifier of this start, by which a page notices a restart.
        slots: Slots for reading texts; refused when none is free.
        turns: Slots for smaller jobs; these wait when none is free.
    """

    def __init__(
        self,
        folder: Path | None = None,
        limits: Limits | None = None,
        *,
        other_folders: Sequence[Path] = (),
        tour: dict[str, Any] | None = None,
    ) -> None:
        self.limits, self.tour = limits or Limits(), tour
        self.subject, self.other_folders = StudioSubject(folder), tuple(other_folders)
        self.others = tuple(map(StudioSubject, self.other_folders))
        self.texts = SentTexts(self.limits)
        self.readings: SizedCache[ModelPass] = SizedCache(self.limits.memory)
        self.slots = Slots(self.limits.jobs)
        self.turns = Slots(self.limits.turns)
        self.id = secrets.token_hex(8)
        self._works: WeakSet[Work] = WeakSet()

    def model(self, number: int) -> StudioSubject:
        """Return one of the models, counted from 0, which is the studio's subject.

        Errors: a `Refusal` if there is no such model.
        """
        every = (self.subject, *self.others)
        check_place("model", number, len(every))
        return every[number]

    def begin(self) -> Work:
        """Create a piece of work that `end` cancels."""
        work = Work()
        self._works.add(work)
        return work

    def end(self) -> None:
        """Cancel all work in progress."""
        for work in tuple(self._works):
            work.cancel()
