"""Stopping: a text as it comes, up to where it is to end."""

from collections.abc import Sequence
from typing import Any

from glasshead.tasks.tokenizing import StreamDecoder, Tokenizer


class StoppedText:
    """The text of tokens as they come, up to the first stop string, no part of which is shown.

    Of several stop strings it is the one that is complete first, of those the longest: the same in
    whatever pieces the text comes. What may become one is held back until it cannot.

    Args:
        tokenizer: What makes text of tokens.
        before: Tokens that were shown already.
        stop: The stop strings; a part of one among the tokens shown already does not count.

    Attributes:
        stopped: Whether a stop string has come.

    >>> from glasshead.tasks.tokenizing import characters
    >>> tokenizer = characters(["one two"])
    >>> text = StoppedText(tokenizer, stop=["two"])
    >>> [text.add(token) for token in tokenizer.encode("one to two")], text.stopped
    (['o', 'n', 'e', ' ', '', 'to', ' ', '', '', ''], True)
    """

    def __init__(
        self, tokenizer: Tokenizer, before: Sequence[int] = (), stop: Sequence[str] = ()
    ) -> None:
        self._stream = StreamDecoder(tokenizer, before)
        self._stop = stop
        self._held = ""
        self.stopped = False

    def add(self, token: int) -> str:
        """What is sure to be shown with this token."""
        return self._shown(self._stream.add(token))

    def rest(self) -> str:
        """What was held back, where no stop string became of it."""
        if self.stopped:
            return ""
        shown = self._shown(self._stream.rest())
        return shown if self.stopped else shown + self._held

    def _shown(self, text: str) -> str:
        if not self._stop:
            return text
        self._held += text
        begins = self._begins()
        shown, self._held = self._held[:begins], self._held[begins:]
        return shown

    def _begins(self) -> int:
        """Where a stop string begins, or what may become one."""
        held = self._held
        found = [(at + len(one), at) for one in self._stop if (at := held.find(one)) >= 0]
        if found:
            self.stopped = True
            return min(found)[1]
        longest = max(map(len, self._stop)) - 1
        first = max(0, len(held) - longest)
        places = range(first, len(held))
        return next((at for at in places if self._may_become(held[at:])), len(held))

    def _may_become(self, text: str) -> bool:
        return any(one.startswith(text) for one in self._stop)


def checked_stop(stop: Any) -> tuple[str, ...]:
    """The stop strings, or an error where they are none."""
    if isinstance(stop, str) or not isinstance(stop, Sequence):
        raise TypeError(f"stop takes several texts, and got {stop!r}: put one into a list.")
    for one in stop:
        if not isinstance(one, str):
            raise TypeError(f"stop takes texts, and got {type(one).__name__} {one!r}.")
        if not one:
            raise ValueError("stop takes texts of a character at least, and got ''.")
    return tuple(stop)
