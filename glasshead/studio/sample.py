"""The text that a view begins with: one that a run has held out, or one of the studio's own."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from glasshead.tasks.data.reviews import held_out as held_out_reviews
from glasshead.tasks.data.sentences import HELD_OUT
from glasshead.tasks.data.stories import held_out as held_out_stories
from glasshead.tasks.run_folder import RunFolder

Origin = Literal["given", "held_out", "own", "unreadable"]

_STORY = (
    "Once upon a time there was a little girl named Lily. She loved to play outside in the park. "
    "One day she saw a big red ball. She wanted to play with it, but it was too high."
)
_REVIEW = "The film was not bad at all. I would watch it again, and so would my sister."
# Characters of a text to begin with, of which no view has too many.
_LONGEST = 400
# Held-out texts among which one with a word is looked for.
_LOOKED_AT = 100


@dataclass(frozen=True)
class Sample:
    """The text that a view begins with.

    Attributes:
        text: The text.
        origin: "given" by the user; "held_out", of the run; "own", the studio's, as a model has no
            data of its own; or "unreadable", the studio's, as the run's data cannot be read.
        why: Why the data cannot be read.
    """

    text: str
    origin: Origin
    why: str = ""


def sample_of(folder: Path, kind: str) -> Sample:
    """Choose the text to begin with.

    Args:
        folder: The folder of a run, or a model.
        kind: The task of the run, or "model".

    >>> sample_of(Path("models/gpt2"), "model").text[:16]
    'Once upon a time'
    """
    if kind == "model":
        return Sample(_STORY, "own")
    try:
        return Sample(_held_out(folder, kind), "held_out")
    except (OSError, ValueError) as error:
        own = {"translate": HELD_OUT.german, "classify": _REVIEW}.get(kind, _STORY)
        return Sample(own, "unreadable", str(error))


def _held_out(folder: Path, task: str) -> str:
    """Return the beginning of a text that a run has held out.

    Errors: an OSError or ValueError where its files cannot be read, or are not those any more that
    it was trained on.
    """
    job = _job(task)
    data = job.settings.from_run(RunFolder(folder)).data
    if not data.files:
        return _generated(task)
    corpus = job.read(data)
    if corpus.found["sha256"] != data.sha256:
        raise ValueError(
            f"the texts of {', '.join(data.files)} are not those any more that the run was trained "
            f"on: put them back, or choose a text."
        )
    texts = [one if task == "write" else one[0] for one in islice(corpus.held_out, _LOOKED_AT)]
    is_cut = task == "write" and not data.held_out_files and len(corpus.training) == 1
    return beginning([_from_a_line(text) for text in texts] if is_cut else texts)


def _job(task: str) -> Any:
    if task == "classify":
        from glasshead.tasks.classify import CLASSIFY

        return CLASSIFY
    if task == "translate":
        from glasshead.tasks.translate import TRANSLATE

        return TRANSLATE
    from glasshead.tasks.write import WRITE

    return WRITE


def _generated(task: str) -> str:
    """Return a generated text that no run is trained on."""
    if task == "translate":
        return HELD_OUT.german
    return held_out_reviews(1)[0].text if task == "classify" else held_out_stories(1)[0]


def _from_a_line(text: str) -> str:
    """Drop what remains of a line, or of a word, where a text was cut in two."""
    found = re.search(r"\n\s*", text[:_LONGEST]) or re.search(r"\s+", text[:_LONGEST])
    return text if found is None else text[found.end() :]


def beginning(texts: Iterable[str], longest: int = _LONGEST) -> str:
    """Return the first text with a word, cut after a sentence or a word where it is long.

    Errors: a ValueError where none has a word.

    >>> beginning([" ", "The sun. The moon and the stars."], longest=14)
    'The sun.'
    >>> beginning(["The sun and the moon."], longest=14)
    'The sun and'
    """
    text = next((text.strip() for text in texts if text.strip()), None)
    if text is None:
        raise ValueError("the held-out texts of the run have no word: choose a text.")
    if len(text) <= longest:
        return text
    for end in (r"(?<=[.!?])\s|(?<=[。！？])", r"\s"):
        ends = [found.start() for found in re.finditer(end, text[: longest + 1])]
        cut = max((at for at in ends if at <= longest), default=0)
        if cut >= longest // 2:
            return text[:cut].rstrip()
    return text[:longest]
