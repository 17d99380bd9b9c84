"""Long texts encoded in chunks on all cores, and failures of `tokenizers` in one sentence."""

import os
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_STDERR = 2
_PANIC = "PanicException"


class _Aside:
    """What libraries write to standard error, set aside while any thread is within.

    Attributes:
        dropped: Whether it is to be forgotten.
    """

    def __init__(self) -> None:
        self._lock, self._within = threading.Lock(), 0
        self._real = self._file = -1
        self.dropped = False

    def begin(self) -> None:
        """Write to a file from now on."""
        with self._lock:
            self._within += 1
            if self._within == 1:
                self.dropped = False
                # Where there is no standard error, or no room for a file, nothing is set aside.
                with suppress(OSError):
                    self._real = os.dup(_STDERR)
                    self._file = _in_memory()
                    os.dup2(self._file, _STDERR)

    def end(self) -> None:
        """Write to standard error again, what was set aside first."""
        with self._lock:
            self._within -= 1
            if self._within or self._real < 0:
                return
            with suppress(OSError):
                os.dup2(self._real, _STDERR)
            if not self.dropped and self._file >= 0:
                os.lseek(self._file, 0, os.SEEK_SET)
                while some := os.read(self._file, 2**16):
                    with suppress(OSError):
                        os.write(_STDERR, some)
            for descriptor in (self._real, self._file):
                with suppress(OSError):
                    os.close(descriptor)
            self._real = self._file = -1


def _in_memory() -> int:
    """The descriptor of a file without a name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("stderr")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


_ASIDE = _Aside()


@contextmanager
def told_panics(where: str) -> Iterator[None]:
    """Make a ValueError of a panic of `tokenizers`, whose backtrace goes nowhere.

    A panic is no Exception to Python, and the library writes it to the descriptor of standard error
    before it is raised: it is set aside, with what other threads write meanwhile, and written
    afterwards where there was none.

    Args:
        where: The file that holds the tokenizer, for the error.

    Errors: a ValueError that names the file.
    """
    _ASIDE.begin()
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        _ASIDE.dropped = True
        said = " ".join(str(error).split())[:200].removesuffix(".")
        raise ValueError(
            f"{where} has a tokenizer that fails on this text ({said}): take one whose regular "
            "expressions are simpler, or another text."
        ) from None
    finally:
        _ASIDE.end()


_LENGTH = 2**14
# The most characters that are encoded at once: beyond, what is told of each takes gigabytes.
_MOST = 2**24
# One line break between words is a token of its own, or none: on either side nothing is joined. A
# space between words belongs to the next one, or to none.
_SEAM = re.compile(r"(?<=\S\n)(?=\S)|(?<=\w)(?= \w)")
_SETTING = "TOKENIZERS_PARALLELISM"
# In another process, made from this one, the threads of this one would be waited for.
_OURS, _PROCESS = _SETTING not in os.environ, os.getpid()


def chunks_of_text(text: str, length: int = _LENGTH) -> list[str]:
    r"""Cut a text after line breaks and before spaces between words, at some length at least.

    >>> chunks_of_text("one\ntwo\n\nthree\nfour", length=2)
    ['one\n', 'two\n\nthree\n', 'four']
    >>> chunks_of_text("one, two  three four", length=2)
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
