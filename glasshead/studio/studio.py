"""The studio: what is shown, its limits, and the texts that were sent to it."""

import hashlib
import secrets
import threading
from collections import OrderedDict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from weakref import WeakSet

from glasshead import __version__
from glasshead.drawing.page import LEVELS, hexadecimal, paint
from glasshead.studio.cache import ModelPassCache
from glasshead.studio.subject import StudioSubject
from glasshead.studio.views.names import VIEWS, samples, why_not
from glasshead.studio.work import Forgotten, Refusal, Slots, TooMuch, Work


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is refused beyond, each with a sentence that says so.

    Attributes:
        sentence: Characters of a sentence that is computed step by step, or translated.
        words: Words of it.
        text: Bytes of a text that is sent to be read.
        texts: Texts that are remembered; the one that was used longest ago is forgotten first.
        heads: Tokens of a text whose heads are drawn.
        atlas: Tokens of a text whose atlas is drawn.
        jobs: Texts that are read at once.
        turns: Smaller pieces of work that are done at once; more of them wait for their turn.
        requests: Requests that are answered at once.
        patience: Seconds within which more of a request has to come.
        memory: Bytes that queries, keys and maps of one text may take.
    """

    sentence: int = 500
    words: int = 24
    text: int = 2**23
    texts: int = 32
    heads: int = 1024
    atlas: int = 2**17
    jobs: int = 2
    turns: int = 4
    requests: int = 64
    patience: float = 20.0
    memory: int = 2**32


class SentTexts:
    """Texts by name; the same text has the same name in every studio.

    >>> texts = SentTexts(Limits())
    >>> name = texts.add("Once upon a time")
    >>> texts[name]
    'Once upon a time'
    """

    def __init__(self, limits: Limits) -> None:
        self._limits, self._lock = limits, threading.Lock()
        self._texts: OrderedDict[str, str] = OrderedDict()

    def add(self, text: str) -> str:
        """Remember a text, and give its name.

        Errors: a `Refusal` where it has no word or is too long.
        """
        # Half a pair of surrogates is no character, and no answer could give it back.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        content = text.encode()
        if not text.strip():
            raise Refusal("a text takes a word at least, and this has none: write or choose one.")
        if len(content) > self._limits.text:
            raise TooMuch(
                f"a text takes at most {self._limits.text:,} bytes, and this has "
                f"{len(content):,}: cut it."
            )
        name = hashlib.sha256(content).hexdigest()[:16]
        with self._lock:
            self._texts[name] = text
            self._texts.move_to_end(name)
            while len(self._texts) > self._limits.texts:
                self._texts.popitem(last=False)
        return name

    def __getitem__(self, name: str) -> str:
        """The text of a name.

        Errors: `Forgotten` where it is not, or no longer, there.
        """
        with self._lock:
            if name not in self._texts:
                raise Forgotten("this text is no longer here: open it again.")
            self._texts.move_to_end(name)
            return self._texts[name]


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
        self.subject = StudioSubject(folder)
        self.texts = SentTexts(self.limits)
        self.readings = ModelPassCache(self.limits.memory)
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


LANGUAGES = {
    "en": "English",
    "tr": "Türkçe",
    "es": "Español",
    "zh-Hant": "繁體中文",
    "zh-Hans": "简体中文",
}


def about(studio: Studio) -> dict[str, Any]:
    """What is open, the views with why there is none of them, limits, languages and colours.

    A folder that is none, or has vanished, is told in `problem`.

    >>> told = about(Studio())
    >>> told["subject"], told["views"]["steps"], told["views"]["training"]
    ({'name': None, 'kind': None, 'problem': None}, None, 'training.none')
    """
    subject, kind, problem = studio.subject, None, None
    try:
        kind = subject.kind
    except (ValueError, OSError) as error:
        problem = str(error)
    return {
        "version": __version__,
        "id": studio.id,
        "subject": {"name": subject.name, "kind": kind, "problem": problem},
        "views": {view: why_not(view, kind) for view in VIEWS},
        "samples": samples(kind),
        "limits": asdict(studio.limits),
        "languages": LANGUAGES,
        "palette": palette(),
    }


def palette() -> dict[str, list[str]]:
    """The colour map of weights, from none to the largest, on light and on dark paper."""
    return {
        paper: [hexadecimal(paint(place, dark=paper == "dark")) for place in range(LEVELS + 1)]
        for paper in ("light", "dark")
    }
