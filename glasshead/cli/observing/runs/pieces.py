"""Pieces: a text as a model reads it, no more at once than its context."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from jaxtyping import Int
from torch import Tensor

from glasshead.cli.inputs.reading import shown
from glasshead.tasks.reading import read_texts
from glasshead.tasks.write import Writer
from glasshead.tasks.write.corpus import tokenized

_TOKENS_AT_ONCE = 8192


@dataclass(frozen=True, eq=False)
class Pieces:
    """Tokens, cut into pieces of one length, of which the last may be shorter.

    Attributes:
        tokens: The text.
        length: How many tokens each piece has but the last.
    """

    tokens: Int[Tensor, " tokens"]
    length: int

    @property
    def count(self) -> int:
        """How many pieces there are."""
        return ceil(len(self.tokens) / self.length)

    @property
    def whole(self) -> int:
        """How many of them have the full length."""
        return len(self.tokens) // self.length

    @property
    def batches(self) -> int:
        """How many batches they make."""
        return ceil(self.whole / self._at_once) + (self.whole < self.count)

    def __iter__(self) -> Iterator[Int[Tensor, "pieces length"]]:
        """Batches of pieces of one length, in order."""
        end = self.whole * self.length
        if self.whole:
            yield from self.tokens[:end].view(self.whole, self.length).split(self._at_once)
        if end < len(self.tokens):
            yield self.tokens[None, end:]

    @property
    def _at_once(self) -> int:
        return max(1, _TOKENS_AT_ONCE // self.length)


def read_pieces(writer: Writer, file: Path) -> Pieces:
    """The texts of a file, one after another, in pieces as long as the model's context.

    Errors: an OSError or ValueError where the file cannot be read, or has no token.
    """
    tokens = tokenized(writer.tokenizer, read_texts(file, writer.settings.data.field)).ids
    if not len(tokens):
        raise ValueError(f"{shown(file)} has no text in it: name a file that has some.")
    return Pieces(tokens, min(writer.model.config.context_length, len(tokens)))
