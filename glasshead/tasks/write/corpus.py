"""Corpus: texts as tokens, the last part of them held out."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from glasshead.tasks.reading import read_texts
from glasshead.tasks.runs import digest
from glasshead.tasks.runs.tokenizers import made_tokenizer
from glasshead.tasks.tokenizing import Tokenizer, characters, gpt2
from glasshead.tasks.write.data import WriteData


@dataclass(frozen=True, eq=False)
class Corpus:
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


def read_corpus(data: WriteData) -> Corpus:
    """The texts of the files, or made-up stories; the last share of them held out.

    Without files of their own to be held out, a single text is cut within, and of several the last
    ones are held out.

    Errors: an OSError or ValueError where a file cannot be read, or there is too little text.
    """
    if not data.files:
        from glasshead.tasks.stories import held_out, stories

        return Corpus(
            tuple(stories(data.stories, seed=0)),
            tuple(held_out(max(1, round(data.stories * data.held_out)))),
        )
    texts = read_texts(data.files, data.field)
    if data.held_out_files:
        return Corpus(tuple(texts), tuple(read_texts(data.held_out_files, data.field)))
    if len(texts) == 1:
        cut = int(len(texts[0]) * (1 - data.held_out))
        return Corpus((texts[0][:cut],), (texts[0][cut:],))
    cut = min(len(texts) - 1, round(len(texts) * (1 - data.held_out)))
    return Corpus(tuple(texts[:cut]), tuple(texts[cut:]))


def make_tokenizer(data: WriteData, corpus: Corpus) -> Tokenizer:
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
