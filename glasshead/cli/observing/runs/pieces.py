"""Pieces: texts as a model reads them, cut to one length, or each whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from glasshead.cli.inputs.reading import shown
from glasshead.cli.observing.runs.texts import text_files
from glasshead.tasks.opening.reader import Reader
from glasshead.tasks.reading import read_texts

# A length that is not asked for is no longer than this.
_MOST = 1024
_TOKENS_AT_ONCE = 8192

WHOLE = "whole"
Length = int | str | None


@dataclass(frozen=True, eq=False)
class Pieces:
    """What a model reads, each piece from its own beginning.

    Attributes:
        groups: Pieces of one length each, the longest first.
        texts: Whether a piece is a text, and not part of all texts one after another.
    """

    groups: tuple[Int[Tensor, "pieces length"], ...]
    texts: bool

    @property
    def length(self) -> int:
        """Of the longest."""
        return self.groups[0].shape[1]

    @property
    def count(self) -> int:
        """How many pieces there are."""
        return sum(map(len, self.groups))

    @property
    def full(self) -> int:
        """How many of them are as long as the longest."""
        return len(self.groups[0])

    @property
    def tokens(self) -> int:
        """How many tokens they have."""
        return sum(group.numel() for group in self.groups)

    @property
    def uneven(self) -> bool:
        """Whether they are texts of several lengths, of which none is the rule."""
        return self.texts and len(self.groups) > 1

    def of(self, token: int) -> int:
        """How many of the tokens are this one."""
        return sum(int((group == token).sum()) for group in self.groups)

    def share(self, place: int, of: int) -> "list[Int[Tensor, 'pieces length']]":
        """The batches of one of several readers, each of one length; there may be none."""
        batches, before = [], 0
        for group in self.groups:
            # Each goes on counting where the last group has ended, so that shares are even.
            own = group[(place - before) % of :: of]
            batches += own.split(max(1, _TOKENS_AT_ONCE // group.shape[1])) if len(own) else []
            before += len(group)
        return batches


def read_pieces(reader: Reader, source: Path, length: Length) -> Pieces:
    """The texts of a file or a folder, as a model reads them.

    Args:
        reader: The model.
        source: Where they are.
        length: How many tokens a piece has, "whole" for a text each; None: as the context of the
            model, but at most 1024.

    Errors: an OSError or ValueError where a file cannot be read, there is no token, or the model
    does not read as many at once.
    """
    texts = read_texts(text_files(source), reader.field)
    encoded = reader.encode(texts)
    if not any(encoded):
        raise ValueError(f"{shown(source)} has no text in it: name a file that has some.")
    before, after = reader.around
    if length == WHOLE:
        pieces = _whole([[*before, *tokens, *after] for tokens in encoded if tokens])
    else:
        ending = reader.ending if len(encoded) > 1 else ()
        tokens = torch.tensor([token for text in encoded for token in (*text, *ending)])
        own = _length(reader, length) - len(before) - len(after)
        pieces = _cut(tokens, own, before, after)
    _check_context(reader, pieces.length)
    return pieces


def _whole(texts: Sequence[Sequence[int]]) -> Pieces:
    """Each text as a piece."""
    by_length: dict[int, list[Sequence[int]]] = {}
    for tokens in texts:
        by_length.setdefault(len(tokens), []).append(tokens)
    longest_first = sorted(by_length.items(), reverse=True)
    return Pieces(tuple(torch.tensor(group) for _, group in longest_first), texts=True)


def _cut(
    tokens: Int[Tensor, " tokens"], length: int, before: Sequence[int], after: Sequence[int]
) -> Pieces:
    """Pieces of one length, and the rest."""
    length = min(length, len(tokens))
    end = len(tokens) // length * length
    groups = [tokens[:end].view(-1, length), tokens[None, end:]]
    return Pieces(
        tuple(_put(group, before, after) for group in groups if group.numel()), texts=False
    )


def _put(
    pieces: Int[Tensor, "pieces length"], before: Sequence[int], after: Sequence[int]
) -> Int[Tensor, "pieces longer"]:
    """What stands around each piece, put there."""
    sides = (
        torch.tensor(side, dtype=pieces.dtype).expand(len(pieces), -1) for side in (before, after)
    )
    first, last = sides
    return torch.cat([first, pieces, last], 1)


def _length(reader: Reader, asked: Length) -> int:
    """How many tokens a piece has."""
    if not isinstance(asked, int):
        return min(reader.context or _MOST, _MOST)
    _check_context(reader, asked)
    least = sum(map(len, reader.around)) + 1
    if asked < least:
        raise ValueError(
            f"--length takes at least {least} tokens, as {least - 1} stand around each piece, and "
            f"got {asked}."
        )
    return asked


def _check_context(reader: Reader, length: int) -> None:
    if reader.context is not None and length > reader.context:
        raise ValueError(
            f"{reader.name} reads at most {reader.context:,} tokens at once, and a piece would "
            f"have {length:,}: take --length {min(reader.context, _MOST)}, or another up to "
            f"{reader.context}."
        )
