"""A stream of texts in chunks of tokens, cut while they are read: memory is that of a batch."""

import hashlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from glasshead.message import Message
from glasshead.recipe.validation import whole_number
from glasshead.tasks.data.texts import TextPart
from glasshead.tasks.readers.reader import Reader
from glasshead.tasks.readers.texts import Texts


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
# Whole texts are sorted by length among so many tokens.
_TOKENS_SORTED = 2**20

WHOLE = "whole"
Length = int | str | None


@dataclass(frozen=True)
class Omitted:
    """Counts of what is not read, where each text is read whole.

    Attributes:
        texts: Number of texts truncated to the context of the model.
        tokens: Number of tokens that truncation drops.
        empty: Number of texts without a token.
    """

    texts: int = 0
    tokens: int = 0
    empty: int = 0


@dataclass
class ChunkCounts:
    """Counts of the chunks of a stream, as far as it was read.

    Attributes:
        whole: Whether a chunk is a whole text, not a part of all texts concatenated.
        unknown: The token that is counted by `unknown_tokens`.
        texts: Number of texts.
        count: Number of chunks.
        tokens: Number of tokens in them.
        own: Number of those that this rank reads.
        length: Length of the longest chunk.
        shortest: Length of the shortest chunk.
        full: Number of chunks that are as long as the longest.
        first_full: The tokens of the first of them.
        unknown_tokens: Number of tokens that the model does not know.
        omitted: What is not read.
        too_long: Number of texts that the model does not read whole.
        longest: Number of tokens of the longest text, with those around it.
    """

    whole: bool
    unknown: int | None
    texts: int = 0
    count: int = 0
    tokens: int = 0
    own: int = 0
    length: int = 0
    shortest: int = 0
    full: int = 0
    first_full: Sequence[int] = ()
    unknown_tokens: int = 0
    omitted: Omitted = Omitted()
    too_long: int = 0
    longest: int = 0
    _digest: Any = field(default_factory=hashlib.sha256, repr=False)

    @property
    def uneven(self) -> bool:
        """Whether the chunks are whole texts of different lengths."""
        return self.whole and self.shortest < self.length

    @property
    def of_one_text(self) -> bool:
        """Whether all chunks are parts of one text, in order."""
        return self.texts == 1

    @property
    def digest(self) -> str:
        """A digest of all tokens, chunk by chunk."""
        return self._digest.hexdigest()

    def add(self, chunk: Sequence[int], *, own: bool) -> None:
        """Count a chunk."""
        size = len(chunk)
        self.count, self.tokens, self.own = (
            self.count + 1,
            self.tokens + size,
            self.own + size * own,
        )
        self.shortest = min(self.shortest or size, size)
        if size > self.length:
            self.length, self.full, self.first_full = size, 0, chunk
        self.full += size == self.length
        if self.unknown is not None:
            self.unknown_tokens += chunk.count(self.unknown)
        self._digest.update(array("q", [size, *chunk]).tobytes())


class TextStream:
    """Chunks of tokens, each read from its own beginning, that are cut while texts are read.

    Args:
        reader: The model.
        texts: The texts.
        length: Tokens per chunk, or "whole" for one chunk per text; None: the context of the
            model, at most 1024.
        truncate: Whether to cut whole texts to the context of the model.
        rank, world_size: Of the process that reads a share of the chunks.
        spell: Spells an option and its value, for errors.

    Errors: a TypeError or ValueError if the length is none, the model does not read as many at
    once, or an iterator is to be read in whole texts.
    """

    def __init__(
        self,
        reader: Reader,
        texts: Texts,
        length: Length = None,
        *,
        truncate: bool = False,
        rank: int = 0,
        world_size: int = 1,
        spell: Callable[..., str] = as_argument,
    ) -> None:
        if truncate and length != WHOLE:
            raise ValueError(
                Message(
                    "{truncate} needs texts that are read whole. Add {length}, or omit it.",
                    truncate=spell("truncate", True),
                    length=spell("length", WHOLE),
                )
            )
        if length == WHOLE and not texts.lasting:
            raise ValueError(
                Message(
                    "{length} needs texts that can be read twice, to find the longest first, got "
                    "an iterator. Pass a list, or Paths of files.",
                    length=spell("length", WHOLE),
                )
            )
        self._reader, self._texts, self._spell = reader, texts, spell
        self._truncate, self._whole = truncate, length == WHOLE
        self._length = None if self._whole else chunk_length(reader, length, spell)
        self._rank, self._world_size = rank, world_size

    @property
    def name(self) -> str:
        """Name of the texts."""
        return self._texts.name

    @property
    def lasting(self) -> bool:
        """Whether it can be read again."""
        return self._texts.lasting

    @property
    def length(self) -> Length:
        """Tokens per chunk, with the special tokens around it, or "whole"."""
        return self._length or WHOLE

    def new_counts(self) -> ChunkCounts:
        """Return counts of no chunk."""
        return ChunkCounts(self._whole, self._reader.unknown)

    def counted(self, progress: Callable[[int, int | None], object] | None = None) -> ChunkCounts:
        """Tokenize all texts once, and count their chunks; nothing of them is kept.

        Args:
            progress: Called with the number of characters tokenized, and the total, if it is known.

        Errors: a ValueError if there is no token, or the model does not read a text at once; an
        OSError if a file cannot be read.
        """
        counts = self.new_counts()
        for _ in self._ordered(counts, progress):
            pass
        self.check(counts)
        return counts

    def check(self, counts: ChunkCounts) -> None:
        """Check the counts of the whole stream.

        Errors: a ValueError if there is no token, or the model does not read a text at once.
        """
        if counts.too_long and not (self._truncate and counts.count):
            reader, room = self._reader, self._room or 0
            raise ValueError(
                Message(
                    "{name} reads at most {context:,} tokens at once, got a piece of {longest:,}. "
                    "Add {truncate}, which cuts {count:,} of {of:,} texts, or {shorter}, which "
                    "cuts all into pieces.",
                    name=reader.name,
                    context=reader.context,
                    longest=counts.longest,
                    truncate=self._spell("truncate", True),
                    count=counts.too_long,
                    of=counts.texts,
                    shorter=self._spell("length", min(room + self._around, _MAX_LENGTH)),
                )
            )
        if not counts.count:
            raise ValueError(
                Message(
                    "{name} has no text in it. {remedy}.", name=self.name, remedy=self._texts.remedy
                )
            )

    def batches(
        self,
        counts: ChunkCounts,
        progress: Callable[[int, int | None], object] | None = None,
    ) -> Iterator[Int[Tensor, "chunks length"]]:
        """Yield the batches of this rank, each of one length; there may be none.

        Args:
            counts: Where the chunks are counted, of all ranks.
            progress: As of `counted`.
        """
        batch: list[Sequence[int]] = []
        for index, chunk in enumerate(self._ordered(counts, progress)):
            if index % self._world_size != self._rank:
                continue
            if batch and len(chunk) != len(batch[0]):
                yield torch.tensor(batch)
                batch = []
            batch.append(chunk)
            if len(batch) == max(1, _TOKENS_AT_ONCE // len(chunk)):
                yield torch.tensor(batch)
                batch = []
        if batch:
            yield torch.tensor(batch)

    def tokens(self) -> list[int]:
        """Return the tokens of all chunks, held in memory, in the order in which they are read."""
        return [token for chunk in self._ordered(self.new_counts()) for token in chunk]

    @cached_property
    def _around(self) -> int:
        return sum(map(len, self._reader.around))

    @property
    def _room(self) -> int | None:
        """Most tokens of a text that the model reads whole; None: any number."""
        context = self._reader.context
        return None if context is None else context - self._around

    def _ordered(
        self,
        counts: ChunkCounts,
        progress: Callable[[int, int | None], object] | None = None,
    ) -> Iterator[Sequence[int]]:
        """Yield all chunks in the order in which they are read, and count them."""
        tokens = self._encoded(progress)
        ordered = (
            _sorted(self._texts_whole(tokens, counts))
            if self._whole
            else self._split(tokens, counts)
        )
        before, after = self._reader.around
        for index, own in enumerate(ordered):
            chunk = (*before, *own, *after)
            counts.add(chunk, own=index % self._world_size == self._rank)
            yield chunk

    def _split(
        self, encoded: Iterator[tuple[list[int], bool]], counts: ChunkCounts
    ) -> Iterator[list[int]]:
        """Split all texts, each ended by the end token if there are several."""
        length, ending = (self._length or 0) - self._around, self._reader.ending
        waiting: list[int] = []
        begun = tokens_there = False
        for tokens, last in encoded:
            if not begun and counts.texts:
                waiting += ending
            tokens_there = tokens_there or bool(tokens)
            waiting += tokens
            begun, counts.texts = not last, counts.texts + last
            if tokens_there:
                end = len(waiting) // length * length
                yield from (waiting[place : place + length] for place in range(0, end, length))
                waiting = waiting[end:]
        if not tokens_there:
            return
        if counts.texts > 1:
            waiting += ending
        yield from (waiting[place : place + length] for place in range(0, len(waiting), length))

    def _texts_whole(
        self, encoded: Iterator[tuple[list[int], bool]], counts: ChunkCounts
    ) -> Iterator[list[int]]:
        """Yield each text that has a token; one that is too long only where it is to be cut."""
        room, shorten = self._room, self._reader.shorten
        text: list[int] = []
        for tokens, last in encoded:
            text += tokens
            if not last:
                continue
            own, text = text, []
            counts.texts += 1
            out = counts.omitted
            if room is not None and len(own) > room:
                counts.too_long += 1
                counts.longest = max(counts.longest, len(own) + self._around)
                counts.omitted = Omitted(out.texts + 1, out.tokens + len(own) - room, out.empty)
                own = own[: max(room, 0)] if shorten is None else shorten(own)[: max(room, 0)]
                if not self._truncate:
                    continue
            elif not own:
                counts.omitted = Omitted(out.texts, out.tokens, out.empty + 1)
            if own:
                yield own

    def _encoded(
        self, progress: Callable[[int, int | None], object] | None
    ) -> Iterator[tuple[list[int], bool]]:
        """Tokenize the texts in parts; yield the tokens of each, and whether its text ends there.

        A million characters are tokenized at once.
        """
        done = 0
        for some in self._characters():
            if progress is not None:
                progress(done, self._texts.size)
            encoded = self._reader.encode([part.text for part in some])
            yield from zip(encoded, (part.last for part in some), strict=True)
            done += sum(len(part.text) for part in some)
        if progress is not None:
            progress(done, done)

    def _characters(self) -> Iterator[list[TextPart]]:
        """Yield parts of texts, about a million characters at a time, cut where no token spans."""
        some: list[TextPart] = []
        size, rest = 0, ""
        for text, last in self._texts.parts():
            rest += text
            if last:
                some.append(TextPart(rest, last=True))
                # Texts without a character are not without end.
                size, rest = size + len(rest) + 1, ""
            elif len(rest) >= _CHARACTERS_AT_ONCE:
                *cut, rest = self._reader.cut(rest)
                some += [TextPart("".join(cut), last=False)] if cut else []
                size += sum(map(len, cut))
            if size >= _CHARACTERS_AT_ONCE:
                yield some
                some, size = [], 0
        if some:
            yield some


def _sorted(texts: Iterator[list[int]]) -> Iterator[list[int]]:
    """Sort texts by length, the longest first, among about a million tokens at a time."""
    window: list[list[int]] = []
    size = 0
    for text in texts:
        window.append(text)
        size += len(text)
        if size >= _TOKENS_SORTED:
            yield from sorted(window, key=len, reverse=True)
            window, size = [], 0
    yield from sorted(window, key=len, reverse=True)


def chunk_length(
    reader: Reader, asked: Length = None, spell: Callable[..., str] = as_argument
) -> int:
    """Return the number of tokens per chunk, with the special tokens around it.

    Errors: a TypeError or ValueError if the model does not read as many at once.
    """
    if asked is None:
        length = min(reader.context or _MAX_LENGTH, _MAX_LENGTH)
    else:
        length = whole_number(asked, spell("length"), least=1)
    if reader.context is not None and length > reader.context:
        raise ValueError(
            Message(
                "{name} reads at most {context:,} tokens at once, got {length:,} for a piece. Use "
                "{shorter}, or another up to {context}.",
                name=reader.name,
                context=reader.context,
                length=length,
                shorter=spell("length", min(reader.context, _MAX_LENGTH)),
            )
        )
    least = sum(map(len, reader.around)) + 1
    if length < least:
        raise ValueError(
            Message(
                "{option} must be at least {least}, as tokens are added around each piece "
                "({around}), got {asked}.",
                option=spell("length"),
                least=least,
                around=least - 1,
                asked=length,
            )
        )
    return length
