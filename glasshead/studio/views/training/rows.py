"""Rows: log.csv as far as it is written."""

from dataclasses import dataclass
from pathlib import Path

from glasshead.guarded_file import LOG_BYTES, read_regular

# What is beyond is no log of a training.
_COLUMNS = 32
_LETTERS = 80
_DIGITS = 15


@dataclass(frozen=True)
class Rows:
    """A learning curve.

    Attributes:
        columns: Their names, without that of the step.
        steps: Of each row, growing.
        values: Of each row a number for each column, or None where there is none.
    """

    columns: list[str]
    steps: list[int]
    values: list[list[float | None]]

    def column(self, name: str) -> tuple[list[int], list[float]]:
        """The steps that have a number in a column, and the numbers."""
        if name not in self.columns:
            return [], []
        place = self.columns.index(name)
        pairs = zip(self.steps, (row[place] for row in self.values), strict=True)
        known = [(step, value) for step, value in pairs if value is not None]
        return [step for step, _ in known], [value for _, value in known]


NO_ROWS = Rows([], [], [])
"""Before the first row."""


def read_rows(file: Path) -> Rows:
    r"""The rows that are whole.

    A last line without its end is being written. Where steps are made again, what was told of them
    before is dropped. What is no number is none.

    Errors: an OSError where it cannot be read.

    >>> import tempfile
    >>> log = Path(tempfile.mkdtemp()) / "log.csv"
    >>> _ = log.write_text("step,loss\n10,2.5\n20,1.5\n30,1")
    >>> read_rows(log)
    Rows(columns=['loss'], steps=[10, 20], values=[[2.5], [1.5]])
    """
    text = read_regular(file, LOG_BYTES).decode(errors="replace")
    head, *lines = text[: text.rfind("\n") + 1].splitlines() or [""]
    names = [name[:_LETTERS] for name in head.split(",")][: _COLUMNS + 1]
    rows = Rows([name for name in names if name != "step"], [], [])
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


def _add(rows: Rows, step: int, values: list[float | None]) -> None:
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
