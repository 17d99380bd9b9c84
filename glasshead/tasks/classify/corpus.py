"""Corpus: labelled texts, some of them held out."""

from dataclasses import dataclass
from typing import Any

from glasshead.tasks.batching import shuffled
from glasshead.tasks.classify.data import ClassifyData
from glasshead.tasks.classify.labelled import Labelled, read_labelled
from glasshead.tasks.runs import digest
from glasshead.tasks.runs.tokenizers import made_tokenizer
from glasshead.tasks.tokenizing import Tokenizer

# How many made-up reviews are held out.
_MADE_UP = 1000


@dataclass(frozen=True, eq=False)
class Corpus:
    """What is trained on, and what is held out.

    Attributes:
        training: The labelled texts to train on.
        held_out: Those that are not.
    """

    training: list[Labelled]
    held_out: list[Labelled]

    @property
    def answers(self) -> tuple[str, ...]:
        """The labels that there are, in order."""
        return tuple(sorted({label for _, label in self.training}))

    @property
    def found(self) -> dict[str, Any]:
        """What they tell of the run's data."""
        parts = [
            [row[of] for row in part] for part in (self.training, self.held_out) for of in (0, 1)
        ]
        return {
            "sha256": digest(*parts),
            "answers": self.answers,
            "texts": len(self.training),
        }


def read_corpus(data: ClassifyData) -> Corpus:
    """The labelled texts of the files, or made-up reviews.

    Without files of their own to be held out, a share is, drawn at random and always the same, or
    at the end of each of so many blocks.

    Errors: an OSError or ValueError where a file cannot be read, there is one label alone, or one
    that is held out was never trained on.
    """
    if not data.files:
        return _made_up(data)
    columns = (data.text, data.label)
    rows = read_labelled(data.files, *columns)
    labels = {label for _, label in rows}
    if len(labels) < 2:
        raise ValueError(
            f"{', '.join(data.files)} has the {data.label} {labels.pop()!r} alone: a classifier "
            f"takes texts of at least two; add some, or name the right column by --set "
            f"label=COLUMN."
        )
    if data.held_out_files:
        return Corpus(rows, read_labelled(data.held_out_files, *columns, known=labels))
    apart = _held_out(len(rows), data)
    training = [row for place, row in enumerate(rows) if place not in apart]
    for label in sorted(labels - {label for _, label in training}):
        raise ValueError(
            f"{', '.join(data.files)} has too few texts of the {data.label} {label!r}: all were "
            f"held out; add some, or set a smaller held_out."
        )
    return Corpus(training, [rows[place] for place in sorted(apart)])


def make_tokenizer(data: ClassifyData, corpus: Corpus) -> Tokenizer:
    """A tokenizer that knows the texts to train on alone."""
    texts = [text for text, _ in corpus.training]
    return made_tokenizer(data.tokenizer, texts, data.vocabulary, lowercase=data.lowercase)


def _held_out(count: int, data: ClassifyData) -> set[int]:
    """The places of the texts that are held out."""
    if not data.blocks:
        order = [place for batch in shuffled(count, 1, 0, 0) for place in batch]
        return set(order[: max(1, round(count * data.held_out))])
    most = max(1, round(count * data.held_out))
    blocks = min(data.blocks, most)
    ends = [count * (block + 1) // blocks for block in range(blocks)]
    # Each has as many, or one more or less, so that together they are the share.
    sizes = [most * (block + 1) // blocks - most * block // blocks for block in range(blocks)]
    return {
        place for end, size in zip(ends, sizes, strict=True) for place in range(end - size, end)
    }


def _made_up(data: ClassifyData) -> Corpus:
    from glasshead.tasks.reviews import held_out, reviews

    return Corpus(
        [(review.text, review.label) for review in reviews(data.made_up)],
        [(review.text, review.label) for review in held_out(_MADE_UP)],
    )
