"""A sentence that remembers how it was filled in, so that whoever shows it can translate it."""

from collections.abc import Sequence
from typing import Any, Self


def _(sentence: str) -> str:
    """Mark a sentence for translation and return it unchanged."""
    return sentence


# How parts are joined: Chinese has marks of its own.
_JOINED = {
    ", ": _("{first}, {then}"),
    "; ": _("{first}; {then}"),
    " + ": _("{first} + {then}"),
    " and ": _("{first} and {then}"),
    " or ": _("{first} or {then}"),
}


class Message(str):
    """An English sentence with its placeholders filled in; errors carry it to whoever shows them.

    It is a string like any other, so that an error that has one reads as any other does, and
    `Say.translated` translates it. `make translations` collects the sentences. A value may be a
    message, too.

    Attributes:
        sentence: The sentence with its named placeholders.
        places: The value of each.

    >>> error = ValueError(Message("{count} heads are too many.", count=3))
    >>> str(error), error.args[0].places
    ('3 heads are too many.', {'count': 3})
    """

    __slots__ = ("places", "sentence")

    sentence: str
    places: dict[str, Any]

    def __new__(cls, sentence: str, /, **places: object) -> Self:
        message = super().__new__(cls, sentence.format(**places))
        message.sentence, message.places = sentence, places
        return message

    @classmethod
    def joined(cls, separator: str, parts: Sequence[str]) -> Self:
        """Join texts that may be messages themselves.

        >>> Message.joined(", ", ["query 4", "key 6"])
        'query 4, key 6'
        """
        sentence = _JOINED.get(separator, f"{{first}}{separator}{{then}}")
        joined = cls("{first}", first=parts[0]) if parts else cls("")
        for part in parts[1:]:
            joined = cls(sentence, first=joined, then=part)
        return joined

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, Any]]:
        """Pickle as the sentence and its places."""
        return (self.sentence,), self.places
