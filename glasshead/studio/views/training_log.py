"""Reading the logs of a run while they are written, and downsampling them for charts."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from glasshead.drawing.printable import printable
from glasshead.files import read_regular


def buckets(count: int, most: int) -> list[range]:
    """Group the indices of a series into buckets of 2ᵏ, the last index on its own.

    A growing series keeps its buckets until it doubles, so that its chart does not jitter, and its
    last value is exact.

    Args:
        count: Length of the series.
        most: Maximum number of buckets, at least 2.

    >>> buckets(4, 5)
    [range(0, 1), range(1, 2), range(2, 3), range(3, 4)]
    >>> buckets(8, 5)
    [range(0, 2), range(2, 4), range(4, 6), range(6, 7), range(7, 8)]
    """
    if count <= most:
        return [range(place, place + 1) for place in range(count)]
    size = 1 << math.ceil(math.log2((count - 1) / (most - 1)))
    inner = [range(start, min(start + size, count - 1)) for start in range(0, count - 1, size)]
    return [*inner, range(count - 1, count)]


def downsampled(
    steps: Sequence[int], values: Sequence[float], most: int
) -> tuple[list[int], list[float]]:
    """Downsample a curve to the smallest and the largest value of each bucket, in step order.

    Args:
        steps: Step of each value.
        values: The values; NaN is neither smallest nor largest.
        most: Maximum number of points, at least 4.

    >>> downsampled([10, 20, 30, 40, 50, 60, 70], [5.0, 9.0, 1.0, 4.0, 3.0, 3.0, 2.0], 6)
    ([20, 30, 50, 70], [9.0, 1.0, 3.0, 2.0])
    """
    if len(values) <= most:
        return list(steps), list(values)
    chosen: list[int] = []
    for bucket in buckets(len(values), most // 2):
        known = [place for place in bucket if not math.isnan(values[place])] or [bucket[0]]
        low, high = (pick(known, key=values.__getitem__) for pick in (min, max))
        chosen += sorted({low, high})
    return [steps[place] for place in chosen], [values[place] for place in chosen]


def smoothed(values: Sequence[float], share: float) -> list[float]:
    """Smooth a curve by a bias-corrected exponential moving average.

        sₜ = Σᵢ β^(t−i) xᵢ / Σᵢ β^(t−i),  i ≤ t

    Non-finite values are skipped.

    Args:
        values: x.
        share: β, from 0 and below 1.

    >>> smoothed([4.0, 1.0, float("nan"), 2.0], 0.5)[1:]
    [2.0, 2.0, 2.0]
    """
    total = weight = 0.0
    means = []
    for value in values:
        if math.isfinite(value):
            total, weight = share * total + value, share * weight + 1
        means.append(total / weight if weight else value)
    return means


def as_json(value: float | None) -> Any:
    """Return a number for JSON, with "NaN", "Infinity" and "-Infinity" as strings.

    >>> [as_json(value) for value in (0.5, float("-inf"), None)]
    [0.5, '-Infinity', None]
    """
    if value is None or math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


_T = TypeVar("_T")
_LETTERS_OF_MARK = 400

Mark = tuple[int, int, int]


class FileCache(Generic[_T]):
    """Cache of a value that is parsed from files, read again when one of them changes.

    Files that could not be read are read again each time, as they may have been mended.

    Args:
        files: All files that are read, which may come and go; without the first there is nothing.
        read: Parses them.
        nothing: The value if the first is missing, or one cannot be read.

    Attributes:
        value: The content when last read.
        problem: Why it could not be read, in one sentence; None: no problem.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "number"
    >>> cached = FileCache([file], lambda: int(file.read_text()), 0)
    >>> _ = file.write_text("7")
    >>> cached.refresh()
    >>> cached.value
    7
    """

    def __init__(self, files: Sequence[Path], read: Callable[[], _T], nothing: _T) -> None:
        self._files, self._read, self._nothing = files, read, nothing
        self._marks: list[Mark | None] = []
        self.value = nothing
        self.problem: str | None = None

    @property
    def state(self) -> tuple[list[Mark | None], str | None]:
        """Return a value that changes with the content or the problem."""
        return self._marks, self.problem

    def refresh(self) -> None:
        """Read the files if one has changed; an error is stored in `problem`."""
        marks = [mark_of(file) for file in self._files]
        if marks[0] is not None and marks == self._marks:
            return
        self.value, self._marks, self.problem = self._nothing, [], None
        if marks[0] is None:
            return
        try:
            self.value = self._read()
        except FileNotFoundError:
            # It has just vanished, and may come back with the same mark.
            return
        except (OSError, ValueError) as error:
            self.problem = _sentence(self._files[0], error)
            return
        self._marks = marks


def mark_of(file: Path) -> Mark | None:
    """Return modification time, size and inode of a file, by which a change is noticed.

    None if there is no such file.
    """
    try:
        known = file.stat()
    except (OSError, ValueError):
        return None
    return known.st_mtime_ns, known.st_size, known.st_ino


def _sentence(file: Path, error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return printable(f"{file} cannot be read ({error.strerror}).")[:_LETTERS_OF_MARK]
    return printable(str(error))[:_LETTERS_OF_MARK]


# Limits beyond which a file is not taken for a training log: 16 MiB are 300,000 rows.
_BYTES = 2**24
_COLUMNS = 32
_LETTERS = 80
_DIGITS = 15


@dataclass(frozen=True)
class LogRows:
    """The rows of a training log.

    Attributes:
        columns: Column names, except "step".
        steps: Step of each row, increasing.
        values: A number or None for each row and column.
    """

    columns: list[str]
    steps: list[int]
    values: list[list[float | None]]

    def column(self, name: str) -> tuple[list[int], list[float]]:
        """Return the steps that have a number in a column, and the numbers."""
        if name not in self.columns:
            return [], []
        place = self.columns.index(name)
        pairs = zip(self.steps, (row[place] for row in self.values), strict=True)
        known = [(step, value) for step, value in pairs if value is not None]
        return [step for step, _ in known], [value for _, value in known]


def count_of(number: int) -> str:
    """Format a number with thin spaces between thousands."""
    return f"{number:,}".replace(",", "\u2009")


NO_ROWS = LogRows([], [], [])
"""An empty log."""


def read_rows(file: Path) -> LogRows:
    r"""Read the complete rows of a log.

    A last line without a line break is still being written, and skipped. Where training resumed at
    an earlier step, the old rows from there on are dropped. Cells that are not numbers are None.

    Errors: an OSError if it cannot be read.

    >>> import tempfile
    >>> log = Path(tempfile.mkdtemp()) / "log.csv"
    >>> _ = log.write_text("step,loss\n10,2.5\n20,1.5\n30,1")
    >>> read_rows(log)
    LogRows(columns=['loss'], steps=[10, 20], values=[[2.5], [1.5]])
    """
    text = read_regular(file, _BYTES).decode(errors="replace")
    head, *lines = text[: text.rfind("\n") + 1].splitlines() or [""]
    names = [name[:_LETTERS] for name in head.split(",")][: _COLUMNS + 1]
    rows = LogRows([name for name in names if name != "step"], [], [])
    if "step" not in names:
        return rows
    place = names.index("step")
    for line in lines:
        cells = line.split(",")[: len(names)]
        cells += [""] * (len(names) - len(cells))
        step = _whole(cells.pop(place))
        if step is not None:
            _add(rows, step, [_number(cell) for cell in cells])
    return rows


def _add(rows: LogRows, step: int, values: list[float | None]) -> None:
    while rows.steps and rows.steps[-1] >= step:
        rows.steps.pop()
        rows.values.pop()
    rows.steps.append(step)
    rows.values.append(values)


def _whole(cell: str) -> int | None:
    good = cell.isascii() and cell.isdecimal() and len(cell) <= _DIGITS
    return int(cell) if good else None


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
