"""Table: named columns of text and numbers."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from rich.text import Text

from glasshead.drawing.block import Block, Canvas
from glasshead.drawing.checks import check_caption, check_row, texts
from glasshead.drawing.table_html import table_html
from glasshead.drawing.table_lines import table_lines
from glasshead.drawing.words import ENGLISH, Words

Align = Literal["left", "right", "center"]
_ALIGNS = ("left", "right", "center")
_NUMBER = re.compile(r"[-+−±]?(\d[\d.,]*(e[-+]?\d+)?|∞|NaN)\s?%?|[·–—-]?", re.IGNORECASE)


@dataclass(frozen=True)
class Table(Block):
    """Rows of cells under named columns. The first column names the rows.

    Where it is too wide for the terminal, its widest columns are wrapped first; then middle
    columns are left out, with a line that counts them. Very long tables lose middle rows in the
    same way.

    Args:
        columns: The heads of the columns.
        rows: The cells, row by row, as strings; `number` and `vector` write them.
        caption: What the table shows.
        highlight_row: A row to mark, counted from 0.
        align: "left", "right" or "center" for each column; None lets columns of numbers stand
            right.

    Raises:
        TypeError: a head or a cell is not a string.
        ValueError: no columns, a ragged row, a highlighted row that is not there, or an unknown
            alignment.

    Example:
        >>> table = Table(["token", "weight"], [["shiny", "0.406"], ["sun!", "0.31"]])
        >>> print(table.as_text())
        token  weight
        ─────────────
        shiny   0.406
        sun!     0.31
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    _: KW_ONLY
    caption: str | None = None
    highlight_row: int | None = None
    align: Sequence[Align] | None = None

    def __post_init__(self) -> None:
        columns = texts(self.columns, "Table columns")
        if not columns:
            raise ValueError(
                "Table must have at least one column, got none; pass the columns' heads."
            )
        rows = _checked_rows(self.rows, len(columns))
        check_caption(self.caption, "Table")
        check_row(self.highlight_row, len(rows), "Table")
        align = _inferred(rows, len(columns)) if self.align is None else tuple(self.align)
        _check_align(align, len(columns))
        for name, value in (("columns", columns), ("rows", rows), ("align", align)):
            object.__setattr__(self, name, value)

    def lines(self, canvas: Canvas) -> Iterator[Text]:
        """Draw the table within the width of the canvas."""
        return table_lines(self, canvas)

    def html(self, words: Words = ENGLISH) -> str:
        """Draw the table as `table`, in a frame that scrolls sideways."""
        return table_html(self, words)


def _checked_rows(rows: Any, width: int) -> tuple[tuple[str, ...], ...]:
    """Return the rows as tuples, each as long as there are columns."""
    if isinstance(rows, str) or not isinstance(rows, Sequence):
        raise TypeError(
            f"Table rows must be a sequence of rows, got {type(rows).__name__}; "
            "pass a list of lists."
        )
    checked = tuple(texts(row, f"Table rows[{place}]") for place, row in enumerate(rows))
    for place, row in enumerate(checked):
        if len(row) != width:
            raise ValueError(
                f"Table rows[{place}] must have {width} cells, one a column, got {len(row)}; "
                'fill missing cells with "".'
            )
    return checked


def _inferred(rows: tuple[tuple[str, ...], ...], width: int) -> tuple[Align, ...]:
    """Let columns of numbers stand right, so that their digits line up."""
    return tuple(
        "right" if rows and all(_NUMBER.fullmatch(row[place]) for row in rows) else "left"
        for place in range(width)
    )


def _check_align(align: tuple[str, ...], width: int) -> None:
    """Refuse alignments that do not fit the columns."""
    if len(align) != width or not set(align) <= set(_ALIGNS):
        raise ValueError(
            f'Table align must be "left", "right" or "center" for each of {width} columns, '
            f"got {align!r}; leave it out to have numbers on the right."
        )
