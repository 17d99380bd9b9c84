"""Cells: the lines of a text in a table of a terminal."""

from glasshead.drawing.printable import printable
from glasshead.drawing.wrapping import collapse, wrap

_TALLEST = 5  # lines of one cell


def cell_lines(text: str, width: int) -> list[str]:
    """Return the lines of one cell; of a long text, the first ones.

    Example:
        >>> cell_lines("what a word is looking for", 8)
        ['what a', 'word is', 'looking', 'for']
    """
    lines = folded(text, width)
    return lines if len(lines) <= _TALLEST else [*lines[: _TALLEST - 1], "…"]


def folded(text: str, width: int) -> list[str]:
    """Return all lines of a text, made printable."""
    return wrap(printable(collapse(text)), width)
