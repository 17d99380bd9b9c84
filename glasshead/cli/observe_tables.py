"""Tables and maps of what was observed, and the files that they are written to."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, fsum
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtyping import Float
from rich.cells import cell_len
from rich.text import Text
from torch import Tensor

import glasshead as gh
from glasshead.cli.inputs.files import shown
from glasshead.cli.observe import Options
from glasshead.cli.output import print_drawing, print_stderr, write_page
from glasshead.drawing import Document, Table, number
from glasshead.drawing.block import ENGLISH, Block, Canvas, Words
from glasshead.drawing.heat_map import heat_map_html, heat_map_lines
from glasshead.drawing.pooling import Grid, Value
from glasshead.drawing.printable import visible
from glasshead.statistics import DistanceHistogram, PooledMap
from glasshead.statistics.reductions import edges

if TYPE_CHECKING:
    from glasshead import Mask


# The most that are drawn; a square of them is twice as wide as high in a terminal, as a cell is.
ROWS, COLUMNS = 32, 64
_NAME, _CELL = 24, 2


@dataclass(frozen=True)
class WeightsMap(Block):
    """Sums over blocks of keys, means over blocks of queries, drawn as wide as there is room.

    A terminal that has fewer columns than the map gets neighbours added to each other, and the
    blocks are named by the keys that they really hold.

    Args:
        values: The weights of each block; None where all of it is hidden.
        row_edges, column_edges: Where each block begins, and the last one ends.
        names: What queries and keys are called, where each is drawn on its own.
        caption: What the map shows.

    Example:
        >>> drawn = WeightsMap([[0.75, 0.25]], (0, 2), (0, 2, 4), None, "Two blocks")
        >>> print(drawn.as_text(88))
        Two blocks
            0     2
        0–1  0.75  0.25
        Each cell is the sum over 2 columns, averaged over ≤ 2 rows. Places are counted from 0.
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
        """The cells, with neighbouring columns added where there are more than so many."""
        together = ceil((len(self.column_edges) - 1) / most)
        edges = (*self.column_edges[:-1:together], self.column_edges[-1])
        values = tuple(
            tuple(_total(row[place : place + together]) for place in range(0, len(row), together))
            for row in self.values
        )
        return Grid(
            values,
            self._named(self.row_edges),
            self._named(edges),
            row_block=_largest(self.row_edges),
            column_block=_largest(edges),
        )

    def _named(self, edges: Sequence[int]) -> tuple[str, ...]:
        """Each block by its one name, or by its first place and its last."""
        names = []
        for start, stop in pairwise(edges):
            if stop - start > 1:
                names.append(f"{start}–{stop - 1}")
            else:
                names.append(f"{start}" if self.names is None else self.names[start])
        return tuple(names)


def _largest(edges: Sequence[int]) -> int:
    return max(stop - start for start, stop in pairwise(edges))


def _total(cells: Sequence[Value]) -> Value:
    """The sum of what is not hidden; None where all is."""
    seen = [cell for cell in cells if cell is not None]
    return fsum(seen) if seen else None


MAP = "pooled_map"


def pooled_map(queries: int, keys: int) -> PooledMap:
    """The whole matrix, no larger than it can be looked at."""
    return PooledMap(min(ROWS, queries), min(COLUMNS, keys))


def drawn_map(
    pooled: Float[Tensor, "rows columns"],
    mask: "Mask | None",
    lengths: tuple[int, int],
    names: Sequence[str] | None,
    caption: str,
) -> WeightsMap:
    """A pooled matrix as a heat map, in which what the mask hides is seen as hidden.

    Args:
        pooled: As the statistic gives it.
        mask: Which pairs see each other; None: all.
        lengths: How many queries and keys there are.
        names: What queries and keys are called, where they have names.
        caption: What the map shows.
    """
    rows, columns = (edges(length, n) for length, n in zip(lengths, pooled.shape, strict=True))
    values = [
        [None if hides else weight for weight, hides in zip(row, hidden, strict=True)]
        for row, hidden in zip(pooled.tolist(), _hidden(mask, rows, columns), strict=True)
    ]
    return WeightsMap(values, rows, columns, names, caption)


def _hidden(mask: "Mask | None", rows: list[int], columns: list[int]) -> list[list[bool]]:
    """Whether the mask hides all of a block."""
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
    """The keys that receive most, with their share of all that is given."""
    largest, keys = mass.topk(min(_MOST_RECEIVING, len(mass)))
    total, rows = mass.sum().item(), []
    for weight, key in zip(largest.tolist(), keys.tolist(), strict=True):
        token = () if tokens is None else (visible(tokens[key]),)
        share = f"{number(100 * weight / total, 3)} %" if total else "–"
        rows.append([f"{key}", *token, number(weight), share])
    columns = ["key", *(() if tokens is None else ("token",)), "received", "share"]
    return Table(columns, rows, caption=caption)


def histogram_table(
    statistic: DistanceHistogram,
    means: Float[Tensor, "columns bins"],
    names: Sequence[str],
    label: str,
) -> Table:
    """How much weight lies in each bin, in columns of these names."""
    rows = [
        [f"{low:g} to {high:g}", *(number(share) for share in means[:, place])]
        for place, (low, high) in enumerate(pairwise(statistic.edges))
    ]
    return Table(
        ["distance", *names],
        rows,
        caption=f"{label}, {statistic.unit}: the mean of a query, by the distance of its keys, "
        f"from the first number to below the second",
    )


def counted(count: int, one: str, several: str | None = None) -> str:
    """A number of things.

    >>> counted(1, "query", "queries"), counted(2000, "head")
    ('1 query', '2,000 heads')
    """
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


def deliver(document: Document, save: Callable[[Path], None], options: Options) -> None:
    """Write the files, then print the document, then say where the files are.

    Errors: an OSError where a file cannot be written. Then nothing was printed.
    """
    if options.save is not None:
        options.save.parent.mkdir(parents=True, exist_ok=True)
        save(options.save)
    if options.html is not None:
        write_page(options.html, document.html())
    print_drawing(document, options.width)
    if options.save is not None:
        print_stderr(f"The observation is at {shown(options.save)}")
    if options.html is not None:
        print_stderr(f"The page is at {shown(options.html)}")
