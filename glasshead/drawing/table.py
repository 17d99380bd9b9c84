"""Tables of text and numbers, in a terminal and in HTML."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
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


_INDENT = "  "


def stacked(
    table: "Table", rows: list[int | None], columns: list[int | None], width: int
) -> Iterator[Text]:
    """Draw the heads, a rule, and each row as its name and, moved in, its values.

    Args:
        table: The table.
        rows: The rows that stay, None for those left out.
        columns: The columns that stay, the names first; one value stands alone, several each
            behind its head.
        width: The most cells of a line.
    """
    gutter = _INDENT if table.highlight_row is not None else ""
    _, *others = columns
    alone = len(others) == 1
    heads = [table.columns[place] for place in others if place is not None] if alone else []
    yield from _record(table.columns[0], heads, gutter, gutter, width, "bold")
    yield line("─" * width, "dim")
    for place in rows:
        here = place is not None and place == table.highlight_row
        name, values = "…", []
        if place is not None:
            row = table.rows[place]
            name = row[0]
            values = [_value(table.columns, row, column, alone=alone) for column in others]
        mark = "▸ " if here else gutter
        yield from _record(name, values, mark, gutter, width, "bold" if here else "")


def _record(
    name: str, values: Sequence[str], mark: str, gutter: str, width: int, style: str
) -> Iterator[Text]:
    """Draw a name and its values below it; an empty value takes no line."""
    for number, part in enumerate(cell_lines(name, width - len(gutter))):
        yield line((gutter if number else mark) + part, style)
    indent = gutter + _INDENT
    for value in filter(None, values):
        for part in cell_lines(value, width - len(indent)):
            yield line(indent + part, style)


def _value(heads: Sequence[str], row: Sequence[str], place: int | None, *, alone: bool) -> str:
    """Return one value, behind its head where there are several."""
    if place is None:
        return "…"
    return row[place] if alone or not row[place] else f"{heads[place]}: {row[place]}"


_GAP = "  "
_LEAST = 12  # a column is not made narrower than this before others are left out
_STACKED = 6  # where no two columns fit, this many values are listed below their name

Cells = list[str]


def table_lines(table: "Table", canvas: Canvas) -> Iterator[Text]:
    """Draw a table: caption, heads, a rule, rows, and what was left out."""
    rows = truncate_places(len(table.rows), canvas.height, table.highlight_row)
    gutter = "  " if table.highlight_row is not None else ""
    cells = align_decimals(table.rows, table.align or ())
    shown = [cells[place] for place in rows if place is not None]
    room = canvas.width - len(gutter)
    columns = _columns([table.columns, *shown], room)
    if table.caption:
        yield from (line(part, "italic") for part in folded(table.caption, canvas.width))
    if columns == [0, None]:
        columns = truncate_places(len(table.columns), _STACKED)
        yield from stacked(table, rows, columns, canvas.width)
    else:
        yield from _side_by_side(table, cells, rows, columns, room)
    for sentence in _left_out(table, columns, rows, canvas.words):
        yield from (line(part, "dim") for part in folded(sentence, canvas.width))


def _side_by_side(
    table: "Table",
    body: Sequence[Sequence[str]],
    rows: list[int | None],
    columns: list[int | None],
    room: int,
) -> Iterator[Text]:
    """Draw the heads, a rule and the rows in columns."""
    gutter = "  " if table.highlight_row is not None else ""
    shown = [body[place] for place in rows if place is not None]
    widths = _widths([table.columns, *shown], columns, room)
    align = [_pick(table.align or (), place, "center") for place in columns]

    def drawn(cells: Sequence[str], mark: str, style: str) -> Iterator[Text]:
        picked = [_pick(cells, place, "…") for place in columns]
        for number, part in enumerate(_row(picked, widths, align)):
            yield line((mark if number == 0 else gutter) + part, style)

    yield from drawn(table.columns, gutter, "bold")
    yield line(gutter + "─" * (sum(widths) + len(_GAP) * (len(widths) - 1)), "dim")
    for place in rows:
        here = place is not None and place == table.highlight_row
        cells = ["…"] * len(table.columns) if place is None else body[place]
        yield from drawn(cells, "▸ " if here else gutter, "bold" if here else "")


def _left_out(
    table: "Table", columns: list[int | None], rows: list[int | None], words: Words
) -> Iterator[str]:
    """Say how many columns and rows were left out."""
    for phrase, of, places in (
        (words.columns_left_out, table.columns, columns),
        (words.rows_left_out, table.rows, rows),
    ):
        count = len(of) - sum(place is not None for place in places)
        if count:
            yield phrase.format(count=count)


def _columns(rows: Sequence[Sequence[str]], room: int) -> list[int | None]:
    """Return the columns that fit, taken from both ends."""
    floors = [min(natural, _LEAST) for natural in _naturals(rows)]
    if sum(floors) + len(_GAP) * (len(floors) - 1) <= room:
        return list(range(len(floors)))
    floors[0] = min(floors[0], max(4, room // 4))
    most = 1
    for candidate in range(2, len(floors)):
        kept = truncate_places(len(floors), candidate)
        needed = sum(1 if place is None else floors[place] for place in kept)
        if needed + len(_GAP) * (len(kept) - 1) > room:
            break
        most = candidate
    return truncate_places(len(floors), most)


def _widths(rows: Sequence[Sequence[str]], columns: list[int | None], room: int) -> list[int]:
    """Share the room: every column gets what it needs, or as much as the widest may have."""
    naturals = _naturals(rows)
    needed = [1 if place is None else naturals[place] for place in columns]
    free = max(len(columns), room - len(_GAP) * (len(columns) - 1))
    widest = max(needed)
    while sum(min(width, widest) for width in needed) > free:
        widest -= 1
    return [min(width, widest) for width in needed]


def _naturals(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the width that each column would take unbroken, at least 1."""
    columns = zip(*rows, strict=True)
    return [max(1, *(cell_len(printable(collapse(cell))) for cell in column)) for column in columns]


def _row(cells: Cells, widths: list[int], align: list[str]) -> Iterator[str]:
    """Return the lines of one row; short cells are filled with empty lines below."""
    folded = [cell_lines(cell, width) for cell, width in zip(cells, widths, strict=True)]
    for number in range(max(map(len, folded))):
        parts = [lines[number] if number < len(lines) else "" for lines in folded]
        yield spaced(_GAP.join(map(_placed, parts, widths, align)))


def _placed(text: str, width: int, align: str) -> str:
    """Return a text with spaces around, as wide as its column."""
    spare = max(0, width - cell_len(text))
    before = {"left": 0, "right": spare, "center": spare // 2}[align]
    return " " * before + text + " " * (spare - before)


def _pick(cells: Sequence[str], place: int | None, instead: str) -> str:
    """Return the cell at an index, or an ellipsis for those left out."""
    return instead if place is None else cells[place]


_MOST_COLUMNS = 64
_MOST_ROWS = 200
_SHORT = 28  # shorter cells are not wrapped: a narrow screen scrolls instead


def table_html(table: "Table", words: Words) -> str:
    """Draw a table with a caption, scoped heads, and a line for what was left out."""
    columns = truncate_places(len(table.columns), _MOST_COLUMNS)
    rows = truncate_places(len(table.rows), _MOST_ROWS, table.highlight_row)
    align = table.align or ()
    cells = align_decimals(table.rows, align)
    heads = [_pick(list(map(subscripts, table.columns)), place, "…") for place in columns]
    body = [
        (
            place is not None and place == table.highlight_row,
            _classed(["…"] * len(align) if place is None else cells[place], columns, align),
        )
        for place in rows
    ]
    return rendered(
        "table.html",
        table=table,
        words=words,
        heads=[(_stands(align, place), head) for place, head in zip(columns, heads, strict=True)],
        rows=body,
        left_out=" ".join(_left_out(table, columns, rows, words)),
    )


def _classed(
    cells: Sequence[str], columns: list[int | None], align: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Return the cells of a row with their classes: the name, which stands left, and the others."""
    for position, place in enumerate(columns):
        text = _pick(cells, place, "…")
        stands = _stands(align, place) if position else ""
        short = "short" if place is not None and cell_len(printable(text)) <= _SHORT else ""
        yield " ".join(filter(None, (stands, short))), text


def _stands(align: Sequence[str], place: int | None) -> str:
    """Return the class of an alignment; left is the rule."""
    return "" if place is None or align[place] == "left" else align[place]


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
    """Align columns of numbers to the right, so that their digits line up."""
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
