"""HeatMap as lines of text: numbers where they fit, else narrow cells, else pooled ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import floor

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from glasshead.drawing.block import Canvas, line
from glasshead.drawing.colors import LEVELS, hexadecimal, ink, level, paint, snapped
from glasshead.drawing.figures import number
from glasshead.drawing.pooling import Grid, Value, pooled, pooling_said
from glasshead.drawing.printable import printable, shorten, visible
from glasshead.drawing.wrapping import chunks, collapse, wrap

_SHADES = " ░▒▓█"
_HIDDEN = "·"
_NARROW = 2  # two cells of a terminal are about a square
_WIDEST = 14
_NAME = 24


@dataclass(frozen=True)
class _Layout:
    """What is drawn where.

    Attributes:
        grid: The cells, pooled as needed.
        name: Cells of the terminal for the names of rows.
        cell: Cells of the terminal for one weight.
        figures: The width of the widest number, or 0 where there is no room for numbers.
        top: The weight of the deepest colour.
    """

    grid: Grid
    name: int
    cell: int
    figures: int
    top: float


def heat_map_lines(
    grid: Grid, caption: str | None, top: float | None, canvas: Canvas
) -> Iterator[Text]:
    """Draw a heat map: caption, heads, rows, legend, and how it was pooled."""
    layout = _layout(grid, top, canvas)
    if caption:
        yield from (line(part, "italic") for part in _folded(caption, canvas))
    yield from _heads(layout)
    for place in range(len(layout.grid.rows)):
        yield _row(layout, place, canvas)
    yield from _legend(layout, canvas)
    for part in _folded(pooling_said(layout.grid, grid, canvas.words), canvas):
        if part:
            yield line(part, "dim")


def _layout(grid: Grid, top: float | None, canvas: Canvas) -> _Layout:
    """Choose between numbers, narrow cells and pooled ones."""
    tall = pooled(grid, canvas.height, len(grid.columns))
    name = _name_width(tall, canvas.width)
    room = canvas.width - name
    figures = max(cell_len(_figure(value)) for row in tall.values for value in row)
    if len(tall.columns) * (figures + 1) <= room:
        label = max(cell_len(visible(text)) for text in tall.columns)
        cell = min(room // len(tall.columns), max(label + 1, figures + 2), _WIDEST)
        return _Layout(tall, name, cell, figures, top or tall.largest)
    small = pooled(grid, canvas.height, room // _NARROW)
    return _Layout(small, name, _NARROW, 0, top or small.largest)


def _name_width(grid: Grid, width: int) -> int:
    """Return the width of the column of names, with a space after it and a mark before it."""
    longest = max(cell_len(visible(text)) for text in grid.rows)
    return min(longest, _NAME, width // 3) + 1 + _gutter(grid)


def _gutter(grid: Grid) -> int:
    """Return the room for the mark of the highlighted row."""
    return 0 if grid.highlight is None else 2


def _row(layout: _Layout, place: int, canvas: Canvas) -> Text:
    """Draw one row: its name, and its cells."""
    here = place == layout.grid.highlight
    gutter = _gutter(layout.grid)
    name = shorten(visible(layout.grid.rows[place]), layout.name - gutter - 1)
    spaces = " " * (layout.name - gutter - cell_len(name))
    drawn = line("▸ " if here else " " * gutter).append(name + spaces, "bold" if here else "")
    for value in layout.grid.values[place]:
        drawn.append_text(_cell(layout, value, canvas))
    return drawn


def _cell(layout: _Layout, value: Value, canvas: Canvas) -> Text:
    """Draw one weight."""
    if value is None:
        hidden = _HIDDEN.rjust(layout.figures) if layout.figures else _HIDDEN
        return Text(_centred(hidden, layout.cell), "dim")
    figure = _figure(value).rjust(layout.figures) if layout.figures else ""
    if canvas.colors:
        return Text(_centred(figure, layout.cell), _style(level(value, layout.top), canvas.colors))
    return Text(_centred(figure, layout.cell) if figure else _shade(value, layout.top) * _NARROW)


def _heads(layout: _Layout) -> Iterator[Text]:
    """Draw the names of the columns: whole, cut into short lines, or places along an axis."""
    indent = " " * layout.name
    if layout.grid.column_block > 1:
        yield line(indent + _axis(layout), "dim")
        return
    size, most = (layout.cell - 1, 3) if layout.figures else (1, 8)
    heads = [chunks(visible(text), size, most) for text in layout.grid.columns]
    tallest = max(map(len, heads))
    for number_of_line in range(tallest):
        parts = [([""] * (tallest - len(head)) + head)[number_of_line] for head in heads]
        yield line((indent + "".join(_centred(part, layout.cell) for part in parts)).rstrip())


def _axis(layout: _Layout) -> str:
    """Return the first place of every few columns, each above its cell."""
    places = [name.split("–")[0] for name in layout.grid.columns]
    every = -(-(len(places[-1]) + 2) // layout.cell)
    ticks = "".join(place.ljust(every * layout.cell) for place in places[::every])
    room = len(places) * layout.cell
    whole = ticks.rstrip()
    return whole if len(whole) <= room else whole[: whole.rindex(" ") + 1].rstrip()


def _legend(layout: _Layout, canvas: Canvas) -> Iterator[Text]:
    """Draw the colours or shades from low to high, and the sign of hidden pairs."""
    legend = line()
    if canvas.colors or not layout.figures:
        legend.append("0 ")
        wide = 2 if canvas.width >= 36 else 1
        cells = 6 * wide
        if canvas.colors:
            for place in (round(step * LEVELS / (cells - 1)) for step in range(cells)):
                legend.append(" ", _style(place, canvas.colors))
        else:
            legend.append("▕" + "".join(shade * wide for shade in _SHADES) + "▏")
        legend.append(f" {number(layout.top, 3)}")
    if layout.grid.hides:
        hidden = f"{_HIDDEN} {printable(collapse(canvas.words.hidden))}"
        space = "   " if legend.plain else ""
        if legend.cell_len + len(space) + cell_len(hidden) > canvas.width:
            yield legend
            legend, space = line(), ""
        legend.append(space + shorten(hidden, canvas.width), "dim")
    if legend.plain:
        yield legend


def _figure(value: Value) -> str:
    """Write a weight in a cell."""
    return _HIDDEN if value is None else f"{value:.2f}"


def _shade(value: float, top: float) -> str:
    """Return the shade of a weight."""
    return _SHADES[floor(level(value, top) * (len(_SHADES) - 1) / LEVELS + 0.5)]


@lru_cache
def _style(place: int, colors: int) -> Style:
    """Return the colours of a level, in a terminal of so many colours."""
    color = paint(place) if colors > 256 else snapped(paint(place))
    return Style(color=hexadecimal(ink(color)), bgcolor=hexadecimal(color))


def _centred(text: str, width: int) -> str:
    """Return a text in the middle of its cell, a little to the right."""
    spare = max(0, width - cell_len(text))
    before = (spare + 1) // 2
    return " " * before + text + " " * (spare - before)


def _folded(text: str, canvas: Canvas) -> list[str]:
    """Return the lines of a caption."""
    return wrap(printable(collapse(text)), canvas.width)
