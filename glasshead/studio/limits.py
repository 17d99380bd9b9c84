"""Limits: how much the studio takes on, so that no request takes the machine away."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is refused beyond, each with a sentence that says so.

    Attributes:
        sentence: Characters of a sentence that is computed step by step, or translated.
        words: Words of it.
        text: Bytes of a text that is sent to be read.
        texts: Texts that are remembered; the one that was used longest ago is forgotten first.
        heads: Tokens of a text whose heads are drawn.
        atlas: Tokens of a text whose atlas is drawn.
        jobs: Texts that are read at once.
        turns: Smaller pieces of work that are done at once; more of them wait for their turn.
        requests: Requests that are answered at once.
        patience: Seconds within which more of a request has to come.
        memory: Bytes that queries, keys and maps of one text may take.
    """

    sentence: int = 500
    words: int = 24
    text: int = 2**23
    texts: int = 32
    heads: int = 1024
    atlas: int = 2**17
    jobs: int = 2
    turns: int = 4
    requests: int = 64
    patience: float = 20.0
    memory: int = 2**32
