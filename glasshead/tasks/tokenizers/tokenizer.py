"""The tokenizer: encoding, decoding, streaming, and grouping tokens into words."""

import codecs
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

import torch
from jaxtyping import Float, Int
from tokenizers import Tokenizer as Inner
from tokenizers import decoders
from tokenizers.decoders import DecodeStream
from torch import Tensor

from glasshead.files import TOKENIZER_BYTES, whole_file
from glasshead.tasks.data.files import FileName, existing, read_text, shown
from glasshead.tasks.tokenizers.bounds import check_bounds
from glasshead.tasks.tokenizers.chunks import (
    cutting,
    encode_in_chunks,
    in_parallel,
    panics_as_errors,
)
from glasshead.tasks.tokenizers.trial import trial_of, trial_of_rules


@dataclass(frozen=True)
class SpecialTokens:
    """Ids of special tokens; the end token stands in for a missing kind.

    Attributes:
        pad: The padding token.
        unknown: The unknown token.
        start: The start (BOS) token.
        end: The end (EOS) token.
        ends: All end tokens, including `end`.
        before: Tokens prepended to an input text, such as `start`; often none.
    """

    pad: int
    unknown: int
    start: int
    end: int
    ends: tuple[int, ...]
    before: tuple[int, ...] = ()


@dataclass(frozen=True)
class UnknownWords:
    """The words of texts that become the unknown token.

    Attributes:
        words: Each once, in order.
        count: Their number in the texts.
        total: The number of all words.
    """

    words: tuple[str, ...]
    count: int
    total: int


PAD, UNKNOWN, START, END = SPECIAL = ("<pad>", "<unk>", "<start>", "<end>")
END_OF_TEXT = "<|endoftext|>"
# The space in SentencePiece vocabularies.
_SPACE = "▁"


class Tokenizer:
    """A tokenizer over `tokenizers.Tokenizer`, with the same file format.

    Texts are never parsed for special tokens: "<end>" in a text is five characters. Special tokens
    are inserted by id: `pad_id`, `unknown_id`, `start_id`, `end_id`.

    Args:
        inner: The tokenizer of `tokenizers`.
        special: Its special tokens; by default <pad>, <unk>, <start> and <end> of its vocabulary,
            or <|endoftext|> for those that it lacks.
        where: The file that it comes from, for error messages.

    Attributes:
        special: The special tokens.
        vocab_size: Vocabulary size, including special tokens.
        byte_of: The byte of each byte fallback token.

    Errors: a ValueError if special tokens are neither given nor in the vocabulary.

    >>> from glasshead.tasks.tokenizers import characters
    >>> tokenizer = characters(["hello"])
    >>> tokenizer.decode([tokenizer.start_id, *tokenizer.encode("hole"), tokenizer.end_id])
    'hole'
    """

    def __init__(
        self, inner: Inner, special: SpecialTokens | None = None, where: str = "the tokenizer"
    ) -> None:
        self.inner, self.where = inner, where
        inner.encode_special_tokens = True
        inner.no_padding()
        inner.no_truncation()
        self.special = _found(inner) if special is None else special
        # Vocabularies of published models may have gaps.
        self.vocab_size = max(inner.get_vocab().values(), default=-1) + 1
        self.byte_of = byte_tokens(inner)
        self.cut, self._trial = cutting(inner), trial_of(inner, where)

    @property
    def pad_id(self) -> int:
        """Id of the padding token."""
        return self.special.pad

    @property
    def unknown_id(self) -> int:
        """Id of the unknown token."""
        return self.special.unknown

    @property
    def start_id(self) -> int:
        """Id of the start token."""
        return self.special.start

    @property
    def end_id(self) -> int:
        """Id of the end token."""
        return self.special.end

    def encode(self, text: str) -> list[int]:
        """Encode a text to token ids, without special tokens.

        Errors: as for `encode_batch`.
        """
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Encode several texts in parallel, without special tokens.

        Errors: a TypeError if one is no text; a ValueError if one has a lone surrogate, more
        than 2²⁴ characters without a place to split it, makes the tokenizer fail, or takes
        too long.
        """
        cut = [self.cut(_checked(text)) for text in texts]
        if self._trial is not None:
            self._trial.check(chunk for chunks in cut for chunk in chunks)
        with in_parallel(), panics_as_errors(self.where):
            return encode_in_chunks(cut, self._encoded)

    def _encoded(self, chunks: list[str]) -> list[list[int]]:
        encoded = self.inner.encode_batch_fast(chunks, add_special_tokens=False)
        return [each.ids for each in encoded]

    def normalized(self, text: str) -> str:
        """Return a text with its letters as the tokenizer reads them, such as lowercased."""
        normalizer: Any = self.inner.normalizer
        return text if normalizer is None else normalizer.normalize_str(_checked(text))

    def unknown_words(self, texts: Iterable[str]) -> "UnknownWords":
        """Find the parts of texts that become the unknown token.

        Errors: as for `encode_batch`.
        """
        unknown, parts, count, total = self.unknown_id, dict[str, None](), 0, 0
        if unknown == self.end_id:
            return UnknownWords((), 0, 0)
        for text in map(_checked, texts):
            if self._trial is not None:
                self._trial.check([text])
            with panics_as_errors(self.where):
                encoding = self.inner.encode(text, add_special_tokens=False)
            pairs = zip(encoding.ids, encoding.offsets, strict=True)
            parts |= {text[slice(*span)]: None for token, span in pairs if token == unknown}
            # Without a pre-tokenizer each token is a word.
            whole = self.inner.pre_tokenizer is None
            total += len(encoding.ids if whole else {*encoding.word_ids})
            count += encoding.ids.count(unknown)
        return UnknownWords((*parts,), count, total)

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode token ids to a text; special tokens are skipped, except the unknown token.

        Errors: a ValueError for an id out of range.
        """
        self.check(tokens)
        if self.byte_of:
            tokens = repaired(self.byte_of, tokens)
        with panics_as_errors(self.where):
            return self.inner.decode(tokens, skip_special_tokens=True)

    def token(self, number: int) -> str:
        r"""Return the text of a token: " the", not "Ġthe"; incomplete UTF-8 as "\xe2".

        Errors: a ValueError for an id out of range.
        """
        self.check([number])
        token = self.inner.id_to_token(number) or ""
        if token in {*SPECIAL, END_OF_TEXT}:
            return token
        of_bytes = isinstance(self.inner.decoder, decoders.ByteLevel)
        return readable(token) if of_bytes else token.replace(_SPACE, " ")

    def check(self, tokens: Sequence[int]) -> None:
        """Check that token ids are in range.

        Errors: a ValueError if one is not.
        """
        if len(tokens) and not 0 <= min(tokens) <= max(tokens) < self.vocab_size:
            wrong = next(number for number in tokens if not 0 <= number < self.vocab_size)
            raise ValueError(
                f"tokens must be numbers from 0 to {self.vocab_size - 1}, got {wrong}. Use the "
                "tokenizer that belongs to the model."
            )

    def save(self, name: FileName) -> None:
        """Write a tokenizer.json in the format of `tokenizers`, atomically.

        Errors: an OSError if it cannot be written; nothing is left behind.
        """
        path = Path(name)
        try:
            with whole_file(path) as temporary:
                temporary.write_text(self.inner.to_str(pretty=True), encoding="utf-8")
        except OSError as error:
            raise type(error)(
                f"{shown(path)} cannot be written ({error.strerror}). Name another place."
            ) from error

    @classmethod
    def load(cls, name: FileName) -> Self:
        """Read a tokenizer.json.

        Errors: an OSError if it does not exist or cannot be read; a ValueError if it holds no
        tokenizer, or one without special tokens.
        """
        path = existing(name)
        inner = read_inner(path)
        try:
            return cls(inner, where=shown(path))
        except ValueError as error:
            raise _unusable(path, error) from error

    def __reduce__(self) -> tuple[Callable[..., "Tokenizer"], tuple[str, SpecialTokens]]:
        """Pickle by the content of tokenizer.json."""
        return _from_json, (self.inner.to_str(), self.special)


def read_inner(path: Path) -> Inner:
    """Parse a tokenizer.json by `tokenizers`.

    Errors: an OSError if it cannot be read or is no regular file; a ValueError if it holds no
    tokenizer, or one of which `check_bounds` disapproves.
    """
    text = read_checked(path)
    try:
        with panics_as_errors(shown(path)):
            return Inner.from_str(text)
    except Exception as error:  # `tokenizers` raises no other
        raise _unusable(path, error) from error


def read_checked(path: Path) -> str:
    """Read a tokenizer.json and check its bounds.

    Errors: as of `read_inner`, but for a vocabulary that `tokenizers` does not take.
    """
    text = read_text(path, most=TOKENIZER_BYTES)
    try:
        description = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{shown(path)}, line {error.lineno}: expected the JSON of a tokenizer, got invalid "
            f"JSON ({error.msg}). Save it again."
        ) from error
    except RecursionError as error:
        raise ValueError(f"{shown(path)} is nested too deeply to be a tokenizer.") from error
    except ValueError as error:  # a number with too many digits
        raise _unusable(path, error) from error
    try:
        rules = check_bounds(description, shown(path))
    except ValueError:
        raise
    except Exception as error:  # `tokenizers` raises no other
        raise _unusable(path, error) from error
    # Added tokens are normalized while it is read, and a text is encoded at once.
    added = description.get("added_tokens") if isinstance(description, dict) else None
    trial = trial_of_rules(rules, added, shown(path))
    if trial is not None:
        trial.check([LEAST])
    return text


# By this text, the tokens are found that a tokenizer puts around others.
LEAST = "a"


def _unusable(path: Path, error: Exception) -> ValueError:
    return ValueError(
        f"{shown(path)} does not hold a tokenizer that can be used ({error}). Name a "
        "tokenizer.json, or make a new one."
    )


def _from_json(text: str, special: SpecialTokens) -> Tokenizer:
    return Tokenizer(Inner.from_str(text), special)


def _found(inner: Inner) -> SpecialTokens:
    """Look up <pad>, <unk>, <start> and <end>, or GPT-2's <|endoftext|> in their place."""
    numbers = []
    for name in SPECIAL:
        number = inner.token_to_id(name)
        if number is None:
            number = inner.token_to_id(END_OF_TEXT)
        if number is None:
            raise ValueError(f"its vocabulary has neither {name} nor {END_OF_TEXT}")
        numbers.append(number)
    return SpecialTokens(*numbers, ends=(numbers[-1],))


def _checked(text: str) -> str:
    if not isinstance(text, str):
        raise TypeError(f"a text must be a string, got {type(text).__name__}.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"a text must have whole characters, got half of one, {text[error.start]!r}, at "
            f"position {error.start}."
        ) from error
    return text


class StreamDecoder:
    """Incremental decoding: text token by token, each character once all its bytes have come.

    Args:
        tokenizer: The tokenizer.
        before: Preceding tokens, on which the spacing of the next ones depends.

    The results of `add`, and of `rest` at the end, concatenate to `decode` of all tokens.

    >>> from glasshead.tasks.tokenizers import train_bpe
    >>> tokenizer = train_bpe(["sun"], vocab_size=260)
    >>> stream = StreamDecoder(tokenizer)
    >>> [stream.add(token) for token in tokenizer.encode("a ☀!")]
    ['a', ' ', '', '', '☀', '!']
    """

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._tokens = list(before)
        self._stream = DecodeStream(ids=self._tokens, skip_special_tokens=True)
        self._repair = Utf8Repair(tokenizer.byte_of)
        self._shown = len(tokenizer.decode(self._tokens))

    def add(self, token: int) -> str:
        """Add a token and return the text that it completes, which may be empty.

        Errors: a ValueError for an id out of range.
        """
        self._tokenizer.check([token])
        self._tokens.append(token)
        steps = (self._stream.step(self._tokenizer.inner, x) for x in self._repair.add(token))
        text = "".join(step or "" for step in steps)
        self._shown += len(text)
        return text

    def rest(self) -> str:
        """Return the text left at the end: "�" for an incomplete character."""
        left = self._tokenizer.decode(self._tokens)[self._shown :]
        self._shown += len(left)
        return left


# A word with its apostrophes and hyphens, or a punctuation mark.
_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")


@dataclass(frozen=True, eq=False)
class WholeWords:
    """Words, and the tokens that they consist of.

    Attributes:
        words: The words, in order.
        word_of: The place of each token's word in `words`.
    """

    words: tuple[str, ...]
    word_of: Int[Tensor, " tokens"]

    def sum(self, numbers: Float[Tensor, "... tokens"]) -> Float[Tensor, "... words"]:
        """Sum over the tokens of each word."""
        sums = numbers.new_zeros(*numbers.shape[:-1], len(self.words))
        return sums.index_add(-1, self.word_of, numbers)

    def mean(self, numbers: Float[Tensor, "... tokens"]) -> Float[Tensor, "... words"]:
        """Average over the tokens of each word."""
        return self.sum(numbers) / self.word_of.bincount(minlength=len(self.words))


def whole_words(tokenizer: Tokenizer, tokens: Sequence[int]) -> WholeWords:
    """Group tokens into words; a token belongs to the word with which it shares most characters.

    The tokens of one character belong together.

    >>> from glasshead.tasks.tokenizers import characters
    >>> tokenizer = characters(["a day!"])
    >>> words = whole_words(tokenizer, tokenizer.encode("a day!"))
    >>> words.words, words.word_of.tolist()
    (('a', 'day', '!'), [0, 0, 1, 1, 1, 2])
    """
    text = tokenizer.decode(tokens)
    found = [match.span() for match in _WORD.finditer(text)] or [(0, len(text))]
    places, first = [], 0
    for begin, end in _spans(tokenizer, tokens):
        while first + 1 < len(found) and found[first + 1][0] <= begin:
            first += 1
        last = first
        while last + 1 < len(found) and found[last][0] < end:
            last += 1
        shared = [min(end, stop) - max(begin, start) for start, stop in found[first : last + 1]]
        places.append(first + shared.index(max(shared)))
    # Drop words that no token belongs to.
    own, word_of = torch.tensor(places, dtype=torch.long).unique(return_inverse=True)
    return WholeWords(tuple(text[slice(*found[place])] for place in own.tolist()), word_of)


def _spans(tokenizer: Tokenizer, tokens: Sequence[int]) -> list[tuple[int, int]]:
    """Return where the text of each token begins and ends; one without text shares the next's."""
    stream, spans, begin, waiting = StreamDecoder(tokenizer), [], 0, 0
    for token in tokens:
        waiting += 1
        if written := stream.add(token):
            spans += [(begin, begin + len(written))] * waiting
            begin, waiting = begin + len(written), 0
    return [*spans, *[(begin, begin + len(stream.rest()))] * waiting]


@cache
def letters() -> dict[str, int]:
    """Return the byte of each character in byte-level tokens.

    A printable byte stands for itself; the others, in order, are the characters from 256 on: "Ġ" is
    the space.

    Source: Radford et al. 2019 (GPT-2), `bytes_to_unicode` of the published code.

    >>> letters()["a"], letters()["Ġ"], len(letters())
    (97, 32, 256)
    """
    seen = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {
        chr(256 + place): byte for place, byte in enumerate(hidden)
    }


def readable(token: str) -> str:
    r"""Return the text of a byte-level token, with incomplete UTF-8 escaped as "\xe2".

    >>> readable("Ġthe"), readable("âĺ")
    (' the', '\\xe2\\x98')
    """
    known = letters()
    if not known.keys() >= set(token):
        return token
    return bytes(known[letter] for letter in token).decode(errors="backslashreplace")


def byte_tokens(inner: Inner) -> dict[int, int]:
    """Return the bytes of byte fallback tokens such as <0x0A>, by token id; {} without fallback."""
    decoder: Any = inner.decoder
    if decoder is None or b'"ByteFallback"' not in decoder.__getstate__():
        return {}
    numbers = ((inner.token_to_id(f"<0x{byte:02X}>"), byte) for byte in range(256))
    return {number: byte for number, byte in numbers if number is not None}


class Utf8Repair:
    """Replace invalid UTF-8 in a stream of byte fallback tokens by the tokens of "�".

    Without this, `tokenizers` would change text that was already streamed: it decodes every byte of
    a sequence with an invalid one to "�".

    Args:
        byte_of: The byte of each byte fallback token.
    """

    def __init__(self, byte_of: Mapping[int, int]) -> None:
        self._byte_of = byte_of
        self._number_of = {byte: number for number, byte in byte_of.items()}
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, token: int) -> list[int]:
        """Add a token and return the tokens that are now complete."""
        if token in self._byte_of:
            return self._spelled(self._decoder.decode(bytes([self._byte_of[token]])))
        return [*self.rest(), token]

    def rest(self) -> list[int]:
        """Return the tokens of an incomplete character at the end."""
        return self._spelled(self._decoder.decode(b"", final=True))

    def _spelled(self, text: str) -> list[int]:
        return [self._number_of[byte] for byte in text.encode()]


def repaired(byte_of: Mapping[int, int], tokens: Sequence[int]) -> list[int]:
    """Repair a whole sequence of tokens.

    >>> byte_of = {10 + byte: byte for byte in range(256)}
    >>> repaired(byte_of, [10 + ord("a"), 10 + 0xE2, 3]) == [10 + x for x in "a�".encode()] + [3]
    True
    """
    repair = Utf8Repair(byte_of)
    return [each for token in tokens for each in repair.add(token)] + repair.rest()
