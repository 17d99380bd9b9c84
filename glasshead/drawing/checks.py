"""Checks: what blocks accept, each refusal in one sentence."""

from collections.abc import Sequence
from typing import Any


def check_text(value: Any, what: str) -> None:
    """Refuse what is not a string; `what` names it, as in "Heading text"."""
    if not isinstance(value, str):
        raise TypeError(
            f"{what} must be a string, got {type(value).__name__}; "
            "convert it, a number with number()."
        )


def check_caption(caption: Any, what: str) -> None:
    """Refuse a caption that is neither a string nor None."""
    if caption is not None:
        check_text(caption, f"{what} caption")


def texts(values: Any, what: str) -> tuple[str, ...]:
    """Return several strings as a tuple; one string alone is refused, for it is a sequence too."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise TypeError(
            f"{what} must be a sequence of strings, got {type(values).__name__}; pass a list."
        )
    for place, value in enumerate(values):
        check_text(value, f"{what}[{place}]")
    return tuple(values)


def check_row(row: Any, count: int, what: str) -> None:
    """Refuse a highlighted row that is not there."""
    if row is None:
        return
    if isinstance(row, bool) or not isinstance(row, int):
        raise TypeError(
            f"{what} highlight_row must be an int or None, got {type(row).__name__}; "
            "pass the place of the row."
        )
    if not 0 <= row < count:
        raise ValueError(
            f"{what} highlight_row must be at least 0 and below its {count} rows, got {row}; "
            "count rows from 0."
        )
