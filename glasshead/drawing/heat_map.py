"""Heat maps of attention weights, in a terminal and in HTML."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from math import floor
from typing import Any

from rich.cells import cell_len
from rich.style import Style
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
from glasshead.drawing.document import Paragraph
from glasshead.drawing.numbers import number
from glasshead.drawing.page import LEVELS, hexadecimal, ink, level, paint, rendered, snapped
from glasshead.drawing.pooling import Grid, Matrix, Value, pooled, pooling_said
from glasshead.drawing.printable import chunks, collapse, folded, printable, shorten, visible

_SHADES = " ░▒▓█"
_HIDDEN = "·"
_NARROW = 2  # two cells of a terminal are about a square
_WIDEST = 14
_MOST_DECIMALS = 6
_NAME = 24


@dataclass(frozen=True)
class _Layout:
    """Layout of a heat map.

    Attributes:
        grid: The cells, pooled as needed.
        name: Cells of the terminal for the names of rows.
        cell: Cells of the terminal for one weight.
        figures: The width of the widest number, or 0 if there is no room for numbers.
        top: The weight of the deepest color.
        decimals: The decimals of a number.
    """

    grid: Grid
    name: int
    cell: int
    figures: int
    top: float
    decimals: int


def heat_map_lines(
    grid: Grid, caption: str | None, top: float | None, canvas: Canvas
) -> Iterator[Text]:
    """Draw a heat map: caption, heads, rows, legend, and how it was pooled."""
    layout = _layout(grid, top, canvas)
    if caption:
        yield from (line(part, "italic") for part in folded(caption, canvas.width))
    yield from _heads(layout)
    for place in range(len(layout.grid.rows)):
        yield _row(layout, place, canvas)
    yield from _legend(layout, canvas)
    for part in folded(pooling_said(layout.grid, grid, canvas.words), canvas.width):
        if part:
            yield line(part, "dim")


def _layout(grid: Grid, top: float | None, canvas: Canvas) -> _Layout:
    """Choose between numbers, narrow cells and pooled ones."""
    tall = pooled(grid, canvas.height, len(grid.columns))
    name = _name_width(tall, canvas.width)
    room = canvas.width - name
    decimals = _decimals(top or tall.largest)
    figures = max(cell_len(_figure(value, decimals)) for row in tall.values for value in row)
    if len(tall.columns) * (figures + 1) <= room:
        label = max(cell_len(visible(text)) for text in tall.columns)
        cell = min(room // len(tall.columns), max(label + 1, figures + 2), _WIDEST)
        return _Layout(tall, name, cell, figures, top or tall.largest, decimals)
    small = pooled(grid, canvas.height, room // _NARROW)
    return _Layout(small, name, _NARROW, 0, top or small.largest, decimals)


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
    figure = _figure(value, layout.decimals).rjust(layout.figures) if layout.figures else ""
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
    """Draw the colors or shades from low to high, and the sign of hidden pairs."""
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


def _figure(value: Value, decimals: int) -> str:
    """Write a weight in a cell."""
    return _HIDDEN if value is None else f"{value:.{decimals}f}"


def _decimals(top: float) -> int:
    """Return how many decimals tell cells apart: two, or three digits of a small top."""
    return min(_MOST_DECIMALS, 2 - floor(math.log10(top))) if 0 < top < 0.1 else 2


def _shade(value: float, top: float) -> str:
    """Return the shade of a weight."""
    return _SHADES[floor(level(value, top) * (len(_SHADES) - 1) / LEVELS + 0.5)]


@lru_cache
def _style(place: int, colors: int) -> Style:
    """Return the colors of a level, in a terminal of `colors` colors."""
    color = paint(place) if colors > 256 else snapped(paint(place))
    return Style(color=hexadecimal(ink(color)), bgcolor=hexadecimal(color))


def _centred(text: str, width: int) -> str:
    """Return a text in the middle of its cell, a little to the right."""
    spare = max(0, width - cell_len(text))
    before = (spare + 1) // 2
    return " " * before + text + " " * (spare - before)


_MOST = 64
_WITH_NUMBERS = 16
_TOOLTIP = 80
_TICKS = 8


def heat_map_html(grid: Grid, caption: str | None, top: float | None, words: Words) -> str:
    """Draw a heat map with a caption, scoped heads, a tooltip for each cell, and a legend.

    Of many places along an axis, only some heads are seen. The more columns, the smaller the cells.
    """
    drawn = pooled(grid, _MOST, _MOST)
    top = top or drawn.largest
    rows, columns = ([_shown(name) for name in names] for names in (drawn.rows, drawn.columns))
    is_dense = len(columns) > _WITH_NUMBERS
    return rendered(
        "heat_map.html",
        grid=drawn,
        rows=[
            (name, zip(columns, row, strict=True))
            for name, row in zip(rows, drawn.values, strict=True)
        ],
        columns=columns,
        caption=caption,
        words=words,
        is_dense=is_dense,
        is_run=is_dense and len(rows) == 1,
        every=1 if drawn.column_block == 1 else max(1, len(columns) // _TICKS),
        top=top,
        high=number(top, 3),
        decimals=_decimals(top),
        pooling=pooling_said(drawn, grid, words),
        level=level,
        number=number,
    )


def _shown(name: str) -> dict[str, str]:
    """Return a name as it is shown, and as in tooltips."""
    return {
        key: shorten(visible(name), width) for key, width in (("short", _NAME), ("full", _TOOLTIP))
    }


@dataclass(frozen=True)
class HeatMap(Block):
    """A matrix of weights, each cell painted by its weight: the deeper, the more.

    In a terminal the cells hold their numbers where there is room, else they are narrow, else
    blocks of them are pooled: a sum over columns, a mean over rows. Without colors, numbers or
    shades of gray speak.

    Args:
        values: Weights, at least 0, row by row, or anything with `.tolist()`, such as a tensor
            `[rows, columns]`. None and NaN are hidden pairs.
        rows: A name for each row, such as the tokens of the queries.
        columns: A name for each column, such as the tokens of the keys.
        caption: The caption.
        highlight_row: A row to mark, counted from 0.
        top: The weight that is painted deepest; None takes the largest that is drawn.

    Raises:
        TypeError: values are not numbers, or names not strings.
        ValueError: the matrix is empty or ragged, has a negative or infinite weight, or its names
            do not match.

    Example:
        >>> weights = HeatMap([[1.0, None], [0.25, 0.75]], ["a", "b"], ["a", "b"], highlight_row=1)
        >>> print(weights.as_text())
               a      b
          a  1.00     ·
        ▸ b  0.25   0.75
        · hidden
    """

    values: Any
    rows: Sequence[str]
    columns: Sequence[str]
    _: KW_ONLY
    caption: str | None = None
    highlight_row: int | None = None
    top: float | None = None

    def __post_init__(self) -> None:
        matrix = matrix_of(self.values)
        rows, columns = texts(self.rows, "HeatMap rows"), texts(self.columns, "HeatMap columns")
        if (len(rows), len(columns)) != (len(matrix), len(matrix[0])):
            raise ValueError(
                f"HeatMap must have a name for each of {len(matrix)} rows and {len(matrix[0])} "
                f"columns, got {len(rows)} and {len(columns)}. Pass as many names as it has."
            )
        check_caption(self.caption, "HeatMap")
        check_row(self.highlight_row, len(rows), "HeatMap")
        if self.top is not None and not 0 < self.top < math.inf:
            raise ValueError(
                f"HeatMap top must be above 0 and finite, got {self.top}. Omit it for the largest "
                "weight."
            )
        for name, value in (("values", matrix), ("rows", rows), ("columns", columns)):
            object.__setattr__(self, name, value)

    @property
    def grid(self) -> Grid:
        """Return the cells before any pooling."""
        return Grid(
            self.values, tuple(self.rows), tuple(self.columns), highlight=self.highlight_row
        )

    def lines(self, canvas: Canvas) -> Iterator[Text]:
        """Draw the map within the width and the height of the canvas."""
        return heat_map_lines(self.grid, self.caption, self.top, canvas)

    def html(self, words: Words = ENGLISH) -> str:
        """Draw the map as a painted `table`, in a frame that scrolls sideways."""
        return heat_map_html(self.grid, self.caption, self.top, words)


def matrix_of(values: Any) -> Matrix:
    """Return the weights as tuples, each row as long as the first."""
    listed = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(listed, str) or not isinstance(listed, Sequence):
        raise TypeError(
            f"HeatMap values must be a matrix, got {type(listed).__name__}. Pass a list of rows "
            "or a tensor."
        )
    matrix = tuple(_check_row(row, place) for place, row in enumerate(listed))
    if not matrix or not matrix[0]:
        raise ValueError("HeatMap values must have at least one row and one column, got none.")
    for place, row in enumerate(matrix):
        if len(row) != len(matrix[0]):
            raise ValueError(
                f"HeatMap values must be rows of one length, got {len(matrix[0])} in row 0 and "
                f"{len(row)} in row {place}. Fill hidden pairs with None."
            )
    return matrix


def _check_row(row: Any, place: int) -> tuple[Value, ...]:
    """Return one row of weights."""
    listed = row.tolist() if hasattr(row, "tolist") else row
    if isinstance(listed, str) or not isinstance(listed, Sequence):
        raise TypeError(
            f"HeatMap values must be rows of numbers, got {type(listed).__name__} as row {place}. "
            "Pass one matrix, such as the weights of one head."
        )
    return tuple(_weight(value, place, column) for column, value in enumerate(listed))


def _weight(value: Any, row: int, column: int) -> Value:
    """Return one weight, or None if it is hidden."""
    if value is None:
        return None
    try:
        weight = math.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError, RuntimeError):
        weight = None
    if weight is None or isinstance(value, str):
        raise TypeError(
            f"HeatMap values must be numbers, got {type(value).__name__} in row {row}, column "
            f"{column}. Pass one matrix, such as the weights of one head."
        )
    if weight < 0 or math.isinf(weight):
        raise ValueError(
            f"HeatMap values must be finite and at least 0, got {weight} in row {row}, column "
            f"{column}. Pass weights, and None for hidden pairs."
        )
    return None if math.isnan(weight) else weight


_ROWS, _COLUMNS = 24, 32


def sampled_map(
    row: Callable[[int], Sequence[float]], rows: int, columns: int, *, of: str
) -> Block:
    """Draw a matrix of weights by at most 24 of its rows and 32 blocks of its columns.

    The rows are evenly spaced, the first and the last among them. A block is summed, so that a row
    of the map adds up to what the row of the matrix does. Only the rows that are drawn are read.

    Args:
        row: Returns a row of the matrix.
        rows, columns: Its shape, each at least 1.
        of: What it is, for the caption.

    Returns: a `HeatMap`, or a sentence where a weight is negative, as of a custom normalizer.

    >>> print(sampled_map(lambda i: [0.25] * 4, 2, 4, of="Weights of head 0").as_text())
    Weights of head 0
          0     1     2     3
    0  0.25  0.25  0.25  0.25
    1  0.25  0.25  0.25  0.25
    """
    count = min(rows, _ROWS)
    drawn = [round(place * (rows - 1) / max(1, count - 1)) for place in range(count)]
    size = -(-columns // _COLUMNS)
    starts = range(0, columns, size)
    values = []
    for place in drawn:
        numbers = row(place)
        values.append([sum(numbers[start : start + size]) for start in starts])
    notes = [f"{count} of {rows} rows"] if count < rows else []
    notes += [f"sums over {size} columns"] if size > 1 else []
    caption = ", ".join([of, *notes])
    if any(value < 0 for numbers in values for value in numbers):
        return Paragraph(f"{of}: some weights are negative, and a map shows none of those.")
    return HeatMap(values, [*map(str, drawn)], [*map(str, starts)], caption=caption)
