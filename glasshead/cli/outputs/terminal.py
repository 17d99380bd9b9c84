"""Terminal: where explanations, JSON and remarks are printed."""

import json
import sys
from typing import Any

from rich.console import Console, RenderableType

NARROWEST, WIDEST = 20, 1000


def check_width(width: int | None) -> None:
    """Raise a ValueError where no text can be so many columns wide."""
    if width is not None and not NARROWEST <= width <= WIDEST:
        raise ValueError(
            f"--width takes {NARROWEST} to {WIDEST} columns, and got {width}: leave it out for the "
            f"width of the terminal."
        )


def print_drawing(drawing: RenderableType, width: int | None = None) -> None:
    """Print what rich can draw, in colour where standard output is a terminal that has some."""
    console = Console(width=width, highlight=False, emoji=False, markup=False)
    # COLUMNS may say anything; in fewer columns, numbers would lose their digits.
    console.width = max(console.width, NARROWEST)
    console.print(drawing)


def print_text(text: str, *, end: str = "") -> None:
    """Print a text as it is, at once; in a terminal without what would steer it."""
    if sys.stdout.isatty():
        from glasshead.drawing.printable import printable

        text = "\n".join(printable(line) for line in text.split("\n"))
    sys.stdout.write(text + end)
    sys.stdout.flush()


def print_json(value: Any) -> None:
    """Print JSON alone, in ASCII where standard output has no more than that."""
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    text = json.dumps(value, ensure_ascii=not unicode, allow_nan=False)
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def remark(text: str) -> None:
    """Print a line beside the output, where a pipe does not take it."""
    if sys.stderr is not None:
        sys.stderr.write(f"{text}\n")
