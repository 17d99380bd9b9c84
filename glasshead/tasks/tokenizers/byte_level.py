"""Byte-level vocabularies, and characters spelled by the tokens of their bytes."""

import codecs
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from tokenizers import Tokenizer as Inner


@cache
def letters() -> dict[str, int]:
    """The byte that each letter of such a token stands for.

    A byte that is seen when printed stands for itself; the others, in their order, are the letters
    from 256 on: "Ġ" is the space.

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
    r"""A token as the text that it stands for; bytes of half a character as "\xe2".

    >>> readable("Ġthe"), readable("âĺ")
    (' the', '\\xe2\\x98')
    """
    known = letters()
    if not known.keys() >= set(token):
        return token
    return bytes(known[letter] for letter in token).decode(errors="backslashreplace")


def byte_tokens(inner: Inner) -> dict[int, int]:
    """The byte that each token such as <0x0A> stands for; none where they are ordinary text."""
    decoder: Any = inner.decoder
    if decoder is None or b'"ByteFallback"' not in decoder.__getstate__():
        return {}
    numbers = ((inner.token_to_id(f"<0x{byte:02X}>"), byte) for byte in range(256))
    return {number: byte for number, byte in numbers if number is not None}


class Utf8Repair:
    """Tokens as they come, those that spell no character made those of "�".

    `tokenizers` would take back what it has shown: it makes "�" of every byte of a row of them in
    which one is wrong.

    Args:
        byte_of: The byte that a token stands for, for those that stand for one.
    """

    def __init__(self, byte_of: Mapping[int, int]) -> None:
        self._byte_of = byte_of
        self._number_of = {byte: number for number, byte in byte_of.items()}
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, token: int) -> list[int]:
        """The tokens that are complete with this one."""
        if token in self._byte_of:
            return self._spelled(self._decoder.decode(bytes([self._byte_of[token]])))
        return [*self.rest(), token]

    def rest(self) -> list[int]:
        """Those of half a character that nothing completes."""
        return self._spelled(self._decoder.decode(b"", final=True))

    def _spelled(self, text: str) -> list[int]:
        return [self._number_of[byte] for byte in text.encode()]


def mended(byte_of: Mapping[int, int], tokens: Sequence[int]) -> list[int]:
    """All tokens at once.

    >>> byte_of = {10 + byte: byte for byte in range(256)}
    >>> mended(byte_of, [10 + ord("a"), 10 + 0xE2, 3]) == [10 + x for x in "a�".encode()] + [3]
    True
    """
    mending = Utf8Repair(byte_of)
    return [one for token in tokens for one in mending.add(token)] + mending.rest()
