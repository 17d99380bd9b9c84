"""Streaming: the text of tokens as they come."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from tokenizers.decoders import DecodeStream

from glasshead.tasks.tokenizing.byte_fallback import Mending
from glasshead.tasks.tokenizing.panics import told_panics
from glasshead.tasks.tokenizing.tokenizer import Tokenizer


class StreamDecoder:
    """Text token by token; a character is shown once all its bytes are there.

    Args:
        tokenizer: What makes text of tokens.
        before: Tokens that were shown already, by which it is decided how the next ones begin.

    What `add` gave, and `rest` at the end, is together what `decode` makes of all tokens at once.

    >>> from glasshead.tasks.tokenizing import train_bpe
    >>> tokenizer = train_bpe(["sun"], vocab_size=260)
    >>> stream = StreamDecoder(tokenizer)
    >>> [stream.add(token) for token in tokenizer.encode("a ☀!")]
    ['a', ' ', '', '', '☀', '!']
    """

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._tokens = list(before)
        self._stream = DecodeStream(ids=self._tokens, skip_special_tokens=True)
        self._mending = Mending(tokenizer.byte_of)
        self._shown = len(tokenizer.decode(self._tokens))
        # Those of our own decoders fail on nothing.
        decoder: Any = tokenizer.inner.decoder
        self._of_others = decoder is not None and b'"Regex"' in decoder.__getstate__()

    def add(self, token: int) -> str:
        """The text that is complete with this token, which may be none.

        Errors: a ValueError for a number that is no token.
        """
        self._tokenizer.check([token])
        self._tokens.append(token)
        with told_panics(self._tokenizer.where) if self._of_others else nullcontext():
            steps = (self._stream.step(self._tokenizer.inner, x) for x in self._mending.add(token))
            text = "".join(step or "" for step in steps)
        self._shown += len(text)
        return text

    def rest(self) -> str:
        """What is left at the end: "�" for half a character."""
        left = self._tokenizer.decode(self._tokens)[self._shown :]
        self._shown += len(left)
        return left
