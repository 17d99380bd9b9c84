"""Train a classifier: its labeled texts and their batches, settings, objective and job."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from glasshead.message import Message
from glasshead.models import Classifier, ClassifierConfig
from glasshead.models.config import closest
from glasshead.tasks.data.batches import by_length, held_out_places, pad, split
from glasshead.tasks.data.columns import Columns, check_columns, found_columns
from glasshead.tasks.data.files import Allowance, shown
from glasshead.tasks.data.tables import read_rows, rows_of
from glasshead.tasks.job import (
    Job,
    Prepared,
    TokenizerChoice,
    chosen_tokenizer,
    made_tokenizer,
)
from glasshead.tasks.run_settings import (
    AUTO,
    MODERN,
    Preset,
    RunData,
    RunSettings,
    digest,
    typed,
)
from glasshead.tasks.tokenizers.tokenizer import Tokenizer
from glasshead.tasks.training.task import CrossEntropyObjective
from glasshead.tasks.validated import (
    BatchTokens,
    Column,
    Generated,
    Texts,
    Vocabulary,
    Whole,
    validated,
)


@validated
class ClassifyData(RunData):
    """Data settings of a classifier: files, columns, tokenizer and batches.

    Without files, generated reviews are used. Long texts are truncated to their first and last
    tokens, which say most about the topic.

    Attributes:
        text: The column that holds the text; "auto" finds it by its name, else by its cells.
        label: The column that holds the label, or "auto".
        tokenizer: "words", "bpe" or "wordpiece", trained on the texts; "auto" chooses by them.
        vocabulary: Maximum vocabulary size, at most 2²⁰.
        lowercase: Whether texts are lowercased, as their language does it.
        first: Tokens read from the beginning of a text.
        last: Tokens read from the end of a longer text.
        batch_tokens: Maximum tokens of a batch, including padding.
        blocks: Number of runs of neighboring texts that make up the held-out share, for files
            whose neighbors are related, as reviews of one film; 0: texts are drawn one by one.
        made_up: Number of generated reviews, at most 10⁶.
        answers: The labels.
        texts: Number of training texts.

    Errors: a ValueError or TypeError that names the invalid setting.

    Source: Sun et al. 2019 (How to fine-tune BERT for text classification), section 5.3.1, for the
    first and the last tokens.
    """

    found: ClassVar[tuple[str, ...]] = ("sha256", "answers", "texts")

    text: Column = AUTO
    label: Column = AUTO
    tokenizer: Literal["auto", "words", "bpe", "wordpiece"] = AUTO
    vocabulary: Vocabulary = 30_000
    lowercase: bool = True
    first: Annotated[Whole, Field(ge=1, le=2**24)] = 200
    last: Annotated[Whole, Field(ge=0, le=2**24)] = 200
    batch_tokens: BatchTokens = 6000
    blocks: Annotated[Whole, Field(ge=0, le=10**6)] = 0
    made_up: Generated = 10_000
    answers: Texts = ()
    texts: int | None = None


# A text and its label.
Labeled = tuple[str, str]


def read_labelled(
    files: Sequence[str],
    text: str = "text",
    label: str = "label",
    known: Collection[str] | None = None,
) -> list[Labeled]:
    r"""Read labeled texts from tables (.jsonl, .csv, .tsv; also .gz and .xz).

    Args:
        files: File names.
        text: The column that holds the text.
        label: The column that holds the label; a number is read as text.
        known: The allowed labels; None: any.

    Errors: an OSError if a file does not exist or cannot be read; a ValueError that names the
    file, and the line of a row that is malformed or has another label.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "reviews.csv"
    ...     _ = file.write_text("text,label\nNot bad at all.,good\n")
    ...     read_labelled([str(file)])
    [('Not bad at all.', 'good')]
    """
    labeled, allowance = [], Allowance()
    for file in files:
        rows: list[Labeled] = read_rows(file, [text, label], allowance)  # type: ignore[assignment]
        if known is not None:
            _check_known(file, rows, (text, label), known)
        labeled += rows
    return labeled


def _check_known(
    file: str, rows: Sequence[Labeled], columns: tuple[str, str], known: Collection[str]
) -> None:
    for place, (_, label) in enumerate(rows):
        if label not in known:
            line, _ = next(islice(rows_of(Path(file), asked=columns), place, None))
            raise ValueError(
                f"{shown(Path(file))}, line {line}: expected a {_spoken(columns[1])} of the "
                f"training texts, got {label!r}{closest(label, known)}"
            )


def _spoken(column: str) -> str:
    """Return what a label is called in a sentence, by the name of its column, if it has one."""
    return "label" if column.isdecimal() else column


class LabelledBatches:
    """Tokenized labeled texts in batches of similar length, regrouped each epoch.

    Args:
        tokenizer: The tokenizer.
        labeled: Texts with their labels.
        data: The labels, and how texts are truncated.
        seed: Random seed of the batches.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        labeled: Sequence[Labeled],
        data: ClassifyData,
        seed: int = 0,
    ) -> None:
        self._pad, self._tokens, self._seed = tokenizer.pad_id, data.batch_tokens, seed
        self.texts = encoded(tokenizer, [text for text, _ in labeled], data)
        numbers = {answer: number for number, answer in enumerate(data.answers)}
        self.labels = [numbers[label] for _, label in labeled]
        self._lengths = [max(1, len(text)) for text in self.texts]

    def batches(self, epoch: int) -> list[list[int]]:
        """Return the indices of the texts in each batch of an epoch, deterministically."""
        return by_length(self._lengths, self._tokens, self._seed, epoch)

    def collate(self, indices: Sequence[int]) -> dict[str, Int[Tensor, "..."]]:
        """Collate texts to `tokens` with their `lengths`, and `answers`."""
        return {
            **collated([self.texts[index] for index in indices], self._pad),
            "answers": torch.tensor([self.labels[index] for index in indices]),
        }

    def count(self, indices: Sequence[int]) -> int:
        """Return the number of answers."""
        return len(indices)


def encoded(tokenizer: Tokenizer, texts: Sequence[str], data: ClassifyData) -> list[list[int]]:
    """Tokenize texts and truncate long ones to their first and last tokens."""
    return [shortened(tokens, data) for tokens in tokenizer.encode_batch(texts)]


def shortened(tokens: list[int], data: ClassifyData) -> list[int]:
    """Truncate a long text to its first and last tokens."""
    if len(tokens) <= data.first + data.last:
        return tokens
    return tokens[: data.first] + tokens[len(tokens) - data.last :]


def collated(texts: Sequence[Sequence[int]], value: int) -> dict[str, Int[Tensor, "..."]]:
    """Pad token rows to one tensor, and return it with their lengths."""
    # An empty text takes one padding token, and has length 0.
    return {
        "tokens": pad([text or [value] for text in texts], value),
        "lengths": torch.tensor([len(text) for text in texts]),
    }


_USUAL = Columns({"text": "text", "label": "label"})
# Number of generated reviews that are held out.
_HELD_OUT = 1000


@dataclass(frozen=True, eq=False)
class LabelledCorpus:
    """Labeled texts split into a training and a held-out part.

    Attributes:
        training: Texts to train on.
        held_out: Texts for validation.
        columns: The columns that were read.
        tokenizer: The tokenizer that was chosen for the texts.
    """

    training: list[Labeled]
    held_out: list[Labeled]
    columns: Columns = _USUAL
    tokenizer: TokenizerChoice | None = None

    @property
    def answers(self) -> tuple[str, ...]:
        """The labels, sorted."""
        return tuple(sorted({label for _, label in self.training}))

    @property
    def found(self) -> dict[str, Any]:
        """Facts about the data that a run records, with the columns and the kind of tokenizer."""
        parts = [
            [row[of] for row in part] for part in (self.training, self.held_out) for of in (0, 1)
        ]
        chosen = {} if self.tokenizer is None else {"tokenizer": self.tokenizer.kind}
        return {
            "sha256": digest(*parts),
            "answers": self.answers,
            "texts": len(self.training),
            **self.columns.names,
            **chosen,
        }


def read_corpus(data: ClassifyData) -> LabelledCorpus:
    """Read the labeled texts of the files, or generate reviews, split them, choose a tokenizer.

    Without held-out files, a share of the texts is held out: drawn at random with a fixed seed, or
    taken from the end of each of `blocks` blocks.

    Errors: an OSError or ValueError if a file cannot be read, there is only one label, or a
    held-out label does not occur in training.
    """
    corpus = _of_files(data) if data.files else _generated(data)
    if data.tokenizer != AUTO:
        return corpus
    texts = [text for text, _ in corpus.training]
    chosen = chosen_tokenizer(texts, data.vocabulary, lowercase=data.lowercase)
    return dataclasses.replace(corpus, tokenizer=chosen)


def _of_files(data: ClassifyData) -> LabelledCorpus:
    found = found_columns(data.files, {"text": data.text, "label": data.label})
    check_columns((*data.files, *data.held_out_files), found.names)
    columns = (found.names["text"], found.names["label"])
    rows = read_labelled(data.files, *columns)
    labels = {label for _, label in rows}
    if len(labels) < 2:
        raise ValueError(
            f"a classifier needs texts of at least two values of {_spoken(columns[1])}, got "
            f"{labels.pop()!r} alone in {', '.join(data.files)}. Add some, or choose the column "
            "with --set label=COLUMN."
        )
    if data.held_out_files:
        apart = read_labelled(data.held_out_files, *columns, known=labels)
        return LabelledCorpus(rows, apart, found)
    training, apart = split(rows, _held_out(len(rows), data))
    for label in sorted(labels - {label for _, label in training}):
        raise ValueError(
            f"{', '.join(data.files)} has too few texts of the {_spoken(columns[1])} {label!r}: "
            "all were held out. Add some, or set a smaller held_out."
        )
    return LabelledCorpus(training, apart, found)


def make_tokenizer(data: ClassifyData, corpus: LabelledCorpus) -> Tokenizer:
    """Train a tokenizer on the training texts."""
    texts = [text for text, _ in corpus.training]
    chosen = corpus.tokenizer or TokenizerChoice(data.tokenizer, data.vocabulary)
    return made_tokenizer(chosen.kind, texts, chosen.vocabulary, lowercase=data.lowercase)


def _held_out(count: int, data: ClassifyData) -> set[int]:
    """Return the indices of the held-out texts."""
    if not data.blocks:
        return held_out_places(count, data.held_out)
    most = max(1, round(count * data.held_out))
    blocks = min(data.blocks, most)
    ends = [count * (block + 1) // blocks for block in range(blocks)]
    # Sizes differ by at most one, and sum to the share.
    sizes = [most * (block + 1) // blocks - most * block // blocks for block in range(blocks)]
    return {
        place for end, size in zip(ends, sizes, strict=True) for place in range(end - size, end)
    }


def _generated(data: ClassifyData) -> LabelledCorpus:
    from glasshead.tasks.data.reviews import held_out, reviews

    return LabelledCorpus(
        [(review.text, review.label) for review in reviews(data.made_up)],
        [(review.text, review.label) for review in held_out(_HELD_OUT)],
    )


PRESETS = {
    "tiny": Preset(
        about="a minute on two cores",
        data=typed("vocabulary=1000 first=64 last=0 batch_tokens=1500"),
        model=MODERN | typed("context_length=64 d_model=64 num_heads=4 num_layers=2 dropout=0.1"),
        training=typed("steps=1000 learning_rate=1e-3 warmup=100")
        | typed("validate_every=200 save_every=200"),
    ),
    "small": Preset(
        about="some minutes on two cores, for texts of hundreds of words",
        data=typed("vocabulary=20000 first=400 last=400 batch_tokens=12800 blocks=50"),
        # Norms above the embeddings of rare words, which so stay as quiet as they are rare.
        model=typed("positions=rotary context_length=800 d_model=64 d_hidden=64 num_heads=4")
        | typed("num_layers=1 norm_eps=0.1 dropout=0.2 embedding_dropout=0.5 word_dropout=0.6"),
        training=typed("steps=2200 learning_rate=1e-3 warmup=100")
        | typed("validate_every=275 save_every=275"),
    ),
    "base": Preset(
        about="for a GPU",
        data=typed("tokenizer=bpe vocabulary=32000 first=256 last=256 batch_tokens=32768"),
        model=MODERN
        | typed("context_length=512 d_model=512 num_heads=8 num_layers=6 dropout=0.2")
        | typed("word_dropout=0.1"),
        training=typed("steps=10000 learning_rate=5e-4 warmup=500")
        | typed("validate_every=500 save_every=500 patience=5"),
    ),
    "course": Preset(
        about="step 9 of the ladder, trained as in the course notebook, but with padding masked",
        data=typed(
            "tokenizer=words vocabulary=50002 first=200 last=0 batch_tokens=32800 held_out=0.1"
        ),
        model=typed("context_length=200 d_model=32 num_heads=2 num_layers=1 d_hidden=128")
        | typed("positions=sinusoidal norm=layer norm_eps=1e-6 order=post feed_forward=relu")
        | typed("qkv_bias=false dropout=0.0 pooling=max embedding_norm=true initial=torch"),
        training=typed("steps=1240 learning_rate=1e-3 minimum_learning_rate=1e-3")
        | typed("weight_decay=0.01 betas=[0.9,0.999] clip=none")
        | typed("validate_every=124 save_every=124"),
    ),
}


class ClassifySettings(RunSettings):
    """Settings of a classifier's training run: data, model and training.

    >>> ClassifySettings.from_preset("course", ["steps=500"]).model["d_model"]
    32
    """

    task = "classify"
    data_kind = ClassifyData
    config_kind = ClassifierConfig
    presets = PRESETS
    unknown: ClassVar[Mapping[str, int]] = {"vocab_size": 1, "num_answers": 2}


class ClassifyObjective(CrossEntropyObjective[Classifier]):
    """Cross-entropy of the labels, -Σ ln p(answer | text), in nats, with label smoothing.

    Args: as of `CrossEntropyObjective`.
    """

    def logits(self, batch: dict[str, Tensor]) -> Float[Tensor, "batch answers"]:
        """Return the logits of the labels of each text."""
        return self.model(batch["tokens"], batch["lengths"])


def prepare(
    settings: ClassifySettings, corpus: LabelledCorpus, tokenizer: Tokenizer
) -> Prepared[ClassifySettings]:
    """Build the untrained model and the batches of texts.

    Errors: a ValueError if truncated texts are longer than a batch or the model's context.
    """
    data = settings.data
    config = settings.model_config(vocab_size=tokenizer.vocab_size, num_answers=len(data.answers))
    read = data.first + data.last
    for name, room in (
        ("batch_tokens", data.batch_tokens),
        ("context_length", config.context_length),
    ):
        if read > room:
            raise ValueError(
                f"{name} must be at least first + last, {read}, got {room}. Raise it, or lower "
                "first and last."
            )
    seed = settings.training.seed
    about: list[str] = [
        Message(
            "{count:,} texts to train on, {held_out:,} held out, labeled {labels}",
            count=len(corpus.training),
            held_out=len(corpus.held_out),
            labels=Message.joined(" or ", data.answers),
        )
    ]
    if corpus.columns.about:
        about.append(corpus.columns.about)
    if corpus.tokenizer is not None:
        about.append(
            Message(
                "Tokenizer: {kind}, as {why}.",
                kind=corpus.tokenizer.kind,
                why=corpus.tokenizer.why,
            )
        )
    return Prepared(
        settings=settings,
        config=config,
        task=ClassifyObjective(Classifier(config), settings.training.label_smoothing),
        source=LabelledBatches(tokenizer, corpus.training, data, seed),
        held_out=LabelledBatches(tokenizer, corpus.held_out, data),
        about=Message.joined("\n", about),
    )


CLASSIFY = Job(
    Message("A classifier"), ClassifySettings, read_corpus, make_tokenizer, prepare, Classifier
)
