"""Labelled texts: read, split, batched."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from glasshead.models.config import closest
from glasshead.tasks.data.batches import by_length, pad, shuffled
from glasshead.tasks.data.files import Allowance, shown
from glasshead.tasks.data.tables import read_rows, rows_of
from glasshead.tasks.job import made_tokenizer
from glasshead.tasks.run_settings import RunData, digest
from glasshead.tasks.tokenizers.tokenizer import Tokenizer

TOKENIZERS = ("words", "bpe", "wordpiece")


@dataclass(frozen=True, kw_only=True)
class ClassifyData(RunData):
    """Which texts with which labels, in which tokens; without files, made-up reviews.

    Of a long text, the first and the last tokens are read: it says at its ends what it is about.

    Attributes:
        text: The column that holds the text.
        label: The column that holds what it is.
        tokenizer: "words", "bpe" or "wordpiece", made from the texts.
        vocabulary: How many tokens it makes, at most; 2²⁰ is the most.
        lowercase: Whether texts are put into small letters.
        first: How many tokens are read from the beginning of a text.
        last: How many from the end of a longer one.
        batch_tokens: How many tokens a batch takes at most, padding included.
        blocks: In how many runs of neighbouring texts the held-out share is taken, for files whose
            neighbours are of one thing, as reviews of one film; 0: each text is drawn by itself.
        made_up: How many reviews are made up, 10⁶ at most.
        answers: The labels that there are.
        texts: How many texts there are to train on.

    Errors: a ValueError or TypeError that names what is wrong.

    Source: Sun et al. 2019 (How to fine-tune BERT for text classification), section 5.3.1, for the
    first and the last tokens.
    """

    found: ClassVar[tuple[str, ...]] = ("sha256", "answers", "texts")

    text: str = "text"
    label: str = "label"
    tokenizer: str = "words"
    vocabulary: int = 30_000
    lowercase: bool = True
    first: int = 200
    last: int = 200
    batch_tokens: int = 6000
    blocks: int = 0
    made_up: int = 10_000
    answers: tuple[str, ...] = ()
    texts: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "answers", tuple(self.answers))
        self.check_kinds(TOKENIZERS, ("text", "label"))
        self.check_whole(("vocabulary", "first", "batch_tokens", "made_up"), least=1)
        self.check_whole(("last", "blocks"), least=0)


# A text, and its label.
Labelled = tuple[str, str]


def read_labelled(
    files: Sequence[str],
    text: str = "text",
    label: str = "label",
    known: Collection[str] | None = None,
) -> list[Labelled]:
    r"""The texts of tables (.jsonl, .csv, .tsv; also .gz and .xz) with their labels.

    Args:
        files: Their names.
        text: The column that holds the text.
        label: The column that holds the label; a number is the text that it is written as.
        known: The labels that there may be; None: any.

    Errors: an OSError where a file is not there or cannot be read; a ValueError that names the
    file, and the line of a row that is broken, or whose label is not known.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "reviews.csv"
    ...     _ = file.write_text("text,label\nNot bad at all.,good\n")
    ...     read_labelled([str(file)])
    [('Not bad at all.', 'good')]
    """
    labelled, allowance = [], Allowance()
    for file in files:
        rows: list[Labelled] = read_rows(file, [text, label], allowance)  # type: ignore[assignment]
        if known is not None:
            _check_known(file, rows, label, known)
        labelled += rows
    return labelled


def _check_known(file: str, rows: Sequence[Labelled], column: str, known: Collection[str]) -> None:
    for place, (_, label) in enumerate(rows):
        if label not in known:
            line, _ = next(islice(rows_of(Path(file)), place, None))
            raise ValueError(
                f"{shown(Path(file))}, line {line}: expected a {column} that there was in "
                f"training, and got {label!r}{closest(label, known)}"
            )


class LabelledBatches:
    """Labelled texts as tokens, in batches of similar length, anew in each epoch.

    Args:
        tokenizer: Makes tokens of texts.
        labelled: The texts, each with its label.
        data: Which labels there are, and how much of a text is read.
        seed: Of the batches.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        labelled: Sequence[Labelled],
        data: ClassifyData,
        seed: int = 0,
    ) -> None:
        self._pad, self._tokens, self._seed = tokenizer.pad_id, data.batch_tokens, seed
        self.texts = encoded(tokenizer, [text for text, _ in labelled], data)
        numbers = {answer: number for number, answer in enumerate(data.answers)}
        self.labels = [numbers[label] for _, label in labelled]
        self._lengths = [max(1, len(text)) for text in self.texts]

    def batches(self, epoch: int) -> list[list[int]]:
        """The texts of each batch, the same for the same epoch."""
        return by_length(self._lengths, self._tokens, self._seed, epoch)

    def collate(self, indices: Sequence[int]) -> dict[str, Int[Tensor, "..."]]:
        """`tokens` with their `lengths`, and the `answers`."""
        return {
            **collated([self.texts[index] for index in indices], self._pad),
            "answers": torch.tensor([self.labels[index] for index in indices]),
        }

    def count(self, indices: Sequence[int]) -> int:
        """How many answers there are."""
        return len(indices)


def encoded(tokenizer: Tokenizer, texts: Sequence[str], data: ClassifyData) -> list[list[int]]:
    """The tokens of texts that are read: the first ones and, of longer texts, the last ones."""
    return [shortened(tokens, data) for tokens in tokenizer.encode_batch(texts)]


def shortened(tokens: list[int], data: ClassifyData) -> list[int]:
    """What is read of a text."""
    if len(tokens) <= data.first + data.last:
        return tokens
    return tokens[: data.first] + tokens[len(tokens) - data.last :]


def collated(texts: Sequence[Sequence[int]], value: int) -> dict[str, Int[Tensor, "..."]]:
    """Tokens as one tensor, filled up with a value, and their lengths."""
    # A text without a token takes a place, which counts for nothing.
    return {
        "tokens": pad([text or [value] for text in texts], value),
        "lengths": torch.tensor([len(text) for text in texts]),
    }


# How many made-up reviews are held out.
_MADE_UP = 1000


@dataclass(frozen=True, eq=False)
class LabelledCorpus:
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


def read_corpus(data: ClassifyData) -> LabelledCorpus:
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
        return LabelledCorpus(rows, read_labelled(data.held_out_files, *columns, known=labels))
    apart = _held_out(len(rows), data)
    training = [row for place, row in enumerate(rows) if place not in apart]
    for label in sorted(labels - {label for _, label in training}):
        raise ValueError(
            f"{', '.join(data.files)} has too few texts of the {data.label} {label!r}: all were "
            f"held out; add some, or set a smaller held_out."
        )
    return LabelledCorpus(training, [rows[place] for place in sorted(apart)])


def make_tokenizer(data: ClassifyData, corpus: LabelledCorpus) -> Tokenizer:
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


def _made_up(data: ClassifyData) -> LabelledCorpus:
    from glasshead.tasks.data.reviews import held_out, reviews

    return LabelledCorpus(
        [(review.text, review.label) for review in reviews(data.made_up)],
        [(review.text, review.label) for review in held_out(_MADE_UP)],
    )
