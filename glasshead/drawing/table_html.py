"""Table as HTML."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len

from glasshead.drawing.elision import elided
from glasshead.drawing.page import quoted, region
from glasshead.drawing.points import pointed
from glasshead.drawing.printable import printable
from glasshead.drawing.scripts import scripted
from glasshead.drawing.words import Words

if TYPE_CHECKING:
    from glasshead.drawing.table import Table

_MOST_COLUMNS = 64
_MOST_ROWS = 200
_SHORT = 28  # a cell of so many letters is not broken: a narrow screen scrolls instead


def table_html(table: "Table", words: Words) -> str:
    """Draw a table with a caption, scoped heads, and a line for what was left out."""
    columns = elided(len(table.columns), _MOST_COLUMNS)
    rows = elided(len(table.rows), _MOST_ROWS, table.highlight_row)
    align = table.align or ()
    head = "".join(_head(table.columns, place, align) for place in columns)
    cells = pointed(table.rows, align)
    body = "\n".join(
        _row(
            None if place is None else cells[place],
            columns,
            align,
            here=place is not None and place == table.highlight_row,
        )
        for place in rows
    )
    caption = f"<caption><span>{quoted(table.caption)}</span></caption>\n" if table.caption else ""
    content = (
        f"<table>\n{caption}<thead>\n<tr>{head}</tr>\n</thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    )
    framed = region(table.caption or words.table, content)
    return f'<figure class="table">\n{framed}\n{_left_out(table, columns, rows, words)}</figure>'


def _row(
    row: Sequence[str] | None, columns: list[int | None], align: Sequence[str], *, here: bool
) -> str:
    """Draw one row, or the row that stands for those left out."""
    cells = ["…"] * len(align) if row is None else row
    marked = ' class="here" aria-current="true"' if here else ""
    first, *others = columns
    name = _name("" if first is None else cells[first])
    drawn = "".join(_cell(cells, column, align) for column in others)
    return f"<tr{marked}>{name}{drawn}</tr>"


def _name(text: str) -> str:
    """Draw the cell that names a row."""
    return f'<th scope="row"{_class(_brief(text))}>{quoted(text)}</th>'


def _head(heads: Sequence[str], place: int | None, align: Sequence[str]) -> str:
    """Draw the head of one column."""
    if place is None:
        return '<th scope="col">…</th>'
    return f'<th scope="col"{_class(_stands(align[place]))}>{scripted(heads[place])}</th>'


def _cell(cells: Sequence[str], place: int | None, align: Sequence[str]) -> str:
    """Draw one cell."""
    if place is None:
        return "<td>…</td>"
    text = cells[place]
    return f"<td{_class(_stands(align[place]) + _brief(text))}>{quoted(text)}</td>"


def _stands(align: str) -> list[str]:
    """Return the class of an alignment; left is the rule."""
    return [] if align == "left" else [align]


def _brief(text: str) -> list[str]:
    """Return the class of a cell that is not broken."""
    return ["short"] if cell_len(printable(text)) <= _SHORT else []


def _class(words: Sequence[str]) -> str:
    """Return the class attribute, or nothing where there is no word for it."""
    return f' class="{" ".join(words)}"' if words else ""


def _left_out(
    table: "Table", columns: list[int | None], rows: list[int | None], words: Words
) -> str:
    """Say how many columns and rows were left out."""
    counts = (
        (words.columns_left_out, len(table.columns) - sum(place is not None for place in columns)),
        (words.rows_left_out, len(table.rows) - sum(place is not None for place in rows)),
    )
    said = " ".join(quoted(phrase.format(count=count)) for phrase, count in counts if count)
    return f"<figcaption>{said}</figcaption>\n" if said else ""
