"""Heads table: a number for each head of each layer."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from glasshead.drawing import ENGLISH, Block, Canvas, HeatMap, Table, Words, number

_BETWEEN = 2


@dataclass(frozen=True)
class HeadsTable(Block):
    """Numbers in a terminal, so many heads side by side as there is room; painted on a page.

    Args:
        values: A row a layer, a column a head.
        caption: What the numbers are.

    Example:
        >>> print(HeadsTable([[0.5, 0.25]], "entropy, nats").as_text())
        entropy, nats
        layer  head 0  head 1
        ─────────────────────
            0     0.5    0.25
    """

    values: list[list[float]]
    caption: str

    def lines(self, canvas: Canvas) -> Iterator[Text]:
        """Draw tables, one below the other where the heads are many."""
        names, rows = self._names(), [[number(x) for x in row] for row in self.values]
        widest = max(cell_len(cell) for row in (names, *rows) for cell in row)
        side = max(1, (canvas.width - len("layer")) // (widest + _BETWEEN))
        for first in range(0, len(names), side):
            yield from Table(
                ["layer", *names[first : first + side]],
                [[f"{layer}", *row[first : first + side]] for layer, row in enumerate(rows)],
                caption=None if first else self.caption,
            ).lines(canvas)

    def html(self, words: Words = ENGLISH) -> str:
        """Draw a heat map; what can be below 0 has no place on its scale, and is a table."""
        names, layers = self._names(), [f"layer {layer}" for layer in range(len(self.values))]
        if min(map(min, self.values)) >= 0:
            return HeatMap(self.values, layers, names, caption=self.caption).html(words)
        rows = [[layer, *map(number, row)] for layer, row in zip(layers, self.values, strict=True)]
        return Table(["", *names], rows, caption=self.caption).html(words)

    def _names(self) -> list[str]:
        return [f"head {head}" for head in range(len(self.values[0]))]
