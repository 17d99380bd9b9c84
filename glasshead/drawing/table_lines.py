"""Table as lines of text: which columns fit, how wide each is, and the lines of each row."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from glasshead.drawing.block import Canvas, line
from glasshead.drawing.cells import cell_lines, folded
from glasshead.drawing.elision import elided
from glasshead.drawing.points import pointed, spaced
from glasshead.drawing.printable import printable
from glasshead.drawing.table_stacked import stacked
from glasshead.drawing.wrapping import collapse

if TYPE_CHECKING:
    from glasshead.drawing.table import Table

_GAP = "  "
_LEAST = 12  # a column is not made narrower than this before others are left out
_STACKED = 6  # where no two columns have room, the values of so many stand below their name

Cells = list[str]


def table_lines(table: "Table", canvas: Canvas) -> Iterator[Text]:
    """Draw a table: caption, heads, a rule, rows, and what was left out."""
    rows = elided(len(table.rows), canvas.height, table.highlight_row)
    gutter = "  " if table.highlight_row is not None else ""
    cells = pointed(table.rows, table.align or ())
    shown = [cells[place] for place in rows if place is not None]
    room = canvas.width - len(gutter)
    columns = _columns([table.columns, *shown], room)
    if table.caption:
        yield from (line(part, "italic") for part in folded(table.caption, canvas.width))
    if columns == [0, None]:
        columns = elided(len(table.columns), _STACKED)
        yield from stacked(table, rows, columns, canvas.width)
    else:
        yield from _side_by_side(table, cells, rows, columns, room)
    yield from _left_out(table, columns, rows, canvas)


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
    table: "Table", columns: list[int | None], rows: list[int | None], canvas: Canvas
) -> Iterator[Text]:
    """Say how many columns and rows were left out."""
    counts = (
        (canvas.words.columns_left_out, len(table.columns) - _count(columns)),
        (canvas.words.rows_left_out, len(table.rows) - _count(rows)),
    )
    for phrase, count in counts:
        if count:
            for part in folded(phrase.format(count=count), canvas.width):
                yield line(part, "dim")


def _columns(rows: Sequence[Sequence[str]], room: int) -> list[int | None]:
    """Return the columns that fit, taken from both ends."""
    floors = [min(natural, _LEAST) for natural in _naturals(rows)]
    if sum(floors) + len(_GAP) * (len(floors) - 1) <= room:
        return list(range(len(floors)))
    floors[0] = min(floors[0], max(4, room // 4))
    most = 1
    for candidate in range(2, len(floors)):
        kept = elided(len(floors), candidate)
        needed = sum(1 if place is None else floors[place] for place in kept)
        if needed + len(_GAP) * (len(kept) - 1) > room:
            break
        most = candidate
    return elided(len(floors), most)


def _widths(rows: Sequence[Sequence[str]], columns: list[int | None], room: int) -> list[int]:
    """Share the room: every column gets what it needs, or as much as the widest may have."""
    naturals = _naturals(rows)
    wanted = [1 if place is None else naturals[place] for place in columns]
    free = max(len(columns), room - len(_GAP) * (len(columns) - 1))
    widest = max(wanted)
    while sum(min(width, widest) for width in wanted) > free:
        widest -= 1
    return [min(width, widest) for width in wanted]


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
    """Return the cell at a place, or what stands for those left out."""
    return instead if place is None else cells[place]


def _count(places: list[int | None]) -> int:
    """Count the places that stay."""
    return sum(place is not None for place in places)
