"""The tokenizer: texts as numbers, and numbers as texts."""

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Self

from tokenizers import Tokenizer as Inner
from tokenizers import decoders, pre_tokenizers

from glasshead.tasks.reading.files import FileName, existing, read_text, shown
from glasshead.tasks.tokenizing.byte_level import readable
from glasshead.tasks.tokenizing.pieces import in_parallel, pieces
from glasshead.whole_file import whole_file

PAD, UNKNOWN, START, END = SPECIAL = ("<pad>", "<unk>", "<start>", "<end>")
END_OF_TEXT = "<|endoftext|>"

# How many pieces of texts are encoded at once: what `tokenizers` tells of each takes memory.
_AT_ONCE = 256


class Tokenizer:
    """Texts as numbers of tokens, by a `tokenizers.Tokenizer`; its file is that library's, too.

    A text is only a text: "<end>" in it is five characters, never the special token. Those are put
    in by number: `pad_id`, `unknown_id`, `start_id`, `end_id`.

    Args:
        inner: The tokenizer of `tokenizers`; its vocabulary has <pad>, <unk>, <start> and <end>, or
            <|endoftext|> for those that it lacks.

    Errors: a ValueError where it has neither.

    >>> from glasshead.tasks.tokenizing import characters
    >>> tokenizer = characters(["hello"])
    >>> tokenizer.decode([tokenizer.start_id, *tokenizer.encode("hole"), tokenizer.end_id])
    'hole'
    """

    def __init__(self, inner: Inner) -> None:
        self.inner = inner
        inner.encode_special_tokens = True
        inner.no_padding()
        inner.no_truncation()
        self.pad_id, self.unknown_id, self.start_id, self.end_id = map(self._special, SPECIAL)
        self._cut = _cut(inner)

    @property
    def vocab_size(self) -> int:
        """How many tokens there are, the special ones with them."""
        return self.inner.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """The numbers of a text's tokens, without special ones.

        Errors: as for `encode_batch`.
        """
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """The same for each of several texts, on all cores.

        Errors: a TypeError where one is no text; a ValueError where one has half a character.
        """
        cut = [self._cut(_checked(text)) for text in texts]
        every = (piece for text in cut for piece in text)
        tokens: list[list[int]] = []
        with in_parallel():
            while some := list(islice(every, _AT_ONCE)):
                encoded = self.inner.encode_batch_fast(some, add_special_tokens=False)
                tokens += [piece.ids for piece in encoded]
        of_pieces = iter(tokens)
        return [[t for piece in islice(of_pieces, len(text)) for t in piece] for text in cut]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens; of the special ones, only the unknown is seen.

        Errors: a ValueError for a number that is no token.
        """
        self.check(tokens)
        return self.inner.decode(tokens, skip_special_tokens=True)

    def token(self, number: int) -> str:
        r"""A token as it is read: " the", not "Ġthe"; bytes of half a character as "\xe2".

        Errors: a ValueError for a number that is no token.
        """
        self.check([number])
        token = self.inner.id_to_token(number) or ""
        of_bytes = isinstance(self.inner.decoder, decoders.ByteLevel)
        return readable(token) if of_bytes and token not in {*SPECIAL, END_OF_TEXT} else token

    def check(self, tokens: Sequence[int]) -> None:
        """Raise a ValueError for a number that is no token."""
        if len(tokens) and not 0 <= min(tokens) <= max(tokens) < self.vocab_size:
            wrong = next(number for number in tokens if not 0 <= number < self.vocab_size)
            raise ValueError(
                f"tokens takes numbers from 0 to {self.vocab_size - 1}, and got {wrong}: take the "
                f"tokenizer that goes with the model."
            )

    def save(self, name: FileName) -> None:
        """Write a tokenizer.json, as `tokenizers` reads it: whole or not at all.

        Errors: an OSError where it cannot be written; nothing is left behind.
        """
        path = Path(name)
        try:
            with whole_file(path) as beside:
                beside.write_text(self.inner.to_str(pretty=True), encoding="utf-8")
        except OSError as error:
            raise type(error)(
                f"{shown(path)} cannot be written ({error.strerror}): name another place."
            ) from error

    @classmethod
    def load(cls, name: FileName) -> Self:
        """Read a tokenizer.json.

        Errors: an OSError where it is not there or cannot be read; a ValueError where it holds no
        tokenizer, or one without special tokens.
        """
        path = existing(name)
        text = read_text(path)
        try:
            json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"{shown(path)}, line {error.lineno}: expected the JSON of a tokenizer, and got "
                f"what is no JSON ({error.msg}): save it anew."
            ) from error
        except RecursionError as error:
            raise ValueError(f"{shown(path)} is nested too deeply to be a tokenizer.") from error
        try:
            return cls(Inner.from_str(text))
        except Exception as error:  # `tokenizers` raises no other
            raise ValueError(
                f"{shown(path)} holds no tokenizer that can be used ({error}): name a "
                f"tokenizer.json, or make one anew."
            ) from error

    def _special(self, name: str) -> int:
        number = self.inner.token_to_id(name)
        if number is None:
            number = self.inner.token_to_id(END_OF_TEXT)
        if number is None:
            raise ValueError(f"its vocabulary has neither {name} nor {END_OF_TEXT}")
        return number

    def __reduce__(self) -> tuple[Callable[[str], "Tokenizer"], tuple[str]]:
        """A copy is made of what a file would hold."""
        return _from_json, (self.inner.to_str(),)


def _from_json(text: str) -> Tokenizer:
    return Tokenizer(Inner.from_str(text))


def _cut(inner: Inner) -> Callable[[str], list[str]]:
    """How long texts are cut for a tokenizer: not at all where tokens might go over line breaks."""
    kinds = (pre_tokenizers.ByteLevel, pre_tokenizers.BertPreTokenizer)
    before: Any = inner.pre_tokenizer
    seams = isinstance(before, kinds) and not getattr(before, "add_prefix_space", False)
    alone = before is None and '"merges":[]' in inner.to_str()
    return pieces if seams or alone else lambda text: [text]


def _checked(text: str) -> str:
    if not isinstance(text, str):
        raise TypeError(f"a tokenizer takes texts, and got {type(text).__name__}.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"a tokenizer takes whole characters, and got half of one, {text[error.start]!r}, at "
            f"position {error.start}: leave it out."
        ) from error
    return text
