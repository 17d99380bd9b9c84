"""Tables of text and numbers, in a terminal and in HTML."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import zip_longest
from typing import Any, Literal

from rich.cells import cell_len
from rich.text import Text

from glasshead.drawing.block import (
    ENGLISH,
    Block,
    Canvas,
    Words,
    check_caption,
    check_row,
    line,
    texts,
)
from glasshead.drawing.document import subscripts
from glasshead.drawing.numbers import align_decimals, spaced
from glasshead.drawing.page import rendered
from glasshead.drawing.pooling import truncate_places
from glasshead.drawing.printable import collapse, folded, printable

_TALLEST = 5  # lines of one cell


def cell_lines(text: str, width: int) -> list[str]:
    """Return the lines of one cell; of a long text, the first ones.

    Example:
        >>> cell_lines("what a word is looking for", 8)
        ['what a', 'word is', 'looking', 'for']
    """
    lines = folded(text, width)
    return lines if len(lines) <= _TALLEST else [*lines[: _TALLEST - 1], "…"]


@dataclass(frozen=True)
class _Excerpt:
    """The rows and columns of a table that are shown, with an ellipsis for those left out.

    Attributes:
        columns: The columns that stay, None for those left out.
        align: The alignment of each.
        heads: The head of each.
        rows: The place of each row, None for those left out, and its cells.
        highlight: The place of the highlighted row, -1 without one.
        left_out: Sentences that count what was left out.
    """

    columns: list[int | None]
    align: list[str]
    heads: list[str]
    rows: list[tuple[int | None, list[str]]]
    highlight: int
    left_out: list[str]

    @classmethod
    def of(cls, table: "Table", most_columns: int, most_rows: int, words: Words) -> "_Excerpt":
        columns = truncate_places(len(table.columns), most_columns)
        rows = truncate_places(len(table.rows), most_rows, table.highlight_row)
        cells = align_decimals(table.rows, table.align or ())
        counts = (
            (words.columns_left_out, len(table.columns) - _count(columns)),
            (words.rows_left_out, len(table.rows) - _count(rows)),
        )
        return cls(
            columns,
            _picked(table.align or (), columns, "center"),
            _picked(table.columns, columns),
            [
                (row, ["…"] * len(columns) if row is None else _picked(cells[row], columns))
                for row in rows
            ],
            -1 if table.highlight_row is None else table.highlight_row,
            [phrase.format(count=count) for phrase, count in counts if count],
        )


def _picked(cells: Sequence[str], places: Sequence[int | None], instead: str = "…") -> list[str]:
    return [instead if place is None else cells[place] for place in places]


def _count(places: list[int | None]) -> int:
    """Count the places that stay."""
    return sum(place is not None for place in places)


_GAP = "  "
_LEAST = 12  # a column is not made narrower than this before others are left out
_STACKED = 6  # where no two columns fit, this many values are listed below their name


def table_lines(table: "Table", canvas: Canvas) -> Iterator[Text]:
    """Draw a table: caption, heads, a rule, rows, and what was left out."""
    gutter = "" if table.highlight_row is None else "  "
    room = canvas.width - len(gutter)
    whole = _Excerpt.of(table, len(table.columns), canvas.height, canvas.words)
    most = _most_columns(_naturals(whole), room)
    if table.caption:
        yield from (line(part, "italic") for part in folded(table.caption, canvas.width))
    draw = _stacked if most == 1 < len(table.columns) else _side_by_side
    most = _STACKED if draw is _stacked else most
    shown = _Excerpt.of(table, most, canvas.height, canvas.words)
    yield from draw(shown, gutter, canvas.width)
    for sentence in shown.left_out:
        yield from (line(part, "dim") for part in folded(sentence, canvas.width))


def _stacked(shown: _Excerpt, gutter: str, width: int) -> Iterator[Text]:
    """Draw the heads, a rule, and each row as its name and, moved in, its values.

    One value stands alone, several each behind its head.
    """
    alone = len(shown.columns) == 2
    yield from _record(shown.heads if alone else shown.heads[:1], gutter, gutter, width, "bold")
    yield line("─" * width, "dim")
    for row, (name, *cells) in shown.rows:
        values = [] if row is None else [*map(spaced, cells)]
        if values and not alone:
            parts = zip(shown.columns[1:], shown.heads[1:], values, strict=True)
            values = [f"{head}: {x}" if x and place is not None else x for place, head, x in parts]
        here = row == shown.highlight
        mark, style = ("▸ ", "bold") if here else (gutter, "")
        yield from _record([name, *values], mark, gutter, width, style)


def _record(cells: Sequence[str], mark: str, gutter: str, width: int, style: str) -> Iterator[Text]:
    """Draw a name and its values below it; an empty value takes no line."""
    name, *values = cells
    for number, part in enumerate(cell_lines(name, width - len(gutter))):
        yield line((gutter if number else mark) + part, style)
    indent = gutter + "  "
    for value in filter(None, values):
        for part in cell_lines(value, width - len(indent)):
            yield line(indent + part, style)


def _side_by_side(shown: _Excerpt, gutter: str, width: int) -> Iterator[Text]:
    """Draw the heads, a rule and the rows in columns."""
    widths = _widths(_naturals(shown), width - len(gutter))

    def drawn(cells: Sequence[str], mark: str, style: str) -> Iterator[Text]:
        columns = [cell_lines(cell, width) for cell, width in zip(cells, widths, strict=True)]
        # Short cells are filled with empty lines below.
        for number, parts in enumerate(zip_longest(*columns, fillvalue="")):
            text = spaced(_GAP.join(map(_placed, parts, widths, shown.align)))
            yield line((gutter if number else mark) + text, style)

    yield from drawn(shown.heads, gutter, "bold")
    yield line(gutter + "─" * (sum(widths) + len(_GAP) * (len(widths) - 1)), "dim")
    for row, cells in shown.rows:
        here = row == shown.highlight
        yield from drawn(cells, "▸ " if here else gutter, "bold" if here else "")


def _naturals(shown: _Excerpt) -> list[int]:
    """Return the width that each column would take unbroken, at least 1."""
    columns = zip(shown.heads, *(cells for _, cells in shown.rows), strict=True)
    return [max(1, *(cell_len(printable(collapse(cell))) for cell in column)) for column in columns]


def _most_columns(naturals: list[int], room: int) -> int:
    """Return how many columns fit, taken from both ends."""
    floors = [min(natural, _LEAST) for natural in naturals]
    if sum(floors) + len(_GAP) * (len(floors) - 1) <= room:
        return len(floors)
    floors[0] = min(floors[0], max(4, room // 4))
    most = 1
    for candidate in range(2, len(floors)):
        kept = truncate_places(len(floors), candidate)
        needed = sum(1 if place is None else floors[place] for place in kept)
        if needed + len(_GAP) * (len(kept) - 1) > room:
            break
        most = candidate
    return most


def _widths(needed: list[int], room: int) -> list[int]:
    """Share the room: every column gets what it needs, or as much as the widest may have."""
    free = max(len(needed), room - len(_GAP) * (len(needed) - 1))
    widest = max(needed)
    while sum(min(width, widest) for width in needed) > free:
        widest -= 1
    return [min(width, widest) for width in needed]


def _placed(text: str, width: int, align: str) -> str:
    """Return a text with spaces around, as wide as its column."""
    spare = max(0, width - cell_len(text))
    before = {"left": 0, "right": spare, "center": spare // 2}[align]
    return " " * before + text + " " * (spare - before)


_MOST_COLUMNS = 64
_MOST_ROWS = 200
_SHORT = 28  # shorter cells are not wrapped: a narrow screen scrolls instead


def table_html(table: "Table", words: Words) -> str:
    """Draw a table with a caption, scoped heads, and a line for what was left out."""
    shown = _Excerpt.of(table, _MOST_COLUMNS, _MOST_ROWS, words)
    # Left is the rule, also for the names of rows, as is the middle for an ellipsis.
    stands = [
        "" if not place or align == "left" else align
        for place, align in zip(shown.columns, shown.align, strict=True)
    ]
    return rendered(
        "table.html",
        table=table,
        words=words,
        heads=[*zip(stands, map(subscripts, shown.heads), strict=True)],
        rows=[
            (row == shown.highlight, _classed(cells, shown.columns, stands))
            for row, cells in shown.rows
        ],
        left_out=" ".join(shown.left_out),
    )


def _classed(
    cells: Sequence[str], columns: list[int | None], stands: list[str]
) -> Iterator[tuple[str, str]]:
    """Return the cells of a row with their classes."""
    for place, align, text in zip(columns, stands, cells, strict=True):
        short = "short" if place is not None and cell_len(printable(text)) <= _SHORT else ""
        yield " ".join(filter(None, (align, short))), text


Align = Literal["left", "right", "center"]
_ALIGNS = ("left", "right", "center")
_NUMBER = re.compile(r"[-+−±]?(\d[\d.,]*(e[-+]?\d+)?|∞|NaN)\s?%?|[·–—-]?", re.IGNORECASE)


@dataclass(frozen=True)
class Table(Block):
    """Table of cells under named columns. The first column names the rows.

    Where it is too wide for the terminal, its widest columns are wrapped first; then middle
    columns are left out, with a line that counts them. Very long tables lose middle rows in the
    same way.

    Args:
        columns: The heads of the columns.
        rows: The cells, row by row, as strings; `number` and `vector` write them.
        caption: The caption.
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
                "Table must have at least one column, got none. Pass the columns' heads."
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
            f"Table rows must be a sequence of rows, got {type(rows).__name__}. Pass a list of "
            "lists."
        )
    checked = tuple(texts(row, f"Table rows[{place}]") for place, row in enumerate(rows))
    for place, row in enumerate(checked):
        if len(row) != width:
            raise ValueError(
                f"Table rows[{place}] must have {width} cells, one a column, got {len(row)}. Fill "
                'missing cells with "".'
            )
    return checked


def _inferred(rows: tuple[tuple[str, ...], ...], width: int) -> tuple[Align, ...]:
    """Align columns of numbers to the right, so that their digits line up."""
    return tuple(
        "right" if rows and all(_NUMBER.fullmatch(row[place]) for row in rows) else "left"
        for place in range(width)
    )


def _check_align(align: tuple[str, ...], width: int) -> None:
    """Refuse alignments that do not fit the columns."""
    if len(align) != width or not set(align) <= set(_ALIGNS):
        raise ValueError(
            f'Table align must be "left", "right" or "center" for each of {width} columns, got '
            f"{align!r}. Omit it to have numbers on the right."
        )
