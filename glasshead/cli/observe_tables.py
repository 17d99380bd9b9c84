"""Tables and maps of observed statistics."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING

from jaxtyping import Float
from rich.cells import cell_len
from rich.text import Text
from torch import Tensor

import glasshead as gh
from glasshead.drawing import HeatMap, Table, number
from glasshead.drawing.block import ENGLISH, Block, Canvas, Words
from glasshead.drawing.heat_map import heat_map_html, heat_map_lines
from glasshead.drawing.pooling import Grid, Value, sum_columns
from glasshead.drawing.printable import visible
from glasshead.message import Message, _
from glasshead.statistics import DistanceHistogram, PooledMap
from glasshead.statistics.reductions import edges

if TYPE_CHECKING:
    from glasshead import Mask


# The most that are drawn; a square of them is twice as wide as high in a terminal, as a cell is.
ROWS, COLUMNS = 32, 64
_NAME, _CELL = 24, 2


@dataclass(frozen=True)
class WeightsMap(Block):
    """A pooled map of weights: sums over blocks of keys, means over blocks of queries.

    In a terminal with fewer columns than the map, neighboring blocks are added, and named by the
    keys that they hold.

    Args:
        values: The weights of each block; None where all of it is hidden.
        row_edges, column_edges: Start of each block, and the end of the last.
        names: Names of queries and keys, where each is drawn on its own.
        caption: Caption of the map.

    Example:
        >>> drawn = WeightsMap([[0.75, 0.25]], (0, 2), (0, 2, 4), None, "Two blocks")
        >>> print(drawn.as_text(88))
        Two blocks
            0     2
        0–1  0.75  0.25
        Each cell is the sum over 2 columns, averaged over ≤ 2 rows. Positions are counted from 0.
    """

    values: Sequence[Sequence[Value]]
    row_edges: Sequence[int]
    column_edges: Sequence[int]
    names: Sequence[str] | None
    caption: str

    def lines(self, canvas: Canvas) -> Iterator[Text]:
        """Draw the map within the width of the canvas."""
        names = self._named(self.row_edges)
        name = min(max(cell_len(visible(text)) for text in names), _NAME, canvas.width // 3) + 1
        return heat_map_lines(
            self._grid(max(1, (canvas.width - name) // _CELL)), self.caption, None, canvas
        )

    def html(self, words: Words = ENGLISH) -> str:
        """Draw the whole map as a painted table."""
        return heat_map_html(self._grid(len(self.column_edges)), self.caption, None, words)

    def _grid(self, most: int) -> Grid:
        """Return the cells, neighboring columns added if there are more than `most`."""
        together = ceil((len(self.column_edges) - 1) / most)
        edges = (*self.column_edges[:-1:together], self.column_edges[-1])
        return Grid(
            tuple(sum_columns(tuple(row), together) for row in self.values),
            self._named(self.row_edges),
            self._named(edges),
            row_block=_largest(self.row_edges),
            column_block=_largest(edges),
        )

    def _named(self, edges: Sequence[int]) -> tuple[str, ...]:
        """Name each block by its one name, or by its first position and its last."""
        names = []
        for start, stop in pairwise(edges):
            if stop - start > 1:
                names.append(f"{start}–{stop - 1}")
            else:
                names.append(f"{start}" if self.names is None else self.names[start])
        return tuple(names)


def _largest(edges: Sequence[int]) -> int:
    return max(stop - start for start, stop in pairwise(edges))


_BETWEEN = 2


@dataclass(frozen=True)
class HeadsTable(Block):
    """Numbers by layer and head: tables in a terminal, a heat map on a page.

    Args:
        values: One row per layer, one column per head.
        caption: Caption of the table.

    Example:
        >>> print(HeadsTable([[0.5, 0.25]], "entropy, nats").as_text())
        entropy, nats
        layer  head 0  head 1
        ─────────────────────
            0     0.5    0.25
    """

    values: list[list[float]]
    caption: str
    layer: str = Message("layer")
    head: str = Message("head {head}", head="{head}")
    one: str = Message("layer {layer}", layer="{layer}")

    def lines(self, canvas: Canvas) -> Iterator[Text]:
        """Draw tables, one below the other where the heads are many."""
        names, rows = self._names(), [[number(x) for x in row] for row in self.values]
        widest = max(cell_len(cell) for row in (names, *rows) for cell in row)
        side = max(1, (canvas.width - cell_len(self.layer)) // (widest + _BETWEEN))
        for first in range(0, len(names), side):
            yield from Table(
                [self.layer, *names[first : first + side]],
                [[f"{layer}", *row[first : first + side]] for layer, row in enumerate(rows)],
                caption=None if first else self.caption,
            ).lines(canvas)

    def html(self, words: Words = ENGLISH) -> str:
        """Draw a heat map; values that can be negative, which its scale lacks, make a table."""
        names = self._names()
        layers = [self.one.format(layer=layer) for layer in range(len(self.values))]
        if min(map(min, self.values)) >= 0:
            return HeatMap(self.values, layers, names, caption=self.caption).html(words)
        rows = [[layer, *map(number, row)] for layer, row in zip(layers, self.values, strict=True)]
        return Table(["", *names], rows, caption=self.caption).html(words)

    def _names(self) -> list[str]:
        return [self.head.format(head=head) for head in range(len(self.values[0]))]


MAP = "pooled_map"


def pooled_map(queries: int, keys: int) -> PooledMap:
    """Return the statistic that pools the weights to at most 32 × 64 blocks."""
    return PooledMap(min(ROWS, queries), min(COLUMNS, keys))


def drawn_map(
    pooled: Float[Tensor, "rows columns"],
    mask: "Mask | None",
    lengths: tuple[int, int],
    names: Sequence[str] | None,
    caption: str,
) -> WeightsMap:
    """Draw a pooled matrix as a heat map; hidden blocks are left empty.

    Args:
        pooled: Value of the statistic.
        mask: Mask of the attention; None: no mask.
        lengths: Number of queries and of keys.
        names: Names of queries and keys, if any.
        caption: Caption of the map.
    """
    rows, columns = (edges(length, n) for length, n in zip(lengths, pooled.shape, strict=True))
    values = [
        [None if hides else weight for weight, hides in zip(row, hidden, strict=True)]
        for row, hidden in zip(pooled.tolist(), _hidden(mask, rows, columns), strict=True)
    ]
    return WeightsMap(values, rows, columns, names, caption)


def _hidden(mask: "Mask | None", rows: list[int], columns: list[int]) -> list[list[bool]]:
    """Return, for each block, whether the mask hides all of it."""
    if mask is None:
        return [[False] * (len(columns) - 1) for _ in rows[1:]]
    offset = columns[-1] - rows[-1]
    return [
        [
            not mask.key_range(gh.Tile(range(*row), range(*column), offset))
            for column in pairwise(columns)
        ]
        for row in pairwise(rows)
    ]


_MOST_RECEIVING = 5


def receiving_table(
    mass: Float[Tensor, " keys"], tokens: tuple[str, ...] | None, caption: str
) -> Table:
    """Tabulate the keys that receive most weight, with their share of the total."""
    largest, keys = mass.topk(min(_MOST_RECEIVING, len(mass)))
    total, rows = mass.sum().item(), []
    for weight, key in zip(largest.tolist(), keys.tolist(), strict=True):
        token = () if tokens is None else (visible(tokens[key]),)
        share = f"{number(100 * weight / total, 3)} %" if total else "–"
        rows.append([f"{key}", *token, number(weight), share])
    named = () if tokens is None else (Message("token"),)
    columns = [Message("key"), *named, Message("received"), Message("share")]
    return Table(columns, rows, caption=caption)


def histogram_table(
    statistic: DistanceHistogram,
    means: Float[Tensor, "columns bins"],
    names: Sequence[str],
    label: str,
) -> Table:
    """Tabulate the weight in each distance bin, one column per name."""
    rows = [
        [
            Message("{low:g} to {high:g}", low=low, high=high),
            *(number(share) for share in means[:, place]),
        ]
        for place, (low, high) in enumerate(pairwise(statistic.edges))
    ]
    return Table(
        [Message("distance"), *names],
        rows,
        caption=Message(
            "{label}, {unit}: the mean of a query, by the distance of its keys, from the first "
            "number to below the second",
            label=label,
            unit=Message(statistic.unit),
        ),
    )


def counted(count: int, one: str, several: str | None = None) -> str:
    """Format a count with its noun.

    >>> counted(1, "query", "queries"), counted(2000, "head")
    ('1 query', '2,000 heads')
    """
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


# Of a head or a layer, if there is one and if there are several.
_PLACES = {
    ("head", True): _("--head must be 0, as there is one head, got {place}."),
    ("head", False): _("--head must be from 0 to {most}, as there are {count} heads, got {place}."),
    ("layer", True): _("--layer must be 0, as there is one layer, got {place}."),
    ("layer", False): _(
        "--layer must be from 0 to {most}, as there are {count} layers, got {place}."
    ),
}


def check_place(noun: str, place: int | None, count: int) -> None:
    """Check that the index of a head, or layer, is below `count`.

    >>> check_place("head", 4, 4)
    Traceback (most recent call last):
    ValueError: --head must be from 0 to 3, as there are 4 heads, got 4.
    """
    if place is not None and place >= count:
        sentence = _PLACES[noun, count == 1]
        raise ValueError(Message(sentence, most=count - 1, place=place, count=count))
