"""Texts as tokens: read, split, cut to windows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from glasshead.tasks.data.tables import read_texts
from glasshead.tasks.job import made_tokenizer
from glasshead.tasks.loss import IGNORED
from glasshead.tasks.run_settings import RunData, digest
from glasshead.tasks.tokenizers.pretrained import gpt2
from glasshead.tasks.tokenizers.tokenizer import Tokenizer
from glasshead.tasks.tokenizers.train_tokenizer import characters

# How many tokens are told at once, which is no more than a step of a large model takes.
_AT_ONCE = 8192


class Windows:
    """Pieces of `length` tokens, each with the tokens that follow; their numbers are their places.

    Args:
        tokens: The text.
        length: How many tokens a piece has.
        batch_size: How many pieces make a batch.
    """

    def __init__(self, tokens: Int[Tensor, " tokens"], length: int, batch_size: int) -> None:
        self.tokens = tokens
        self.length = length
        self.batch_size = batch_size
        self._within = torch.arange(length + 1)

    def collate(self, indices: Sequence[int]) -> dict[str, Int[Tensor, "pieces length"]]:
        """The pieces that begin at these places, and what follows each of their tokens."""
        places = torch.tensor(indices)[:, None] + self._within
        last = len(self.tokens) - 1
        pieces = self.tokens[places.clamp(max=last)]
        targets = pieces[:, 1:]
        if int(places[:, -1].max()) > last:
            targets = targets.masked_fill(places[:, 1:] > last, IGNORED)
        return {"tokens": pieces[:, :-1], "targets": targets}

    def count(self, indices: Sequence[int]) -> int:
        """How many targets there are."""
        last = len(self.tokens) - 1
        return sum(min(self.length, last - index) for index in indices)


class TrainingWindows(Windows):
    """The text cut into pieces, elsewhere in each epoch, and shuffled.

    Each token is seen once an epoch, but for what is left over at the ends.

    Args:
        tokens, length, batch_size: As of `Windows`.
        seed: Of the cuts and the order.

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
        """The places of each batch, the same for the same epoch."""
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + epoch) % 2**63)
        spare = len(self.tokens) - self.length
        first = int(torch.randint(min(self.length, spare), (), generator=generator))
        pieces = (len(self.tokens) - 1 - first) // self.length
        places = (first + self.length * torch.randperm(pieces, generator=generator)).tolist()
        size = min(self.batch_size, pieces)
        return [places[i : i + size] for i in range(0, pieces - size + 1, size)]


class HeldOutWindows(Windows):
    """The text in pieces from its first token to its last, in order.

    Args:
        tokens: The text.
        length: How many tokens a piece has.

    >>> HeldOutWindows(torch.arange(10), length=4).batches()
    [[0, 4, 8]]
    """

    def __init__(self, tokens: Int[Tensor, " tokens"], length: int) -> None:
        super().__init__(tokens, length, max(1, _AT_ONCE // length))

    def batches(self, epoch: int = 0) -> list[list[int]]:
        """The places of each batch."""
        del epoch
        places = list(range(0, len(self.tokens) - 1, self.length))
        return [places[i : i + self.batch_size] for i in range(0, len(places), self.batch_size)]


TOKENIZERS = ("characters", "bpe", "wordpiece", "gpt2")


@dataclass(frozen=True, kw_only=True)
class WriteData(RunData):
    """Which texts, in which tokens; without files, little stories that are made up.

    Attributes:
        field: The column of tables that holds the text.
        tokenizer: "characters", "bpe" or "wordpiece", made from the texts; or "gpt2".
        vocabulary: How many tokens bpe and wordpiece make, at most; 2²⁰ is the most.
        gpt2: The folder with GPT-2's encoder.json and vocab.bpe.
        stories: How many stories are made up, 10⁶ at most.
        batch_size: How many pieces of `context_length` tokens make one step.
        texts: How many there are to train on; of several, each is ended.

    Errors: a ValueError or TypeError that names what is wrong.
    """

    found: ClassVar[tuple[str, ...]] = ("sha256", "texts")

    field: str | None = None
    tokenizer: str = "characters"
    vocabulary: int = 4096
    gpt2: str | None = None
    stories: int = 20_000
    batch_size: int = 12
    texts: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tokenizer not in TOKENIZERS:
            raise ValueError(
                f"tokenizer takes one of {', '.join(TOKENIZERS)}, and got {self.tokenizer!r}."
            )
        if self.tokenizer == "gpt2" and not self.gpt2:
            raise ValueError(
                "tokenizer=gpt2 takes the folder with encoder.json and vocab.bpe too: add "
                "--set gpt2=FOLDER."
            )
        if not isinstance(self.field, str | None):
            raise TypeError(f"field takes the name of a column, and got {self.field!r}.")
        self.check_whole(("vocabulary", "stories", "batch_size"), least=1)


@dataclass(frozen=True, eq=False)
class TextCorpus:
    """What is trained on, and what is held out.

    Attributes:
        training: The texts to train on.
        held_out: The texts that are not.
    """

    training: tuple[str, ...]
    held_out: tuple[str, ...]

    @property
    def found(self) -> dict[str, Any]:
        """What they tell of the run's data."""
        return {"sha256": digest(self.training, self.held_out), "texts": len(self.training)}


def read_corpus(data: WriteData) -> TextCorpus:
    """The texts of the files, or made-up stories; the last share of them held out.

    Without files of their own to be held out, a single text is cut within, and of several the last
    ones are held out.

    Errors: an OSError or ValueError where a file cannot be read, or there is too little text.
    """
    if not data.files:
        from glasshead.tasks.data.stories import held_out, stories

        return TextCorpus(
            tuple(stories(data.stories, seed=0)),
            tuple(held_out(max(1, round(data.stories * data.held_out)))),
        )
    texts = read_texts(data.files, data.field)
    if data.held_out_files:
        return TextCorpus(tuple(texts), tuple(read_texts(data.held_out_files, data.field)))
    if len(texts) == 1:
        cut = int(len(texts[0]) * (1 - data.held_out))
        return TextCorpus((texts[0][:cut],), (texts[0][cut:],))
    cut = min(len(texts) - 1, round(len(texts) * (1 - data.held_out)))
    return TextCorpus(tuple(texts[:cut]), tuple(texts[cut:]))


def make_tokenizer(data: WriteData, corpus: TextCorpus) -> Tokenizer:
    """The tokenizer that the data ask for; one that is made knows the training texts alone.

    The characters are those of all texts: an alphabet tells nothing of what is held out.

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
    """Texts one after another, as tokens.

    Attributes:
        ids: The tokens.
        characters: How many characters all tokens but the first one stand for, which are those that
            a model can tell.
    """

    ids: Int[Tensor, " tokens"]
    characters: int


def tokenized(tokenizer: Tokenizer, texts: Sequence[str]) -> Tokens:
    """The texts one after another; where there are several, each is ended."""
    encoded = tokenizer.encode_batch(texts)
    if len(texts) > 1:
        encoded = [[*tokens, tokenizer.end_id] for tokens in encoded]
    ids = [token for tokens in encoded for token in tokens]
    return Tokens(
        torch.tensor(ids, dtype=torch.int64),
        sum(map(len, texts)) - len(tokenizer.decode(ids[:1])),
    )
