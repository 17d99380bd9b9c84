"""Streaming: the text of tokens as they come."""

from tokenizers.decoders import DecodeStream

from glasshead.tasks.tokenizing.tokenizer import Tokenizer


class StreamDecoder:
    """Text token by token; a character is shown once all its bytes are there.

    What `add` gave, and `rest` at the end, is together what `decode` makes of all tokens at once.

    >>> from glasshead.tasks.tokenizing import train_bpe
    >>> tokenizer = train_bpe(["sun"], vocab_size=260)
    >>> stream = StreamDecoder(tokenizer)
    >>> [stream.add(token) for token in tokenizer.encode("a ☀!")]
    ['a', ' ', '', '', '☀', '!']
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._tokens: list[int] = []
        self._shown = 0

    def add(self, token: int) -> str:
        """The text that is complete with this token, which may be none.

        Errors: a ValueError for a number that is no token.
        """
        self._tokenizer.check([token])
        self._tokens.append(token)
        text = self._stream.step(self._tokenizer.inner, token) or ""
        self._shown += len(text)
        return text

    def rest(self) -> str:
        """What is left at the end: "�" for half a character."""
        left = self._tokenizer.decode(self._tokens)[self._shown :]
        self._shown += len(left)
        return left
