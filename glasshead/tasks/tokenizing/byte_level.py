"""Byte level: the letters that stand for bytes in the vocabularies of GPT-2's kind."""

from functools import cache


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
