"""Bands between two lines of words, as strong as their weights."""

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from glasshead.drawing.block import ENGLISH, Block, Canvas, Words, line
from glasshead.drawing.heat_map import HeatMap
from glasshead.drawing.numbers import number
from glasshead.drawing.page import rendered
from glasshead.drawing.pooling import Matrix
from glasshead.drawing.printable import shorten, visible, wrap

# The weakest weight drawn as a band, and as text.
_WEAKEST_BAND, _WEAKEST_TEXT = 0.03, 0.1
_NAME = 24
# In pixels: a letter, between words, the margins, the height of the bands, the strongest.
_LETTER, _GAP, _MARGIN, _HEIGHT, _STRONGEST = 9.2, 24, 14, 110, 13
_LINE = 30
# On a narrow page: a letter, a line, and the width of the bands; a narrower drawing has room there.
_NARROW_LETTER, _NARROW_LINE, _NARROW_BANDS, _NARROW = 9.2, 27, 110, 330


@dataclass(frozen=True)
class WordBands(Block):
    """Two lines of words, and a band per weight from each lower word to the upper ones.

    In a terminal each word of the lower line is listed with those that it took most of.

    Args:
        values: Weights, as of `HeatMap`, row by row.
        rows: The words of the lower line.
        columns: The words of the upper line.
        caption: The caption.

    Raises:
        TypeError, ValueError: as `HeatMap` does.

    Example:
        >>> bands = WordBands([[0.9, 0.1], [0.0, 1.0]], ["good", "day"], ["guten", "Tag"])
        >>> print(bands.as_text())
        good  guten 0.90, Tag 0.10
        day   Tag 1.00
    """

    values: Any
    rows: Sequence[str]
    columns: Sequence[str]
    _: KW_ONLY
    caption: str | None = None

    def __post_init__(self) -> None:
        checked = HeatMap(self.values, self.rows, self.columns, caption=self.caption)
        for name in ("values", "rows", "columns"):
            object.__setattr__(self, name, getattr(checked, name))

    def lines(self, canvas: Canvas) -> Iterator[Text]:
        """Draw a line for each word of the lower line."""
        if self.caption:
            yield from (line(part, "italic") for part in wrap(self.caption, canvas.width))
        names = [shorten(visible(name), min(_NAME, canvas.width // 3)) for name in self.rows]
        widest = max(map(cell_len, names))
        for name, weights in zip(names, self.values, strict=True):
            taken = ", ".join(
                f"{visible(word)} {weight:.2f}" for word, weight in self._strongest(weights)
            )
            indent = " " * (widest + 2)
            head = name + " " * (widest + 2 - cell_len(name))
            for part in wrap(taken, canvas.width - widest - 2) or [""]:
                yield line(head + part)
                head = indent

    def html(self, words: Words = ENGLISH) -> str:
        """Draw the bands as SVG, whose words can be read and selected."""
        upper, lower = _places(self.columns), _places(self.rows)
        width = max(upper[-1].end, lower[-1].end) + _MARGIN
        # The shorter line is centered on the longer.
        above, below = ((width - _MARGIN - places[-1].end) / 2 for places in (upper, lower))
        top, bottom = _LINE, _LINE + _HEIGHT
        return rendered(
            "bands.html",
            caption=self.caption,
            tall=self._tall() if width > _NARROW else None,
            label=self.caption or words.heat_map,
            as_text=self.as_text(),
            width=f"{width:.0f}",
            height=bottom + _LINE,
            bands=[
                _band(
                    (above + upper[column].middle, top),
                    (below + lower[row].middle, bottom),
                    weight,
                    f"{self.rows[row]} → {self.columns[column]}: {number(weight)}",
                )
                for row, column, weight in _visible_weights(self.values)
            ],
            names=[
                {"x": f"{shift + place.middle:.1f}", "y": y, "name": place.name}
                for places, shift, y in ((upper, above, top - 9), (lower, below, bottom + 20))
                for place in places
            ],
        )

    def _tall(self) -> dict[str, Any]:
        """Lay the bands out for a narrow page: the lower line on the left, the upper on the right.

        A line that is shorter stands in the middle of the longer.
        """
        sides = [[shorten(visible(name), _NAME) for name in of] for of in (self.rows, self.columns)]
        left, right = (_NARROW_LETTER * max(map(cell_len, names)) for names in sides)
        most = max(map(len, sides))
        lines = [
            [_NARROW_LINE * (at + 0.5 + (most - len(names)) / 2) for at in range(len(names))]
            for names in sides
        ]
        begin, end = left + 8, left + 8 + _NARROW_BANDS
        return {
            "width": f"{end + 8 + right:.0f}",
            "height": _NARROW_LINE * most,
            "bands": [
                _band(
                    (begin, lines[0][row]),
                    (end, lines[1][column]),
                    weight,
                    f"{self.rows[row]} → {self.columns[column]}: {number(weight)}",
                    upright=False,
                )
                for row, column, weight in _visible_weights(self.values)
            ],
            "names": [
                {"x": f"{x:.1f}", "y": f"{y + 5:.1f}", "name": name, "side": side}
                for names, places, x, side in (
                    (sides[0], lines[0], begin - 6, "from"),
                    (sides[1], lines[1], end + 6, "to"),
                )
                for name, y in zip(names, places, strict=True)
            ],
        }

    def _strongest(self, weights: Sequence[float | None]) -> list[tuple[str, float]]:
        """Return the words that one took most of, the largest first."""
        taken = [
            (word, weight)
            for word, weight in zip(self.columns, weights, strict=True)
            if weight is not None and weight >= _WEAKEST_TEXT
        ]
        return sorted(taken, key=lambda pair: -pair[1])


@dataclass(frozen=True)
class _Place:
    """Position of a word on its line, in pixels.

    Attributes:
        name: The word.
        middle: Where its middle is.
        end: Where it ends.
    """

    name: str
    middle: float
    end: float


def _places(names: Sequence[str]) -> list[_Place]:
    places, begin = [], float(_MARGIN)
    for name in (shorten(visible(name), _NAME) for name in names):
        width = _LETTER * cell_len(name)
        places.append(_Place(name, begin + width / 2, begin + width))
        begin += width + _GAP
    return places


def _visible_weights(values: Matrix) -> list[tuple[int, int, float]]:
    """Return the weights that are drawn, the strongest last, so that it lies above."""
    strong = [
        (row, column, weight)
        for row, weights in enumerate(values)
        for column, weight in enumerate(weights)
        if weight is not None and weight >= _WEAKEST_BAND
    ]
    return sorted(strong, key=lambda one: one[2])


def _band(
    start: tuple[float, float],
    end: tuple[float, float],
    weight: float,
    label: str,
    *,
    upright: bool = True,
) -> dict[str, str]:
    """Draw a band as a curve that leaves and arrives straight on, in the direction of the lines."""
    (x, y), (to_x, to_y) = start, end
    share = min(1.0, weight)
    if upright:
        middle = (y + to_y) / 2
        bend = f"{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f}"
    else:
        middle = (x + to_x) / 2
        bend = f"{middle:.1f} {y:.1f} {middle:.1f} {to_y:.1f}"
    return {
        "path": f"M{x:.1f} {y:.1f}C{bend} {to_x:.1f} {to_y:.1f}",
        "width": f"{max(1.0, _STRONGEST * share):.1f}",
        "opacity": f"{0.15 + 0.7 * share:.2f}",
        "label": label,
    }
