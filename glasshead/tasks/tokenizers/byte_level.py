"""Byte-level vocabularies and byte fallback."""

import codecs
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from tokenizers import Tokenizer as Inner


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


def mended(byte_of: Mapping[int, int], tokens: Sequence[int]) -> list[int]:
    """Repair a whole sequence of tokens.

    >>> byte_of = {10 + byte: byte for byte in range(256)}
    >>> mended(byte_of, [10 + ord("a"), 10 + 0xE2, 3]) == [10 + x for x in "a�".encode()] + [3]
    True
    """
    repair = Utf8Repair(byte_of)
    return [each for token in tokens for each in repair.add(token)] + repair.rest()
