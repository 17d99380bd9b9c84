"""Weights map: a heat map of weights that are pooled where there are too many to be drawn."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, fsum

from rich.cells import cell_len
from rich.text import Text

from glasshead.drawing.block import ENGLISH, Block, Canvas, Words
from glasshead.drawing.heat_map import heat_map_html, heat_map_lines
from glasshead.drawing.pooling import Grid, Value
from glasshead.drawing.printable import visible

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
