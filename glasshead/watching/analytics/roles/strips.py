"""Strips: a table of layers × heads, in as many parts below each other as it takes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from glasshead.drawing import ENGLISH, Block, Canvas, Table, Words

_BETWEEN = 2


@dataclass(frozen=True)
class Strips(Block):
    """So many heads side by side as there is room; one table on a page. No head is left out.

    Args:
        layers: What the rows are called.
        cells: A row a layer, a column a head.
        caption: What they are.

    Example:
        >>> print(Strips(["0"], [["first 0.71", "·", "broad 0.93"]], "roles").as_text(width=30))
        roles
        layer  head 0      head 1
        ─────────────────────────
            0  first 0.71  ·
        <BLANKLINE>
        layer  head 2
        ─────────────────
            0  broad 0.93
    """

    layers: Sequence[str]
    cells: Sequence[Sequence[str]]
    caption: str

    def lines(self, canvas: Canvas) -> Iterator[Text]:
        """Draw tables, one below the other where the heads are many."""
        first = max(map(cell_len, ("layer", *self.layers)))
        widest = max(cell_len(cell) for row in (self._heads(), *self.cells) for cell in row)
        side = max(1, (canvas.width - first) // (widest + _BETWEEN))
        for begin in range(0, len(self._heads()), side):
            if begin:
                yield Text()
            yield from self._table(slice(begin, begin + side), begin == 0).lines(canvas)

    def html(self, words: Words = ENGLISH) -> str:
        """Draw one table."""
        return self._table(slice(None), captioned=True).html(words)

    def _table(self, part: slice, captioned: bool) -> Table:
        return Table(
            ["layer", *self._heads()[part]],
            [[name, *row[part]] for name, row in zip(self.layers, self.cells, strict=True)],
            caption=self.caption if captioned else None,
        )

    def _heads(self) -> list[str]:
        return [f"head {head}" for head in range(len(self.cells[0]))]
