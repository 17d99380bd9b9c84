"""Points: numbers of a column made to line up by their decimal points."""

import re
from collections.abc import Sequence

_NUMBER = re.compile(
    r"(?:[^\w\s] )?[-+−±]?(?:\d[\d,]*(?P<tail>(?:\.\d*)?(?:e[-+]?\d+)?\s?%?)|∞|NaN)|[·–—-]?",
    re.IGNORECASE,
)
_DIGIT, _POINT = "\u2007", "\u2008"  # spaces as wide as a digit and as a point
_SPACES = str.maketrans(_DIGIT + _POINT, "  ")


def pointed(rows: Sequence[Sequence[str]], align: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Pad the numbers of columns that stand right, so that their points are below each other.

    A column that holds anything but numbers stays as it is.

    Args:
        rows: The cells, row by row.
        align: How each column stands.

    Returns:
        The same cells, shorter numbers with spaces as wide as what they lack. `spaced` turns these
        into ordinary ones.

    Example:
        >>> rows = pointed([["a", "2.96"], ["b", "2.9295"], ["c", "1"]], ["left", "right"])
        >>> [spaced(number) for _, number in rows]
        ['2.96  ', '2.9295', '1     ']
    """
    columns = [
        _padded(column) if stands == "right" else column
        for column, stands in zip(zip(*rows, strict=True), align, strict=False)
    ]
    return tuple(zip(*columns, strict=True))


def spaced(text: str) -> str:
    """Return a text for a terminal, where all spaces are alike."""
    return text.translate(_SPACES)


def _padded(column: tuple[str, ...]) -> tuple[str, ...]:
    """Pad the numbers of one column."""
    found = [_NUMBER.fullmatch(cell) for cell in column]
    tails = [match["tail"] or "" for match in found if match]
    longest = max(tails, key=len, default="")
    if len(tails) < len(column) or not longest.startswith("."):
        return column
    return tuple(
        cell + _lacking(tail, len(longest)) if cell else cell
        for cell, tail in zip(column, tails, strict=True)
    )


def _lacking(tail: str, length: int) -> str:
    """Return the space of the point and of the digits that a number lacks."""
    lacks = length - len(tail)
    if lacks and not tail.startswith("."):
        return _POINT + _DIGIT * (lacks - 1)
    return _DIGIT * lacks
