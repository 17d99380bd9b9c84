"""HeatMap as HTML: a table whose cells are painted."""

from collections.abc import Iterator

from glasshead.drawing.colors import level
from glasshead.drawing.figures import number
from glasshead.drawing.page import quoted, region
from glasshead.drawing.pooling import Grid, Value, pooled, pooling_said
from glasshead.drawing.printable import shorten, visible
from glasshead.drawing.words import Words

_MOST = 64
_WITH_NUMBERS = 16
_NAME = 24
_TOOLTIP = 80
_TICKS = 8


def heat_map_html(grid: Grid, caption: str | None, top: float | None, words: Words) -> str:
    """Draw a heat map with a caption, scoped heads, a tooltip for each cell, and a legend."""
    drawn = pooled(grid, _MOST, _MOST)
    highest = top or drawn.largest
    said = f"<caption><span>{quoted(caption)}</span></caption>\n" if caption else ""
    head = "".join(_heads(drawn))
    body = "\n".join(_row(drawn, place, highest, words) for place in range(len(drawn.rows)))
    table = (
        f"<table{_size(len(drawn.columns))}>\n{said}<thead>\n<tr><td></td>{head}</tr>\n</thead>\n"
        f"<tbody>\n{body}\n</tbody>\n</table>"
    )
    return (
        f'<figure class="heat-map">\n{region(caption or words.heat_map, table)}\n'
        f"<figcaption>{_legend(drawn, highest, words)}{_pooling(drawn, grid, words)}</figcaption>\n"
        "</figure>"
    )


def _size(columns: int) -> str:
    """Return the class of a map: one of many columns has cells as small as their number asks."""
    if columns <= _WITH_NUMBERS:
        return ' class="weights"'
    return f' class="weights dense" style="--columns: {columns}"'


def _heads(grid: Grid) -> Iterator[str]:
    """Draw the names of the columns; of many places along an axis, only some are seen."""
    every = 1 if grid.column_block == 1 else max(1, len(grid.columns) // _TICKS)
    for place, name in enumerate(grid.columns):
        unseen = "" if place % every == 0 else ' class="unseen"'
        yield f'<th scope="col"{unseen}{_full(name)}><span>{_name(name)}</span></th>'


def _row(grid: Grid, place: int, top: float, words: Words) -> str:
    """Draw one row of weights."""
    name = grid.rows[place]
    here = ' class="here" aria-current="true"' if place == grid.highlight else ""
    cells = "".join(
        _cell(value, f"{_short(name)} → {_short(column)}", top, words)
        for column, value in zip(grid.columns, grid.values[place], strict=True)
    )
    return f'<tr{here}><th scope="row"{_full(name)}>{_name(name)}</th>{cells}</tr>'


def _cell(value: Value, pair: str, top: float, words: Words) -> str:
    """Draw one weight; the tooltip has its digits."""
    if value is None:
        return f'<td class="hidden" title="{quoted(f"{pair}: {words.hidden}")}"><span>·</span></td>'
    title = quoted(f"{pair}: {number(value)}")
    return f'<td class="w{level(value, top)}" title="{title}"><span>{value:.2f}</span></td>'


def _legend(grid: Grid, top: float, words: Words) -> str:
    """Draw the colours from low to high, and the sign of hidden pairs."""
    high = number(top, 3)
    label = quoted(words.scale.format(low="0", high=high))
    hidden = f'<span class="key"><b>·</b> {quoted(words.hidden)}</span>' if grid.hides else ""
    bar = f'<span class="ramp" role="img" aria-label="{label}"></span>'
    return f'<span class="key">0 {bar} {high}</span>{hidden}'


def _pooling(drawn: Grid, whole: Grid, words: Words) -> str:
    """Say how the map was pooled."""
    said = pooling_said(drawn, whole, words)
    return f'<span class="key">{quoted(said)}</span>' if said else ""


def _name(name: str) -> str:
    """Return a name as HTML, shortened."""
    return quoted(shorten(visible(name), _NAME))


def _short(name: str) -> str:
    """Return a name for a tooltip."""
    return shorten(visible(name), _TOOLTIP)


def _full(name: str) -> str:
    """Return the tooltip of a name that is shortened."""
    shown = visible(name)
    return "" if shorten(shown, _NAME) == shown else f' title="{quoted(shorten(shown, _TOOLTIP))}"'
