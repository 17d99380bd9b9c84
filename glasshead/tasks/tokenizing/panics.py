"""Panics of `tokenizers`: one sentence of them, and none of their backtrace."""

import os
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
