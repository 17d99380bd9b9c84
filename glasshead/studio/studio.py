"""The studio: its subject, its limits, the texts that were sent to it, and its views."""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from weakref import WeakSet

from glasshead import __version__
from glasshead.drawing.page import LEVELS, hexadecimal, paint
from glasshead.explanation.translations import Say
from glasshead.message import Message
from glasshead.studio.background_jobs import (
    Cache,
    Forgotten,
    Refusal,
    SizedCache,
    Slots,
    TooMuch,
    Work,
)
from glasshead.studio.subject import Kind, ModelPass, StudioSubject, check_place
from glasshead.tasks.run_folder import RunFolder


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

        Errors: a `Refusal` where it has no word or is too long.
        """
        # A lone surrogate cannot be encoded as UTF-8, so no response could return it.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        content = text.encode()
        if not text.strip():
            raise Refusal(Message("Enter at least one word, or choose a text."))
        if len(content) > self._limits.text:
            raise TooMuch(
                Message(
                    "The limit is {most:,} bytes, and this text has {count:,}: choose a shorter "
                    "text.",
                    most=self._limits.text,
                    count=len(content),
                )
            )
        name = hashlib.sha256(content).hexdigest()[:16]
        self._texts.put(name, text)
        return name

    def __getitem__(self, name: str) -> str:
        """Return the text of a name.

        Errors: `Forgotten` where there is no such text, or no longer.
        """
        text = self._texts.find(name)
        if text is None:
            raise Forgotten(Message("this text is no longer here: open it again."))
        return text


class Studio:
    """A subject, the texts sent to be read, and the limits of concurrent work.

    Args:
        folder: A run or model folder; None: only the views that need no model.
        limits: Limits on requests and on concurrent work.
        other_folders: Folders of further models and runs, to compare the first one with.

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
    ) -> None:
        self.limits = limits or Limits()
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

        Errors: a `Refusal` where there is no such model.
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


LANGUAGES = {
    "en": "English",
    "tr": "Türkçe",
    "es": "Español",
    "zh-Hant": "繁體中文",
    "zh-Hans": "简体中文",
}


VIEWS = ("prompt", "steps", "heads", "alignment", "atlas", "model", "picture", "training")
_OF: dict[str, tuple[Kind | None, ...]] = {
    "prompt": (None, "classify", "translate", "write", "model"),
    "steps": (None, "classify", "translate", "write", "model", "vision", "weights"),
    "heads": ("classify", "translate", "write", "model"),
    "alignment": ("translate",),
    "atlas": ("classify", "translate", "write", "model", "weights"),
    "model": ("classify", "translate", "write", "model"),
    "picture": ("vision",),
    "training": ("classify", "translate", "write"),
}


def why_not(view: str, kind: Kind | None) -> str | None:
    """Return the name of the string that says why a view is unavailable; None where it is not.

    >>> why_not("alignment", "write"), why_not("steps", None)
    ('alignment.none', None)
    """
    return None if kind in _OF[view] else f"{view}.none"


def first_view(subject: StudioSubject, kind: Kind | None) -> str:
    """Return the view that a page opens with: a prompt, and the heads of the model that reads it.

    >>> first_view(StudioSubject(), None)
    'prompt'
    """
    if kind is None or subject.folder is None:
        return "prompt"
    if kind in ("weights", "vision"):
        return "atlas" if kind == "weights" else "picture"
    # A run that has not validated yet has no model to read with.
    return "prompt" if kind == "model" or RunFolder(subject.folder).weights.exists() else "training"


def about(studio: Studio, say: Say | None = None) -> dict[str, Any]:
    """Describe a studio as JSON: its subject, views, limits, languages and colours.

    `models` are the names of all models, where there are several;
    `views` maps each view to None, or to the name of the string that says why it is unavailable;
    `first` is the view that the page opens with;
    `problem` says what is wrong with the folder, in the language of `say`.

    >>> told = about(Studio())
    >>> told["subject"], told["views"]["steps"], told["views"]["training"]
    ({'name': None, 'path': None, 'kind': None, 'problem': None}, None, 'training.none')
    """
    subject, kind, problem = studio.subject, None, None
    try:
        kind = subject.kind
    except (ValueError, OSError) as error:
        problem = str(error) if say is None else say.translated(error)
    return {
        "version": __version__,
        "id": studio.id,
        "subject": {
            "name": subject.label,
            "path": subject.name,
            "kind": kind,
            "problem": problem,
        },
        "models": _labels([subject, *studio.others]) if studio.others else [],
        "views": {view: why_not(view, kind) for view in VIEWS},
        "first": first_view(subject, kind),
        "limits": asdict(studio.limits),
        "languages": LANGUAGES,
        "palette": palette(),
    }


def _labels(subjects: Sequence[StudioSubject]) -> list[str]:
    """Return the labels of models; where several are alike, their paths."""
    labels = [str(each.label) for each in subjects]
    return [
        label if labels.count(label) == 1 else str(each.name)
        for label, each in zip(labels, subjects, strict=True)
    ]


def palette() -> dict[str, list[str]]:
    """Return the colour map of weights, from 0 to the largest, for light and dark pages."""
    return {
        paper: [hexadecimal(paint(place, dark=paper == "dark")) for place in range(LEVELS + 1)]
        for paper in ("light", "dark")
    }
