"""Kept: what was read of a file, until the file is written to again."""

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from glasshead.drawing.printable import printable

_T = TypeVar("_T")
_LETTERS = 400

Mark = tuple[int, int, int]


class Kept(Generic[_T]):
    """What a file tells, read anew where it has changed since, and what is wrong with it.

    Args:
        file: Which; it may come and go.
        read: Reads it.
        nothing: What stands for a file that is not there, or cannot be read.

    Attributes:
        value: As read last.
        mark: Of the file when it was read; None where it was not.
        problem: What is wrong with it, in one sentence; None: nothing.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "number"
    >>> kept = Kept(file, lambda: int(file.read_text()), 0)
    >>> _ = file.write_text("7")
    >>> kept.refresh()
    >>> kept.value
    7
    """

    def __init__(self, file: Path, read: Callable[[], _T], nothing: _T) -> None:
        self._file, self._read, self._nothing = file, read, nothing
        self.value = nothing
        self.mark: Mark | None = None
        self.problem: str | None = None

    def refresh(self) -> None:
        """Read the file where it has changed; what is wrong with it is told in `problem`."""
        mark = mark_of(self._file)
        if mark is not None and mark == self.mark:
            return
        self.value, self.mark, self.problem = self._nothing, mark, None
        if mark is None:
            return
        try:
            self.value = self._read()
        except FileNotFoundError:
            # It has just vanished. When it is back it may bear the same mark.
            self.mark = None
        except OSError as error:
            self.mark, self.problem = None, _sentence(self._file, error)
        except ValueError as error:
            self.problem = _sentence(self._file, error)


def mark_of(file: Path) -> Mark | None:
    """What tells a file from what it was before: when it was written, how long it is, and which.

    None where it is not there.
    """
    try:
        known = file.stat()
    except (OSError, ValueError):
        return None
    return known.st_mtime_ns, known.st_size, known.st_ino


def _sentence(file: Path, error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return printable(f"{file} cannot be read ({error.strerror}).")[:_LETTERS]
    return printable(str(error))[:_LETTERS]
