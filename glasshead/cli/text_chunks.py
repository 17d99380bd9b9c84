"""Texts in chunks of one length, or whole, as a model reads them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from glasshead.cli.inputs.files import shown
from glasshead.tasks.data.files import ending
from glasshead.tasks.data.tables import PLAIN, TABLES, read_texts
from glasshead.tasks.readers.base import Reader


def text_files(source: Path) -> list[Path]:
    """A file, or every text below a folder, in the order of their names.

    Errors: a ValueError where a folder has none.
    """
    if not source.is_dir():
        return [source]
    files = [
        file
        for file in sorted(source.rglob("*"))
        if file.is_file() and ending(file) in (*PLAIN, *TABLES) and not _hidden(file, source)
    ]
    if not files:
        raise ValueError(
            f"{shown(source)} has no texts in it: name a folder with files that end in "
            f"{', '.join((*PLAIN, *TABLES))}."
        )
    return files


def _hidden(file: Path, source: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(source).parts)


# A length that is not asked for is no longer than this.
_MOST = 1024
_TOKENS_AT_ONCE = 8192
_CHARACTERS_AT_ONCE = 2**20

WHOLE = "whole"
Length = int | str | None


@dataclass(frozen=True)
class LeftOut:
    """What of the texts the model does not read, where each is read on its own.

    Attributes:
        texts: How many texts were cut, as they are longer than the model reads at once.
        tokens: How many tokens these have beyond that.
        empty: How many texts have no token.
    """

    texts: int = 0
    tokens: int = 0
    empty: int = 0


@dataclass(frozen=True, eq=False)
class TextChunks:
    """What a model reads, each piece from its own beginning.

    Attributes:
        groups: Pieces of one length each, the longest first.
        texts: Whether a piece is a text, and not part of all texts one after another.
        of_one_text: Whether all pieces are parts of one text, in their order.
        left_out: What is not read.
    """

    groups: tuple[Int[Tensor, "pieces length"], ...]
    texts: bool
    of_one_text: bool = False
    left_out: LeftOut = LeftOut()

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


def read_pieces(
    reader: Reader,
    source: Path,
    length: Length,
    *,
    truncate: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> TextChunks:
    """The texts of a file or a folder, as a model reads them.

    Args:
        reader: The model.
        source: Where they are.
        length: How many tokens a piece has, "whole" for a text each; None: as the context of the
            model, but at most 1024.
        truncate: Whether a whole text that the model does not read at once is cut to what it reads.
        progress: Is told how many characters are tokens, and of how many.

    Errors: an OSError or ValueError where a file cannot be read, there is no token, or the model
    does not read as many at once.
    """
    encoded = _encoded(reader, read_texts(text_files(source), reader.field), progress)
    if not any(encoded):
        raise ValueError(f"{shown(source)} has no text in it: name a file that has some.")
    if length == WHOLE:
        return _whole(reader, encoded, truncate=truncate)
    before, after = reader.around
    ending = reader.ending if len(encoded) > 1 else ()
    tokens = torch.tensor([token for text in encoded for token in (*text, *ending)])
    own = _length(reader, length) - len(before) - len(after)
    pieces = _cut(tokens, own, before, after)
    _check_context(reader, pieces.length)
    return replace(pieces, of_one_text=len(encoded) == 1)


def _encoded(
    reader: Reader, texts: Sequence[str], progress: Callable[[int, int], None] | None
) -> list[list[int]]:
    """The tokens of each text; a million characters at once, so that progress can be told."""
    encoded: list[list[int]] = []
    done, total = 0, sum(map(len, texts))
    while len(encoded) < len(texts):
        begin = end = len(encoded)
        before = done
        while end < len(texts) and (end == begin or done - before < _CHARACTERS_AT_ONCE):
            done += len(texts[end])
            end += 1
        if progress is not None:
            progress(before, total)
        encoded += reader.encode(texts[begin:end])
    if progress is not None:
        progress(total, total)
    return encoded


def _whole(reader: Reader, texts: Sequence[Sequence[int]], *, truncate: bool) -> TextChunks:
    """Each text as a piece, those without a token left out.

    Errors: a ValueError where the model does not read one at once, and it is not to be cut.
    """
    before, after = reader.around
    around = len(before) + len(after)
    room = max(map(len, texts)) if reader.context is None else reader.context - around
    long = [tokens for tokens in texts if len(tokens) > room]
    if long and not (truncate and room > 0):
        longest = max(map(len, long)) + around
        raise ValueError(
            f"{reader.name} reads at most {reader.context:,} tokens at once, and a piece would "
            f"have {longest:,}: take --truncate too, which cuts {len(long):,} of {len(texts):,} "
            f"texts, or --length {min(room + around, _MOST)}, which cuts all into pieces."
        )
    by_length: dict[int, list[Sequence[int]]] = {}
    for tokens in filter(None, texts):
        own = tokens
        if len(tokens) > room:
            own = tokens[:room] if reader.shorten is None else reader.shorten(tokens)[:room]
        by_length.setdefault(len(own) + around, []).append([*before, *own, *after])
    longest_first = sorted(by_length.items(), reverse=True)
    left_out = LeftOut(
        texts=len(long),
        tokens=sum(len(tokens) - room for tokens in long),
        empty=sum(not tokens for tokens in texts),
    )
    groups = tuple(torch.tensor(group) for _, group in longest_first)
    return TextChunks(groups, texts=True, of_one_text=len(texts) == 1, left_out=left_out)


def _cut(
    tokens: Int[Tensor, " tokens"], length: int, before: Sequence[int], after: Sequence[int]
) -> TextChunks:
    """TextChunks of one length, and the rest."""
    length = min(length, len(tokens))
    end = len(tokens) // length * length
    groups = [tokens[:end].view(-1, length), tokens[None, end:]]
    return TextChunks(
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
