"""Train a language model: its texts and their windows, settings, objective and job."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from glasshead.message import Message
from glasshead.models import LanguageModel, LanguageModelConfig
from glasshead.tasks.data.columns import check_columns
from glasshead.tasks.data.texts import TEXT_COLUMN, read_texts
from glasshead.tasks.job import Job, Prepared, made_tokenizer
from glasshead.tasks.run_settings import MODERN, Preset, RunData, RunSettings, digest, typed
from glasshead.tasks.tokenizers.pretrained import gpt2
from glasshead.tasks.tokenizers.tokenizer import Tokenizer
from glasshead.tasks.tokenizers.train_tokenizer import characters
from glasshead.tasks.training.task import IGNORED, CrossEntropyObjective
from glasshead.tasks.validated import Column, Generated, Vocabulary, Whole, validated
from glasshead.watching.analytics import repeated_random_tokens

# Tokens of a validation batch, no more than a training step of a large model.
_AT_ONCE = 8192


class Windows:
    """Windows of `length` tokens with next-token targets; an example's index is its position.

    Args:
        tokens: Token ids of the text.
        length: Tokens of a window.
        batch_size: Windows of a batch.
    """

    def __init__(self, tokens: Int[Tensor, " tokens"], length: int, batch_size: int) -> None:
        self.tokens = tokens
        self.length = length
        self.batch_size = batch_size
        self._within = torch.arange(length + 1)

    def collate(self, indices: Sequence[int]) -> dict[str, Int[Tensor, "windows length"]]:
        """Collate the windows at these positions to `tokens` and next-token `targets`."""
        places = torch.tensor(indices)[:, None] + self._within
        last = len(self.tokens) - 1
        windows = self.tokens[places.clamp(max=last)]
        targets = windows[:, 1:]
        if int(places[:, -1].max()) > last:
            targets = targets.masked_fill(places[:, 1:] > last, IGNORED)
        return {"tokens": windows[:, :-1], "targets": targets}

    def count(self, indices: Sequence[int]) -> int:
        """Return the number of targets."""
        last = len(self.tokens) - 1
        return sum(min(self.length, last - index) for index in indices)


class TrainingWindows(Windows):
    """Shuffled windows, cut at another offset in each epoch.

    Each token is seen once per epoch, except for remainders at both ends.

    Args:
        tokens, length, batch_size: As for `Windows`.
        seed: Random seed of the offsets and the order.

    >>> windows = TrainingWindows(torch.arange(100), length=7, batch_size=3, seed=0)
    >>> len(windows.batches(epoch=0)), windows.batches(0) == windows.batches(0)
    (4, True)
    """

    def __init__(
        self, tokens: Int[Tensor, " tokens"], length: int, batch_size: int, seed: int
    ) -> None:
        super().__init__(tokens, length, batch_size)
        self.seed = seed

    def batches(self, epoch: int) -> list[list[int]]:
        """Return the positions of the windows in each batch of an epoch, deterministically."""
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + epoch) % 2**63)
        spare = len(self.tokens) - self.length
        first = int(torch.randint(min(self.length, spare), (), generator=generator))
        count = (len(self.tokens) - 1 - first) // self.length
        places = (first + self.length * torch.randperm(count, generator=generator)).tolist()
        size = min(self.batch_size, count)
        return [places[i : i + size] for i in range(0, count - size + 1, size)]


# Random tokens before the first repetition: so many, up to a part of the window.
_SHORTEST, _LONGEST_PART = 2, 5


class RepeatingWindows(TrainingWindows):
    """Shuffled windows, and next to them in each batch random tokens that repeat.

    Only an earlier period predicts the next random token, so that heads learn to look it up. A row
    of random tokens is an index below 0, from which it is drawn.

    Args:
        tokens, length, seed: As for `TrainingWindows`.
        batch_size: Rows of a batch.
        repeats: Those of random tokens, fewer than `batch_size`.
        vocab_size: Tokens are drawn from 0 to vocab_size - 1.
        special: Tokens that are not drawn.

    Source: Olsson et al. 2022 (In-context learning and induction heads), for the random tokens.

    >>> windows = RepeatingWindows(
    ...     torch.arange(100), 11, batch_size=3, seed=0, repeats=2, vocab_size=97, special={0}
    ... )
    >>> *_, last = windows.batches(epoch=0)[0]
    >>> last < 0, windows.collate([last])["tokens"]
    (True, tensor([[...]]))
    """

    def __init__(
        self,
        tokens: Int[Tensor, " tokens"],
        length: int,
        batch_size: int,
        seed: int,
        *,
        repeats: int,
        vocab_size: int,
        special: Collection[int],
    ) -> None:
        super().__init__(tokens, length, batch_size - repeats, seed)
        self.repeats = repeats
        self.vocab_size = vocab_size
        self.special = special

    def batches(self, epoch: int) -> list[list[int]]:
        """Return the positions of the windows in each batch, then the rows of random tokens."""
        # No epoch has as many batches as there are tokens.
        first = epoch * len(self.tokens)
        return [
            [*places, *(-1 - self.repeats * (first + number) - row for row in range(self.repeats))]
            for number, places in enumerate(super().batches(epoch))
        ]

    def collate(self, indices: Sequence[int]) -> dict[str, Int[Tensor, "windows length"]]:
        """Collate windows and rows of random tokens."""
        texts = super().collate([max(0, index) for index in indices])
        batch = {name: rows.clone() for name, rows in texts.items()}
        for row, index in enumerate(indices):
            if index < 0:
                drawn = self._drawn(-index)
                batch["tokens"][row], batch["targets"][row] = drawn[:-1], drawn[1:]
        return batch

    def count(self, indices: Sequence[int]) -> int:
        """Return the number of targets."""
        of_texts = [index for index in indices if index >= 0]
        return super().count(of_texts) + self.length * (len(indices) - len(of_texts))

    def _drawn(self, number: int) -> Int[Tensor, " longer"]:
        """Draw a period, and repeat it over the window and its last target."""
        seed = (self.seed * 1_000_003 + number) % 2**63
        generator = torch.Generator().manual_seed(seed)
        known = self.vocab_size - len(self.special)
        most = max(_SHORTEST, min(self.length // _LONGEST_PART, known))
        period = int(torch.randint(_SHORTEST, most + 1, (), generator=generator))
        times = max(2, math.ceil((self.length + 1) / period))
        (row,) = repeated_random_tokens(
            self.vocab_size, period, seed=seed, times=times, avoid=self.special
        )
        return row[: self.length + 1]


class HeldOutWindows(Windows):
    """Consecutive windows from the first token to the last.

    Args:
        tokens: Token ids of the text.
        length: Tokens of a window.

    >>> HeldOutWindows(torch.arange(10), length=4).batches()
    [[0, 4, 8]]
    """

    def __init__(self, tokens: Int[Tensor, " tokens"], length: int) -> None:
        super().__init__(tokens, length, max(1, _AT_ONCE // length))

    def batches(self, epoch: int = 0) -> list[list[int]]:
        """Return the positions of the windows in each batch."""
        places = list(range(0, len(self.tokens) - 1, self.length))
        return [places[i : i + self.batch_size] for i in range(0, len(places), self.batch_size)]


@validated
class WriteData(RunData):
    """Data settings of a language model: files, tokenizer and batches.

    Without files, generated stories are used.

    Attributes:
        field: The column of tables that holds the text.
        tokenizer: "characters", "bpe" or "wordpiece", trained on the texts; or "gpt2".
        vocabulary: Maximum vocabulary size of bpe and wordpiece, at most 2²⁰.
        gpt2: The folder with GPT-2's encoder.json and vocab.bpe.
        stories: Number of generated stories, at most 10⁶.
        batch_size: Windows of `context_length` tokens per step.
        repeats: Those that are random tokens, repeated, which teach induction heads.
        texts: Number of training texts; several are each followed by the end token.

    Errors: a ValueError or TypeError that names the invalid setting.
    """

    found: ClassVar[tuple[str, ...]] = ("sha256", "texts")

    field: Annotated[Column | None, Field(description="the name of a column")] = None
    tokenizer: Literal["characters", "bpe", "wordpiece", "gpt2"] = "characters"
    vocabulary: Vocabulary = 4096
    gpt2: str | None = None
    stories: Generated = 20_000
    batch_size: Annotated[Whole, Field(ge=1, le=2**20)] = 12
    repeats: Annotated[Whole, Field(ge=0, le=2**20)] = 0
    texts: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.repeats >= self.batch_size:
            raise ValueError(
                f"repeats must be less than batch_size={self.batch_size}, got {self.repeats}."
            )
        if self.tokenizer == "gpt2" and not self.gpt2:
            raise ValueError(
                "tokenizer=gpt2 needs the folder with encoder.json and vocab.bpe. Add --set "
                "gpt2=FOLDER."
            )


@dataclass(frozen=True, eq=False)
class TextCorpus:
    """Texts split into a training and a held-out part.

    Attributes:
        training: Texts to train on.
        held_out: Texts for validation.
    """

    training: tuple[str, ...]
    held_out: tuple[str, ...]

    @property
    def found(self) -> dict[str, Any]:
        """Facts about the data that a run records: `sha256`, `texts`."""
        return {"sha256": digest(self.training, self.held_out), "texts": len(self.training)}


def read_corpus(data: WriteData) -> TextCorpus:
    """Read the texts of the files, or generate stories, and hold out the last share.

    Without held-out files, a single text is cut in two, and of several the last ones are held out.

    Errors: an OSError or ValueError if a file cannot be read, or there is too little text.
    """
    if not data.files:
        from glasshead.tasks.data.stories import held_out, stories

        return TextCorpus(
            tuple(stories(data.stories, seed=0)),
            tuple(held_out(max(1, round(data.stories * data.held_out)))),
        )
    files = (*data.files, *data.held_out_files)
    check_columns(files, {"field": data.field or TEXT_COLUMN}, alone=data.field is None)
    texts = read_texts(data.files, data.field)
    if data.held_out_files:
        return TextCorpus(tuple(texts), tuple(read_texts(data.held_out_files, data.field)))
    if len(texts) == 1:
        cut = int(len(texts[0]) * (1 - data.held_out))
        return TextCorpus((texts[0][:cut],), (texts[0][cut:],))
    cut = min(len(texts) - 1, round(len(texts) * (1 - data.held_out)))
    return TextCorpus(tuple(texts[:cut]), tuple(texts[cut:]))


def make_tokenizer(data: WriteData, corpus: TextCorpus) -> Tokenizer:
    """Load or train the tokenizer of the settings, on the training texts only.

    Characters are those of all texts, as an alphabet leaks nothing about the held-out part.

    Errors: an OSError or ValueError where GPT-2's files cannot be read.
    """
    if data.tokenizer == "gpt2":
        folder = Path(data.gpt2 or "")
        return gpt2(folder / "encoder.json", folder / "vocab.bpe")
    if data.tokenizer == "characters":
        return characters([*corpus.training, *corpus.held_out])
    return made_tokenizer(data.tokenizer, corpus.training, data.vocabulary)


@dataclass(frozen=True, eq=False)
class Tokens:
    """Concatenated texts as tokens.

    Attributes:
        ids: Token ids.
        characters: Number of characters of all tokens but the first, those that a model predicts.
    """

    ids: Int[Tensor, " tokens"]
    characters: int


def tokenized(tokenizer: Tokenizer, texts: Sequence[str]) -> Tokens:
    """Tokenize and concatenate texts; several are each followed by the end token."""
    encoded = tokenizer.encode_batch(texts)
    if len(texts) > 1:
        encoded = [[*tokens, tokenizer.end_id] for tokens in encoded]
    ids = [token for tokens in encoded for token in tokens]
    return Tokens(
        torch.tensor(ids, dtype=torch.int64),
        sum(map(len, texts)) - len(tokenizer.decode(ids[:1])),
    )


# Muon converges in fewer steps than AdamW: Jordan et al. 2024.
_MUON = typed("optimizer=muon betas=[0.9,0.99]")

PRESETS = {
    "tiny": Preset(
        about="two minutes on two cores",
        data=typed("tokenizer=bpe vocabulary=512 batch_size=8"),
        model=MODERN | typed("context_length=96 d_model=128 num_heads=4 num_layers=2 dropout=0.0"),
        training=_MUON
        | typed("steps=2200 learning_rate=5e-3 warmup=30 validate_every=440 save_every=110"),
    ),
    "small": Preset(
        about="ten minutes on two cores",
        data=typed("tokenizer=characters batch_size=8"),
        model=MODERN
        | typed("context_length=256 d_model=192 num_heads=6 num_layers=4 dropout=0.05"),
        training=_MUON
        | typed("steps=1900 learning_rate=7e-3 weight_decay=0.3 warmup=50")
        | typed("validate_every=380 save_every=100"),
    ),
    "base": Preset(
        about="some hours on a GPU",
        data=typed("tokenizer=bpe vocabulary=8192 batch_size=64"),
        model=MODERN | typed("context_length=512 d_model=512 num_heads=8 num_layers=8 dropout=0.1"),
        training=_MUON
        | typed("steps=20000 learning_rate=4e-3 minimum_learning_rate=4e-4 warmup=500")
        | typed("validate_every=1000 save_every=500 patience=5"),
    ),
    "nano": Preset(
        about="nanoGPT's setting for a CPU: 4 layers, 4 heads, width 128, context 64, by character",
        data=typed("tokenizer=characters batch_size=12"),
        model=typed(
            "context_length=64 d_model=128 num_heads=4 num_layers=4 dropout=0.0 bias=false"
        ),
        # Three times nanoGPT's learning rates, which reach a lower loss in 2000 steps.
        training=typed("steps=2000 learning_rate=3e-3 minimum_learning_rate=3e-4 warmup=100")
        | typed("betas=[0.9,0.99] validate_every=500 save_every=250"),
    ),
    "story": Preset(
        about="the model that comes with glasshead: 3 layers, 4 heads, width 128, context 128",
        data=typed("tokenizer=bpe vocabulary=512 batch_size=12 repeats=6 held_out=0.02"),
        # In the first layer a token sees few others, so that heads soon find the one before.
        model=MODERN
        | typed("context_length=128 d_model=128 d_hidden=192 num_heads=4 num_layers=3 dropout=0.0")
        | typed('local={"layers":[0],"neighbours":3}'),
        training=_MUON
        | typed("steps=1200 learning_rate=5e-3 warmup=30 validate_every=200 save_every=200"),
    ),
}


class WriteSettings(RunSettings):
    """Settings of a language model's training run: data, model and training.

    >>> WriteSettings.from_preset("nano", ["steps=500", "d_model=64"]).training.steps
    500
    """

    task = "write"
    data_kind = WriteData
    config_kind = LanguageModelConfig
    presets = PRESETS


class LanguageModelObjective(CrossEntropyObjective[LanguageModel]):
    """Cross-entropy of the next token, -Σ_t ln p(token_{t+1} | token_0 … token_t), in nats.

    Args:
        model: The language model.
        characters: Number of characters of the held-out targets, for bits per character.
        smoothing: Label smoothing ε, in training only.
    """

    monitor = "loss"
    higher_is_better = False
    answers = "targets"

    def __init__(self, model: LanguageModel, characters: int, smoothing: float = 0.0) -> None:
        super().__init__(model, smoothing)
        self.characters = characters

    def logits(self, batch: dict[str, Tensor]) -> Float[Tensor, "batch length vocab"]:
        """Return the logits of the next token at each position."""
        return self.model(batch["tokens"])

    def metrics(self, sums: dict[str, float]) -> dict[str, float]:
        """Return the loss in nats per token, the perplexity, and bits per character."""
        loss = sums["loss"] / sums["targets"]
        return {
            "loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),
            "bits_per_character": sums["loss"] / math.log(2) / max(1, self.characters),
        }


def prepare(
    settings: WriteSettings, corpus: TextCorpus, tokenizer: Tokenizer
) -> Prepared[WriteSettings]:
    """Build the untrained model and the windows of text.

    Errors: a ValueError if the text is shorter than the model's context.
    """
    config = settings.model_config(vocab_size=tokenizer.vocab_size)
    length = config.context_length
    training, held_out = (tokenized(tokenizer, x) for x in (corpus.training, corpus.held_out))
    for name, part, least in (("training", training, length + 1), ("held-out", held_out, 2)):
        if len(part.ids) < least:
            raise ValueError(
                f"the {name} part of the text must have at least {least} tokens, got "
                f"{len(part.ids)}. Add text, or use a smaller --set context_length."
            )
    return Prepared(
        settings=settings,
        config=config,
        task=LanguageModelObjective(
            LanguageModel(config), held_out.characters, settings.training.label_smoothing
        ),
        source=_windows(settings, training.ids, length, tokenizer),
        held_out=HeldOutWindows(held_out.ids, length),
        about=Message(
            "{count:,} tokens to train on, {held_out:,} held out",
            count=len(training.ids),
            held_out=len(held_out.ids),
        ),
    )


def _windows(
    settings: WriteSettings, tokens: Int[Tensor, " tokens"], length: int, tokenizer: Tokenizer
) -> TrainingWindows:
    data, seed = settings.data, settings.training.seed
    if not data.repeats:
        return TrainingWindows(tokens, length, data.batch_size, seed)
    special = tokenizer.special
    return RepeatingWindows(
        tokens,
        length,
        data.batch_size,
        seed,
        repeats=data.repeats,
        vocab_size=tokenizer.vocab_size,
        special={special.pad, special.unknown, special.start, *special.ends, *special.before},
    )


WRITE = Job(
    Message("A language model"), WriteSettings, read_corpus, make_tokenizer, prepare, LanguageModel
)
