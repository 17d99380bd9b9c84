"""The picture of a diagnosed mask: text in a terminal, SVG on a page, with dead rows marked."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jaxtyping import Bool
from rich.text import Text
from torch import Tensor

from glasshead.drawing import Block, Canvas, Formula, Paragraph
from glasshead.drawing.block import ENGLISH, Words
from glasshead.drawing.page import rendered

# Blocks along a side, and pixels: of all of them, of the smallest and the largest.
_SIDE = 64
_LENGTH, _SMALLEST, _LARGEST, _LOWEST = 384.0, 6.0, 24.0, 100.0
_LEFT, _TOP, _RIGHT = 34, 24, 16
# Pixels between two numbers of an axis, and a gap between cells that are large enough for one.
_APART, _GAPPED = 30.0, 10.0


@dataclass(frozen=True)
class MaskCells:
    """Shares of visible cells, of a mask or of blocks of it.

    Attributes:
        rows: Number of rows of the mask.
        columns: Number of columns.
        shares: The share of visible cells in each block, from 0 to 1.
        dead: Rows without a visible cell.
        found: Row and column of cells that a finding is about.
    """

    rows: int
    columns: int
    shares: tuple[tuple[float, ...], ...]
    dead: tuple[int, ...] = ()
    found: tuple[tuple[int, int], ...] = ()

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        return -(-self.rows // _SIDE), -(-self.columns // _SIDE)


def cells_of(cells: Bool[Tensor, "rows columns"], found: tuple[tuple[int, int], ...]) -> MaskCells:
    """Reduce a mask to at most 64 × 64 blocks.

    >>> import torch
    >>> cells_of(torch.tensor([[True, False], [False, False]]), ()).dead
    (1,)
    """
    rows, columns = cells.shape
    size = -(-rows // _SIDE)
    step = -(-columns // _SIDE)
    shares = tuple(
        tuple(part.float().mean().item() for part in cells[start : start + size].split(step, -1))
        for start in range(0, rows, size)
    )
    dead = (~cells.any(-1)).nonzero().flatten().tolist()
    return MaskCells(rows, columns, shares, tuple(dead), found)


@dataclass(frozen=True)
class MaskMap(Block):
    """Picture of a mask, with its legend.

    Args:
        drawing: The picture as text.
        legend: Its legend.
        cells: The cells.
        rows: What a row is, such as "query".
        columns: What a column is.
        shown: What a painted cell is.
        hidden: What the others are.
        dead: What a row without a painted cell is; empty if such a row is no fault.
        found: What a framed cell is.
    """

    drawing: str
    legend: str
    cells: MaskCells
    rows: str
    columns: str
    shown: str
    hidden: str
    dead: str
    found: str

    def lines(self, canvas: Canvas) -> Iterator[Text]:
        """Draw the picture as text, with its legend below."""
        yield from Formula(self.drawing).lines(canvas)
        yield Text("")
        yield from Paragraph(self.legend).lines(canvas)

    def html(self, words: Words = ENGLISH) -> str:
        """Draw the picture as SVG, with a legend of its colors."""
        cells = self.cells
        tall, wide = cells.block
        width, height = _sides(len(cells.shares[0]), len(cells.shares), cells.block)
        dead = sorted({row // tall for row in cells.dead}) if self.dead else []
        right, bottom = _LEFT + width * len(cells.shares[0]), _TOP + height * len(cells.shares)
        return rendered(
            "mask.html",
            width=f"{right + _RIGHT:.0f}",
            height=f"{bottom + 6:.0f}",
            left=_LEFT,
            top=_TOP,
            inner={"width": f"{right - _LEFT:.1f}", "height": f"{bottom - _TOP:.1f}"},
            shades=_shades(cells, width, height),
            dead=[
                {
                    "y": f"{_TOP + row * height:.1f}",
                    "middle": f"{_TOP + (row + 0.5) * height + 4:.1f}",
                    "height": f"{height:.1f}",
                    "label": self._label(row, tall),
                }
                for row in dead
            ],
            right=f"{right + 4:.1f}",
            found=[
                {
                    "x": f"{_LEFT + column // wide * width:.1f}",
                    "y": f"{_TOP + row // tall * height:.1f}",
                    "width": f"{width:.1f}",
                    "height": f"{height:.1f}",
                    "label": f"{self.rows} {row}, {self.columns} {column}",
                }
                for row, column in cells.found
            ],
            ticks=[
                {"x": _LEFT - 6, "y": f"{_TOP + (at + 0.5) * height + 4:.1f}", "text": at * tall}
                for at in _ticks(len(cells.shares), height)
            ],
            heads=[
                {"x": f"{_LEFT + (at + 0.5) * width:.1f}", "y": _TOP - 7, "text": at * wide}
                for at in _ticks(len(cells.shares[0]), width)
            ],
            said=self,
            is_dead=bool(dead),
        )

    def _label(self, row: int, tall: int) -> str:
        own = [one for one in self.cells.dead if one // tall == row]
        return f"{self.rows} {own[0]}" + (f"–{own[-1]}" if len(own) > 1 else "")


def _sides(columns: int, rows: int, block: tuple[int, int]) -> tuple[float, float]:
    """Return width and height of a cell, a square where blocks are."""
    width, height = (max(_SMALLEST, min(_LARGEST, _LENGTH / count)) for count in (columns, rows))
    if block[0] != block[1]:
        return width, height
    side = min(width, height)
    # A few rows are as high as that they are seen.
    return side, max(side, min(_LARGEST, _LOWEST / rows))


def _shades(cells: MaskCells, width: float, height: float) -> list[dict[str, Any]]:
    """Return a path for each share of visible cells, with a run of equal cells as one box."""
    paths: dict[float, str] = {}
    gap = 1.0 if min(width, height) >= _GAPPED else 0.0
    for row, shares in enumerate(cells.shares):
        for column, share in enumerate(shares):
            if share:
                x, y = _LEFT + column * width, _TOP + row * height
                box = f"M{x:.1f} {y:.1f}h{width - gap:.1f}v{height - gap:.1f}h{gap - width:.1f}z"
                level = round(max(share, 0.1), 1)
                paths[level] = paths.get(level, "") + box
    return [{"path": path, "opacity": share} for share, path in sorted(paths.items())]


def _ticks(count: int, size: float) -> range:
    """Return the places of an axis that have their number."""
    room = max(1, round(_APART / size + 0.49)) if size < _APART - 8 else 1
    every = next(step for step in (1, 2, 4, 5, 8, 10, 16, 32, 64) if step >= room)
    return range(0, count, every)


@dataclass(frozen=True)
class Verdict(Block):
    """A finding: its severity, its kind, and its sentence.

    Args:
        severity: "error", "warning" or "note".
        word: The severity in words.
        kind: Name of the finding.
        sentence: The fault, its location, and the remedy.
        line: All of it, for a terminal.
    """

    severity: str
    word: str
    kind: str
    sentence: str
    line: str

    def lines(self, canvas: Canvas) -> Iterator[Text]:
        """Draw it as a paragraph."""
        yield from Paragraph(self.line).lines(canvas)

    def html(self, words: Words = ENGLISH) -> str:
        """Draw it as a remark in the color of its severity."""
        return rendered("verdict.html", said=self)
