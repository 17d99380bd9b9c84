"""Pieces: long texts cut where no token is cut, so that all cores encode them."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

_LENGTH = 2**14
# The most characters that are encoded at once: beyond, what is told of each takes gigabytes.
_MOST = 2**24
# One line break between words is a token of its own, or none: on either side nothing is joined. A
# space between words belongs to the next one, or to none.
_SEAM = re.compile(r"(?<=\S\n)(?=\S)|(?<=\w)(?= \w)")
_SETTING = "TOKENIZERS_PARALLELISM"
# In another process, made from this one, the threads of this one would be waited for.
_OURS, _PROCESS = _SETTING not in os.environ, os.getpid()


def pieces(text: str, length: int = _LENGTH) -> list[str]:
    r"""Cut a text after line breaks and before spaces between words, at some length at least.

    >>> pieces("one\ntwo\n\nthree\nfour", length=2)
    ['one\n', 'two\n\nthree\n', 'four']
    >>> pieces("one, two  three four", length=2)
    ['one, two  three', ' four']
    """
    cut, begin = [], 0
    while seam := _SEAM.search(text, begin + length):
        cut.append(text[begin : seam.start()])
        begin = seam.start()
    return [*cut, text[begin:]]


def check_length(pieces: list[str]) -> list[str]:
    """Return the pieces as they are.

    Errors: a ValueError where one is too long to be encoded at once.
    """
    longest = max(map(len, pieces))
    if longest > _MOST:
        raise ValueError(
            f"a text takes at most {_MOST:,} characters where there is no place to cut it, such as "
            f"a line break between words, and got {longest:,}: break it into lines, or into "
            "several texts."
        )
    return pieces


@contextmanager
def in_parallel() -> Iterator[None]:
    """Let `tokenizers` use all cores, here only, unless its variable was set from the start.

    Afterwards it is told not to: it warns wherever a process in which it did makes another.
    """
    if not _OURS or os.getpid() != _PROCESS:
        yield
        return
    os.environ[_SETTING] = "true"
    try:
        yield
    finally:
        os.environ[_SETTING] = "false"
