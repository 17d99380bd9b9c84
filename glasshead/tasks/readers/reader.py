"""Readers: a model and its tokenizer behind one interface, and texts in chunks as it reads them."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn

from glasshead.message import Message
from glasshead.recipe.validation import whole_number
from glasshead.tasks.data.files import shown
from glasshead.tasks.data.tables import read_texts, text_files
from glasshead.tasks.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from glasshead import Mask

Kind = Literal["run", "model"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Reader:
    """A model and its tokenizer: a trained run or a Hugging Face model.

    Attributes:
        name: Name of the folder.
        kind: "run" or "model".
        model: The module to watch.
        read: Runs the model on token ids, one text per row.
        encode: Tokenizes texts.
        token: Returns the text of a token id.
        ordinary: Token ids of texts, without special tokens.
        ending: Token ids that end each of several concatenated texts.
        around: Special tokens before and after the model's input.
        context: Context length in tokens; None where it is unknown.
        unknown: The unknown token; None where every text can be encoded.
        field: The column of a table that holds the text; None: "text", or the only one.
        mask: The attention mask; None where it is unknown.
        shorten: Truncates a text longer than the context; None: the first tokens are taken.
    """

    name: str
    kind: Kind
    model: nn.Module
    read: Callable[[Int[Tensor, "texts length"]], Any]
    encode: Callable[[Sequence[str]], list[list[int]]]
    token: Callable[[int], str]
    ordinary: Sequence[int]
    ending: tuple[int, ...]
    around: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    context: int | None
    unknown: int | None
    field: str | None = None
    mask: "Mask | None" = None
    shorten: Callable[[Sequence[int]], list[int]] | None = None

    @property
    def device(self) -> torch.device:
        """Device of the model; that of its first weights that are not offloaded to disk."""
        devices = (one.device for one in self.model.parameters() if not one.is_meta)
        return next(devices, torch.device("cpu"))


def reader_of(
    name: str,
    tokenizer: Tokenizer,
    model: nn.Module,
    read: Callable[[Int[Tensor, "texts length"]], Any],
    context: int | None,
    kind: Kind = "run",
) -> Reader:
    """Create the reader of a model with a tokenizer of this library."""
    special = tokenizer.special
    put_in = {special.pad, special.unknown, special.start, *special.ends, *special.before}
    return Reader(
        name=name,
        kind=kind,
        model=model,
        read=read,
        encode=tokenizer.encode_batch,
        token=tokenizer.token,
        ordinary=sorted(set(tokenizer.inner.get_vocab().values()) - put_in),
        ending=(tokenizer.end_id,),
        context=context,
        # Where the end token stands in for it, all text is known.
        unknown=None if tokenizer.unknown_id == tokenizer.end_id else tokenizer.unknown_id,
    )


FileName = str | os.PathLike[str]
# Longer strings are no names of files.
_LONGEST_NAME = 1024


class Texts(NamedTuple):
    """Texts to read.

    Attributes:
        texts: The texts.
        name: Their name in errors and results.
        remedy: What to do where there is none in them.
    """

    texts: list[str]
    name: str
    remedy: str


def load_texts(source: FileName | Iterable[FileName], column: str | None = None) -> Texts:
    """Load texts: strings are texts, and each `Path` is a file of texts, or a folder of such files.

    Args:
        source: One or several.
        column: The column of tables that holds the text; None: "text", or the only one.

    Errors: a TypeError for anything else; a ValueError for a string that names a file; an OSError
    or ValueError where a file cannot be read.

    >>> load_texts(["One text.", "Another."]).name
    '2 texts'
    """
    if isinstance(source, str) and len(source) < _LONGEST_NAME and os.path.exists(source):  # noqa: PTH110 - a text may be no path
        raise ValueError(
            f"texts takes texts, or the Path of a file, and got {source!r}, which is a file: give "
            f"Path({source!r})."
        )
    try:
        given = [source] if isinstance(source, str | os.PathLike) else list(source)
    except TypeError:
        raise TypeError(
            f"texts takes one text or several, as strings or Paths of files, and got "
            f"{type(source).__name__}: give a list of them."
        ) from None
    for one in given:
        if not isinstance(one, str | os.PathLike):
            raise TypeError(
                f"texts takes strings, or Paths of files, and got {type(one).__name__}: give the "
                f"texts as they are written."
            )
    texts = [
        text
        for one in given
        for text in ([one] if isinstance(one, str) else read_texts(text_files(Path(one)), column))
    ]
    if not given:
        raise ValueError("texts takes one text at least, or the Path of a file, and got none.")
    if any(isinstance(one, str) for one in given):
        name = "1 text" if len(texts) == 1 else f"{len(texts)} texts"
        return Texts(texts, name, Message("give some with a word in it"))
    return Texts(
        texts, ", ".join(shown(Path(one)) for one in given), Message("name a file that has some")
    )


def as_argument(option: str, value: Any = None) -> str:
    """Spell an option as an argument of Python, for errors.

    >>> as_argument("length"), as_argument("length", "whole")
    ('length', "length='whole'")
    """
    return option if value is None else f"{option}={value!r}"


# A length that is not asked for is no longer than this.
_MAX_LENGTH = 1024
_TOKENS_AT_ONCE = 8192
_CHARACTERS_AT_ONCE = 2**20

WHOLE = "whole"
Length = int | str | None


@dataclass(frozen=True)
class LeftOut:
    """Counts of what is not read, where each text is read whole.

    Attributes:
        texts: Number of texts truncated to the context of the model.
        tokens: Number of tokens that truncation drops.
        empty: Number of texts without a token.
    """

    texts: int = 0
    tokens: int = 0
    empty: int = 0


@dataclass(frozen=True, eq=False)
class TextChunks:
    """Chunks of tokens, each read from its own beginning.

    Attributes:
        groups: Chunks of one length each, the longest first.
        texts: Whether a chunk is a whole text, not a part of all texts concatenated.
        of_one_text: Whether all chunks are parts of one text, in order.
        left_out: Counts of what is not read.
    """

    groups: tuple[Int[Tensor, "chunks length"], ...]
    texts: bool
    of_one_text: bool = False
    left_out: LeftOut = LeftOut()

    @property
    def length(self) -> int:
        """Length of the longest chunk."""
        return self.groups[0].shape[1]

    @property
    def count(self) -> int:
        """Number of chunks."""
        return sum(map(len, self.groups))

    @property
    def full(self) -> int:
        """Number of chunks that are as long as the longest."""
        return len(self.groups[0])

    @property
    def tokens(self) -> int:
        """Number of tokens in all chunks."""
        return sum(group.numel() for group in self.groups)

    @property
    def uneven(self) -> bool:
        """Whether the chunks are whole texts of different lengths."""
        return self.texts and len(self.groups) > 1

    def count_token(self, token: int) -> int:
        """Count the occurrences of a token."""
        return sum(int((group == token).sum()) for group in self.groups)

    def shard(self, rank: int, world_size: int) -> "list[Int[Tensor, 'chunks length']]":
        """Return the batches of one rank, each of one length; there may be none."""
        batches, before = [], 0
        for group in self.groups:
            # Each goes on counting where the last group has ended, so that shares are even.
            own = group[(rank - before) % world_size :: world_size]
            batches += own.split(max(1, _TOKENS_AT_ONCE // group.shape[1])) if len(own) else []
            before += len(group)
        return batches


def cut_texts(
    reader: Reader,
    texts: Texts,
    length: Length,
    *,
    truncate: bool = False,
    spell: Callable[..., str] = as_argument,
    progress: Callable[[int, int], None] | None = None,
) -> TextChunks:
    """Cut texts into chunks of tokens.

    Args:
        reader: The model.
        texts: The texts.
        length: Tokens per chunk, or "whole" for one chunk per text; None: the context of the
            model, at most 1024.
        truncate: Whether to cut whole texts to the context of the model.
        spell: Spells an option and its value, for errors.
        progress: Called with the number of characters tokenized, and the total.

    Errors: a TypeError or ValueError where there is no token, the length is none, or the model does
    not read as many at once.
    """
    if truncate and length != WHOLE:
        raise ValueError(
            Message(
                "{truncate} cuts texts that are read whole: add {length}, or leave it out.",
                truncate=spell("truncate", True),
                length=spell("length", WHOLE),
            )
        )
    encoded = _encoded(reader, texts.texts, progress)
    if not any(encoded):
        raise ValueError(
            Message("{name} has no text in it: {remedy}.", name=texts.name, remedy=texts.remedy)
        )
    if length == WHOLE:
        return _whole(reader, encoded, truncate=truncate, spell=spell)
    before, after = reader.around
    ending = reader.ending if len(encoded) > 1 else ()
    tokens = torch.tensor([token for text in encoded for token in (*text, *ending)])
    own = chunk_length(reader, length, spell) - len(before) - len(after)
    chunks = _split(tokens, own, before, after)
    _check_context(reader, chunks.length, spell)
    return replace(chunks, of_one_text=len(encoded) == 1)


def _encoded(
    reader: Reader, texts: Sequence[str], progress: Callable[[int, int], None] | None
) -> list[list[int]]:
    """Tokenize each text; a million characters at once, to report progress."""
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


def _whole(
    reader: Reader,
    texts: Sequence[Sequence[int]],
    *,
    truncate: bool,
    spell: Callable[..., str],
) -> TextChunks:
    """Make each text a chunk; texts without a token are left out.

    Errors: a ValueError where the model does not read one at once, and it is not to be cut.
    """
    before, after = reader.around
    around = len(before) + len(after)
    room = max(map(len, texts)) if reader.context is None else reader.context - around
    long = [tokens for tokens in texts if len(tokens) > room]
    if long and not (truncate and room > 0):
        longest = max(map(len, long)) + around
        raise ValueError(
            Message(
                "{name} reads at most {context:,} tokens at once, and a piece would "
                "have {longest:,}: take {truncate} too, which cuts {count:,} of {of:,} "
                "texts, or {shorter}, which cuts all into pieces.",
                name=reader.name,
                context=reader.context,
                longest=longest,
                truncate=spell("truncate", True),
                count=len(long),
                of=len(texts),
                shorter=spell("length", min(room + around, _MAX_LENGTH)),
            )
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


def _split(
    tokens: Int[Tensor, " tokens"], length: int, before: Sequence[int], after: Sequence[int]
) -> TextChunks:
    """Split tokens into chunks of one length, and the rest."""
    length = min(length, len(tokens))
    end = len(tokens) // length * length
    groups = [tokens[:end].view(-1, length), tokens[None, end:]]
    return TextChunks(
        tuple(_surround(group, before, after) for group in groups if group.numel()), texts=False
    )


def _surround(
    chunks: Int[Tensor, "chunks length"], before: Sequence[int], after: Sequence[int]
) -> Int[Tensor, "chunks longer"]:
    """Add the special tokens before and after each chunk."""
    sides = (
        torch.tensor(side, dtype=chunks.dtype).expand(len(chunks), -1) for side in (before, after)
    )
    first, last = sides
    return torch.cat([first, chunks, last], 1)


def chunk_length(
    reader: Reader, asked: Length = None, spell: Callable[..., str] = as_argument
) -> int:
    """Return the number of tokens per chunk, with the special tokens around it.

    Errors: a TypeError or ValueError where the model does not read as many at once.
    """
    if asked is None:
        return min(reader.context or _MAX_LENGTH, _MAX_LENGTH)
    asked = whole_number(asked, spell("length"), least=1)
    _check_context(reader, asked, spell)
    least = sum(map(len, reader.around)) + 1
    if asked < least:
        raise ValueError(
            Message(
                "{option} takes at least {least} tokens, as {around} stand around each "
                "piece, and got {asked}.",
                option=spell("length"),
                least=least,
                around=least - 1,
                asked=asked,
            )
        )
    return asked


def _check_context(reader: Reader, length: int, spell: Callable[..., str]) -> None:
    if reader.context is not None and length > reader.context:
        raise ValueError(
            Message(
                "{name} reads at most {context:,} tokens at once, and a piece would "
                "have {length:,}: take {shorter}, or another up to {context}.",
                name=reader.name,
                context=reader.context,
                length=length,
                shorter=spell("length", min(reader.context, _MAX_LENGTH)),
            )
        )
