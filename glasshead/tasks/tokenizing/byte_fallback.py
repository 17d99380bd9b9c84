"""Byte fallback: characters that have no token, spelled by tokens of their bytes."""

import codecs
from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer as Inner


def byte_tokens(inner: Inner) -> dict[int, int]:
    """The byte that each token such as <0x0A> stands for; none where they are ordinary text."""
    decoder: Any = inner.decoder
    if decoder is None or b'"ByteFallback"' not in decoder.__getstate__():
        return {}
    numbers = ((inner.token_to_id(f"<0x{byte:02X}>"), byte) for byte in range(256))
    return {number: byte for number, byte in numbers if number is not None}


class Mending:
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
    mending = Mending(byte_of)
    return [one for token in tokens for one in mending.add(token)] + mending.rest()
