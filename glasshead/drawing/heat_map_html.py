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
    legend = (
        f"<figcaption>{_legend(drawn, highest, words)}{_pooling(drawn, grid, words)}</figcaption>"
    )
    if len(drawn.rows) == 1 and len(drawn.columns) > _WITH_NUMBERS:
        run = _run(drawn, caption, highest, words)
        return f'<figure class="heat-map">\n{run}\n{legend}\n</figure>'
    said = f"<caption><span>{quoted(caption)}</span></caption>\n" if caption else ""
    head = "".join(_heads(drawn))
    body = "\n".join(_row(drawn, place, highest, words) for place in range(len(drawn.rows)))
    table = (
        f"<table{_size(len(drawn.columns))}>\n{said}<thead>\n<tr><td></td>{head}</tr>\n</thead>\n"
        f"<tbody>\n{body}\n</tbody>\n</table>"
    )
    framed = region(caption or words.heat_map, table)
    return f'<figure class="heat-map">\n{framed}\n{legend}\n</figure>'


def _run(grid: Grid, caption: str | None, top: float, words: Words) -> str:
    """Draw one row of many weights as names with their numbers, broken into lines like a text."""
    name = grid.rows[0]
    said = f'<p class="said">{quoted(caption)}</p>\n' if caption else ""
    pairs = "\n".join(
        f"<div><dt{_full(column)}>{_name(column)}</dt>"
        f"{_cell(value, _pair(name, column), top, words, 'dd')}</div>"
        for column, value in zip(grid.columns, grid.values[0], strict=True)
    )
    return (
        f'{said}<p class="said of"{_full(name)}>{_name(name)}</p>\n<dl class="run">\n{pairs}\n</dl>'
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
        _cell(value, _pair(name, column), top, words)
        for column, value in zip(grid.columns, grid.values[place], strict=True)
    )
    return f'<tr{here}><th scope="row"{_full(name)}>{_name(name)}</th>{cells}</tr>'


def _cell(value: Value, pair: str, top: float, words: Words, tag: str = "td") -> str:
    """Draw one weight; the tooltip has its digits."""
    if value is None:
        title = quoted(f"{pair}: {words.hidden}")
        return f'<{tag} class="hidden" title="{title}"><span>·</span></{tag}>'
    title = quoted(f"{pair}: {number(value)}")
    return f'<{tag} class="w{level(value, top)}" title="{title}"><span>{value:.2f}</span></{tag}>'


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


def _pair(row: str, column: str) -> str:
    """Return the names of a query and a key for a tooltip."""
    return " → ".join(shorten(visible(name), _TOOLTIP) for name in (row, column))


def _full(name: str) -> str:
    """Return the tooltip of a name that is shortened."""
    shown = visible(name)
    return "" if shorten(shown, _NAME) == shown else f' title="{quoted(shorten(shown, _TOOLTIP))}"'
