"""Numbers and vectors formatted for readers, and columns aligned by decimal point."""

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from glasshead.drawing.block import ENGLISH, Words

# A float32 carries about seven digits: a number nearer than this to a short decimal was typed as
# one, unless more digits are asked for.
_TYPED = 1e-7


def number(x: Any, digits: int = 4) -> str:
    """Write one number shortly, with an ASCII minus sign so that it can be pasted into code.

    A number that needs no more than `digits` digits is written as it is (0.5); one that was rounded
    keeps its zeros (0.3990 is not 0.399). Very small and very large ones are in powers of ten.

    Args:
        x: A float, an int, or anything that `float()` takes, such as a tensor of one number.
        digits: The number of decimals below 1, and of digits in all above 1.

    Returns:
        The number as text; an infinity is "∞", not-a-number is "NaN".

    Raises:
        TypeError: `x` is not one number.
        ValueError: `digits` is below 1.

    Example:
        >>> [number(x) for x in (0.40629, 1.35712, -0.23958, 1.84e-35, 0.5, 3, float("-inf"))]
        ['0.4063', '1.357', '-0.2396', '1.8e-35', '0.5', '3', '-∞']
    """
    value = _float(x)
    _check_digits(digits)
    if special := _special(value):
        return special
    if not _is_plain(value, digits):
        return _power_of_ten(value, digits)
    return f"{value:.{_decimals(value, digits)}f}"


def vector(values: Any, limit: int = 8, digits: int = 4, words: Words = ENGLISH) -> str:
    """Write a list of numbers on one line, all with the same number of decimals.

    Args:
        values: A sequence of numbers, or anything with `.tolist()`.
        limit: The most numbers written; a longer vector keeps its first and last ones.
        digits: As in `number`.
        words: The phrase that counts the numbers of a long vector.

    Returns:
        The numbers in brackets.

    Raises:
        TypeError: `values` is not a flat sequence of numbers.
        ValueError: `limit` is below 2, or `digits` below 1.

    Example:
        >>> vector([0.39902, 0.38541, 0.86104])
        '[0.3990, 0.3854, 0.8610]'
        >>> vector([i / 100 for i in range(768)], limit=4)
        '[0.00, 0.01, …, 7.66, 7.67] (768 numbers)'
    """
    _check_digits(digits)
    if limit < 2:
        raise ValueError(f"the limit of vector must be at least 2, got {limit}. Omit it for 8.")
    numbers = _floats(values)
    half = limit // 2
    shown = numbers if len(numbers) <= limit else numbers[: limit - half] + numbers[-half:]
    plain = [value for value in shown if not _special(value) and _is_plain(value, digits)]
    decimals = max((_decimals(value, digits) for value in plain), default=0)
    written = [_in_line(value, decimals, digits) for value in shown]
    if len(numbers) <= limit:
        return f"[{', '.join(written)}]"
    written.insert(limit - half, "…")
    return f"[{', '.join(written)}] ({words.count_of_numbers.format(count=len(numbers))})"


def _in_line(value: float, decimals: int, digits: int) -> str:
    """Write one number of a vector."""
    if value == 0:
        return f"{0:.{decimals}f}"
    if special := _special(value):
        return special
    return f"{value:.{decimals}f}" if _is_plain(value, digits) else _power_of_ten(value, digits)


def _special(value: float) -> str:
    """Return the text of a number that has no digits, or nothing."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return "0" if value == 0 else ""


def _is_plain(value: float, digits: int) -> bool:
    """Say whether a number reads well without a power of ten."""
    least = min(10.0 ** (1 - digits), 0.1)
    return (value.is_integer() and abs(value) < 1e15) or least <= abs(value) < 1e6


def _decimals(value: float, digits: int) -> int:
    """Return how many decimals a number gets: no more than it needs, nor than `digits` allows."""
    whole = max(0, math.floor(math.log10(abs(value)))) if abs(value) >= 1 else -1
    most = max(0, digits - 1 - whole)
    near = min(_TYPED, 10.0**-digits) * abs(value)
    for fewer in range(most):
        if abs(round(value, fewer) - value) <= near:
            return fewer
    return most


def _power_of_ten(value: float, digits: int) -> str:
    """Write a very small or very large number."""
    kept = max(2, digits // 2) - 1 if abs(value) < 1 else digits - 1
    mantissa, exponent = f"{Decimal(value):.{kept}e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def _float(x: Any) -> float:
    """Return one number as a float."""
    if isinstance(x, str):
        raise TypeError(
            f"x of number must be a number, got the text {x!r}. Convert it with float() first."
        )
    try:
        return float(x)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"x of number must be one number, got {type(x).__name__}. Use vector() for several."
        ) from error


def _floats(values: Any) -> list[float]:
    """Return a flat sequence of numbers as floats."""
    listed = values.tolist() if hasattr(values, "tolist") else values
    try:
        return [float(value) for value in listed]
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"values of vector must be a flat sequence of numbers, got {type(values).__name__}. "
            "Pass one row of it."
        ) from error


def _check_digits(digits: int) -> None:
    """Refuse a number of digits that shows nothing."""
    if digits < 1:
        raise ValueError(f"digits must be at least 1, got {digits}. Omit it for 4.")


_NUMBER = re.compile(
    r"(?:[^\w\s] )?[-+−±]?(?:\d[\d,]*(?P<tail>(?:\.\d*)?(?:e[-+]?\d+)?\s?%?)|∞|NaN)|[·–—-]?",
    re.IGNORECASE,
)
_DIGIT, _POINT = "\u2007", "\u2008"  # spaces as wide as a digit and as a point
_SPACES = str.maketrans(_DIGIT + _POINT, "  ")


def align_decimals(
    rows: Sequence[Sequence[str]], align: Sequence[str]
) -> tuple[tuple[str, ...], ...]:
    """Pad the numbers of right-aligned columns, so that their decimal points align.

    A column that holds anything but numbers stays as it is.

    Args:
        rows: The cells, row by row.
        align: The alignment of each column.

    Returns:
        The same cells, shorter numbers with spaces as wide as what they lack. `spaced` turns these
        into ordinary ones.

    Example:
        >>> rows = align_decimals([["a", "2.96"], ["b", "2.9295"], ["c", "1"]], ["left", "right"])
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
