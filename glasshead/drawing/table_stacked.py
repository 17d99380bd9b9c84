"""Table as lines of text where no two columns have room: values stand below their names."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from glasshead.drawing.block import line
from glasshead.drawing.cells import cell_lines

if TYPE_CHECKING:
    from glasshead.drawing.table import Table

_INDENT = "  "


def stacked(
    table: "Table", rows: list[int | None], columns: list[int | None], width: int
) -> Iterator[Text]:
    """Draw the heads, a rule, and each row as its name and, moved in, its values.

    Args:
        table: What is drawn.
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
    """Draw a name and what stands below it; an empty value takes no line."""
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
