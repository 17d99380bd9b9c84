"""Train a translator: its parallel texts and their batches, settings, objective and job."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glasshead.message import Message
from glasshead.models import Translator, TranslatorConfig
from glasshead.tasks.data.batches import by_length, held_out_places, pad, split
from glasshead.tasks.data.columns import Columns, check_columns, found_columns
from glasshead.tasks.data.files import Allowance, ending, shown
from glasshead.tasks.data.tables import TABLES, read_rows, rows_of
from glasshead.tasks.data.texts import read_lines
from glasshead.tasks.job import Job, Prepared, made_tokenizer
from glasshead.tasks.run_settings import AUTO, MODERN, Preset, RunData, RunSettings, digest, typed
from glasshead.tasks.tokenizers.tokenizer import Tokenizer
from glasshead.tasks.training.task import IGNORED, CrossEntropyObjective
from glasshead.tasks.validated import BatchTokens, Column, Generated, Vocabulary, validated

if TYPE_CHECKING:
    from glasshead.tasks.data.sentences import Pair


@validated
class TranslateData(RunData):
    """Data settings of a translator: files, columns, tokenizer and batches.

    Without files, generated German and English sentences are used.

    Attributes:
        source: The column of tables that holds the source text; "auto" finds it by its name, else
            by its cells.
        target: The column that holds its translation.
        tokenizer: "bpe", "wordpiece" or "words", trained on both languages together.
        vocabulary: Maximum vocabulary size, at most 2²⁰.
        lowercase: Whether all texts are lowercased.
        batch_tokens: Maximum tokens of a batch on each side, including padding.
        made_up: Number of generated pairs, at most 10⁶.
        pairs: Number of training pairs.

    Errors: a ValueError or TypeError that names the invalid setting.
    """

    found: ClassVar[tuple[str, ...]] = ("sha256", "pairs")

    source: Column = AUTO
    target: Column = AUTO
    tokenizer: Literal["bpe", "wordpiece", "words"] = "bpe"
    vocabulary: Vocabulary = 8000
    lowercase: bool = False
    batch_tokens: BatchTokens = 3000
    made_up: Generated = 20_000
    pairs: int | None = None


# Texts with their translations.
Pairs = list[tuple[str, str]]


def read_pairs(files: Sequence[str], source: str = "source", target: str = "target") -> Pairs:
    r"""Read pairs from tables (.jsonl, .csv, .tsv), or from text files aligned line by line.

    Two text files are a source and its translation; four are two such pairs of files, and so on.
    Each may be packed (.gz, .xz).

    Args:
        files: File names.
        source: The column of tables that holds the source text.
        target: The column that holds its translation.

    Errors: an OSError if a file does not exist or cannot be read; a ValueError that names the
    file and the line if it does not hold pairs.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     german, english = f"{folder}/train.de", f"{folder}/train.en"
    ...     _ = Path(german).write_text("Guten Morgen\nDanke\n")
    ...     _ = Path(english).write_text("Good morning\nThank you\n")
    ...     read_pairs([german, english])
    [('Guten Morgen', 'Good morning'), ('Danke', 'Thank you')]
    """
    texts, tables = _kinds(files)
    if len(texts) % 2:
        raise ValueError(
            "text files must come in pairs, of texts and of their translations, got "
            f"{len(texts)}, with {shown(Path(texts[-1]))} alone. Name the other too, or a table "
            f"({', '.join(TABLES)}) that has both."
        )
    allowance = Allowance()
    pairs = [
        pair
        for names in zip(texts[::2], texts[1::2], strict=True)
        for pair in _lines(*names, allowance)
    ]
    for table in tables:
        pairs += ((text, other) for text, other in read_rows(table, [source, target], allowance))
    return pairs


def place_of(
    files: Sequence[str], number: int, source: str = "source", target: str = "target"
) -> str:
    """Return the file and the line of a pair of `read_pairs`, counted from 1."""
    texts, tables = _kinds(files)
    for file in texts[::2]:
        count = len(read_lines(file))
        if number <= count:
            return f"{shown(Path(file))}, line {number}"
        number -= count
    for table in tables:
        for line, _ in rows_of(Path(table), asked=(source, target)):
            number -= 1
            if not number:
                return f"{shown(Path(table))}, line {line}"
    return f"text {number}"


def _kinds(files: Sequence[str]) -> tuple[list[str], list[str]]:
    """Divide files into text files and tables."""
    tables = [file for file in files if ending(Path(file)) in TABLES]
    return [file for file in files if file not in tables], tables


def _lines(source: str, target: str, allowance: Allowance) -> Pairs:
    texts, translations = read_lines(source, allowance), read_lines(target, allowance)
    if len(texts) != len(translations):
        few = source if len(texts) < len(translations) else target
        least = min(len(texts), len(translations))
        raise ValueError(
            f"{shown(Path(few))} ends after line {least}: expected as many lines in "
            f"{shown(Path(source))} ({len(texts):,}) as in {shown(Path(target))} "
            f"({len(translations):,}). Give each text its translation."
        )
    return list(zip(texts, translations, strict=True))


class PairBatches:
    """Tokenized pairs in batches of similar length, regrouped each epoch.

    The decoder's input is the translation after the start token, its target the translation with
    the end token.

    Args:
        tokenizer: The tokenizer of both languages.
        pairs: Texts with their translations.
        tokens: Maximum tokens of a batch on each side, including padding.
        seed: Random seed of the batches.
    """

    def __init__(self, tokenizer: Tokenizer, pairs: Pairs, tokens: int, seed: int = 0) -> None:
        self._tokenizer, self._tokens, self._seed = tokenizer, tokens, seed
        self.sources = tokenizer.encode_batch([text for text, _ in pairs])
        self.targets = tokenizer.encode_batch([text for _, text in pairs])
        self._lengths = [
            max(len(source), len(target) + 1)
            for source, target in zip(self.sources, self.targets, strict=True)
        ]

    @property
    def longest(self) -> int:
        """Number of tokens of the longest side of a pair."""
        return max(self._lengths)

    def batches(self, epoch: int) -> list[list[int]]:
        """Return the indices of the pairs in each batch of an epoch, deterministically."""
        return by_length(self._lengths, self._tokens, self._seed, epoch)

    def collate(self, indices: Sequence[int]) -> dict[str, Int[Tensor, "..."]]:
        """Collate pairs to `source` with `lengths`, decoder input `target`, and `answers`."""
        tokenizer = self._tokenizer
        sources = [self.sources[index] for index in indices]
        targets = [self.targets[index] for index in indices]
        return {
            "source": pad(sources, tokenizer.pad_id),
            "lengths": torch.tensor([len(source) for source in sources]),
            "target": pad([[tokenizer.start_id, *target] for target in targets], tokenizer.pad_id),
            "answers": pad([[*target, tokenizer.end_id] for target in targets], IGNORED),
        }

    def count(self, indices: Sequence[int]) -> int:
        """Return the number of target tokens."""
        return sum(len(self.targets[index]) + 1 for index in indices)


_USUAL = Columns({"source": "source", "target": "target"})
# Number of generated pairs that are held out.
_HELD_OUT = 400


@dataclass(frozen=True, eq=False)
class ParallelCorpus:
    """Pairs split into a training and a held-out part.

    Attributes:
        training: Pairs to train on.
        held_out: Pairs for validation.
        empty: Number of pairs dropped, as one side is empty.
        columns: The columns of tables that were read.
    """

    training: Pairs
    held_out: Pairs
    empty: int = 0
    columns: Columns = _USUAL

    @property
    def found(self) -> dict[str, Any]:
        """Facts about the data that a run records: `sha256`, `pairs` and the columns."""
        sides = [
            [pair[side] for pair in part]
            for part in (self.training, self.held_out)
            for side in (0, 1)
        ]
        return {"sha256": digest(*sides), "pairs": len(self.training), **self.columns.names}


def read_corpus(data: TranslateData) -> ParallelCorpus:
    """Read the pairs of the files, or generate pairs, and split them.

    Without held-out files, a share of the pairs is held out, drawn at random with a fixed seed.

    Errors: an OSError or ValueError if a file cannot be read, or there are too few pairs.
    """
    if not data.files:
        return _generated(data)
    columns = found_columns(data.files, {"source": data.source, "target": data.target})
    check_columns((*data.files, *data.held_out_files), columns.names)
    read = read_pairs(data.files, **columns.names)
    pairs = _whole(read)
    if data.held_out_files:
        training, held_out = pairs, _whole(read_pairs(data.held_out_files, **columns.names))
    else:
        training, held_out = split(pairs, held_out_places(len(pairs), data.held_out))
    for name, part in (("train on", training), ("hold out", held_out)):
        if not part:
            raise ValueError(
                f"expected at least one pair of texts with words in both to {name}, got none. Add "
                "some."
            )
    return ParallelCorpus(training, held_out, len(read) - len(pairs), columns)


def make_tokenizer(data: TranslateData, corpus: ParallelCorpus) -> Tokenizer:
    """Train a tokenizer on both sides of the training pairs."""
    texts = [text for pair in corpus.training for text in pair]
    return made_tokenizer(
        data.tokenizer, texts, data.vocabulary, lowercase=data.lowercase, composed=True
    )


def _whole(pairs: Pairs) -> Pairs:
    return [pair for pair in pairs if all(text.strip() for text in pair)]


def _generated(data: TranslateData) -> ParallelCorpus:
    from glasshead.tasks.data.sentences import held_out, pairs

    return ParallelCorpus(_typed(pairs(data.made_up)), _typed(held_out(_HELD_OUT)))


# The punctuation that generated pairs lack, in turn: none of it in half of them.
_LACKING = ("", "", "", ",", ".?", ",.?")


def _typed(generated: "Sequence[Pair]") -> Pairs:
    """Return sentences with the punctuation that people type: all, no comma, no end mark, none.

    A translation has an end mark where its source has one. English has no comma here.
    """
    typed = []
    for pair, lacking in zip(generated, cycle(_LACKING), strict=False):
        without = str.maketrans("", "", lacking)
        typed.append((pair.german.translate(without), pair.english.translate(without)))
    return typed


# Muon converges in fewer steps than AdamW: Jordan et al. 2024.
_MUON = typed("optimizer=muon betas=[0.9,0.98] label_smoothing=0.1")

PRESETS = {
    "tiny": Preset(
        about="two minutes on two cores",
        data=typed("tokenizer=bpe vocabulary=1000 batch_tokens=1000"),
        model=MODERN
        | typed("context_length=64 d_model=96 num_heads=4 num_layers=2 num_decoder_layers=1")
        | typed("dropout=0.1"),
        training=_MUON
        | typed("steps=1000 learning_rate=5e-3 warmup=50 validate_every=200 save_every=200"),
    ),
    "small": Preset(
        about="an hour or so on two cores",
        data=typed("tokenizer=bpe vocabulary=8000 lowercase=true batch_tokens=3000"),
        model=MODERN
        | typed("context_length=256 d_model=256 num_heads=4 num_layers=3 d_hidden=512")
        | typed("dropout=0.25"),
        training=_MUON
        | typed("steps=2385 learning_rate=3e-3 warmup=200 validate_every=159 save_every=80"),
    ),
    "base": Preset(
        about="for a GPU: of the size of the base model of Vaswani et al. 2017",
        data=typed("tokenizer=bpe vocabulary=32000 batch_tokens=25000"),
        model=MODERN | typed("context_length=512 d_model=512 num_heads=8 num_layers=6 dropout=0.1"),
        training=_MUON
        | typed("steps=50000 learning_rate=2e-3 warmup=1000 validate_every=1000 save_every=500")
        | typed("patience=10"),
    ),
}


class TranslateSettings(RunSettings):
    """Settings of a translator's training run: data, model and training.

    >>> TranslateSettings.from_preset("small", ["steps=500", "d_model=64"]).training.steps
    500
    """

    task = "translate"
    data_kind = TranslateData
    config_kind = TranslatorConfig
    presets = PRESETS


class TranslateObjective(CrossEntropyObjective[Translator]):
    """Cross-entropy, -Σ_t ln p(y_t | y_0 … y_{t-1}, x), in nats, with label smoothing.

    Args: as of `CrossEntropyObjective`.

    Source: Vaswani et al. 2017, section 5.4, for the smoothing.
    """

    def logits(self, batch: dict[str, Tensor]) -> Float[Tensor, "batch length vocab"]:
        """Return the logits of the next token at each position of the translation."""
        return self.model(batch["source"], batch["lengths"], batch["target"])

    def metrics(self, sums: dict[str, float]) -> dict[str, float]:
        """Return the loss in nats per token, the perplexity, and the token accuracy."""
        metrics = super().metrics(sums)
        perplexity = math.exp(min(metrics["loss"], 700.0))
        return {"loss": metrics["loss"], "perplexity": perplexity, "accuracy": metrics["accuracy"]}


def prepare(
    settings: TranslateSettings, corpus: ParallelCorpus, tokenizer: Tokenizer
) -> Prepared[TranslateSettings]:
    """Build the untrained model and the batches of pairs.

    Errors: a ValueError if a text is longer than the model's context, or than a batch.
    """
    config = settings.model_config(vocab_size=tokenizer.vocab_size)
    tokens, seed = settings.data.batch_tokens, settings.training.seed
    source = PairBatches(tokenizer, corpus.training, tokens, seed)
    held_out = PairBatches(tokenizer, corpus.held_out, tokens)
    for part in (source, held_out):
        for name, room in (("context_length", config.context_length), ("batch_tokens", tokens)):
            if part.longest > room:
                raise ValueError(
                    f"{name} must be at least {part.longest}, the tokens of the longest text, got "
                    f"{room}. Raise it, or omit that text."
                )
    places = {"count": len(corpus.training), "held_out": len(corpus.held_out)}
    about: list[str] = [Message("{count:,} pairs to train on, {held_out:,} held out", **places)]
    if corpus.empty:
        about = [
            Message(
                "{count:,} pairs to train on, {held_out:,} held out, {empty:,} with an empty side "
                "omitted",
                **places,
                empty=corpus.empty,
            )
        ]
    if corpus.columns.about:
        about.append(corpus.columns.about)
    return Prepared(
        settings=settings,
        config=config,
        task=TranslateObjective(Translator(config), settings.training.label_smoothing),
        source=source,
        held_out=held_out,
        about=Message.joined("\n", about),
    )


TRANSLATE = Job(
    Message("A translator"), TranslateSettings, read_corpus, make_tokenizer, prepare, Translator
)
