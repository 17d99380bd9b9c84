"""Pieces: long texts cut where no token is cut, so that all cores encode them."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

_LENGTH = 2**14
# One line break between words is a token of its own, or none: on either side nothing is joined.
_SEAM = re.compile(r"(?<=\S\n)(?=\S)")
_SETTING = "TOKENIZERS_PARALLELISM"
# In another process, made from this one, the threads of this one would be waited for.
_OURS, _PROCESS = _SETTING not in os.environ, os.getpid()


def pieces(text: str, length: int = _LENGTH) -> list[str]:
    r"""Cut a text after line breaks between words, into pieces of some length at least.

    >>> pieces("one\ntwo\n\nthree\nfour", length=2)
    ['one\n', 'two\n\nthree\n', 'four']
    """
    cut, begin = [], 0
    while seam := _SEAM.search(text, begin + length):
        cut.append(text[begin : seam.start()])
        begin = seam.start()
    return [*cut, text[begin:]]


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
