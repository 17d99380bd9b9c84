"""The walk of one query on a page: its scores with the keys, the weights, and what they mix."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

from rich.text import Text

from glasshead.drawing.block import ENGLISH, Block, Canvas, Words
from glasshead.drawing.page import rendered

# Numbers of a longer vector that are drawn, and the most of a vector whose numbers are written.
_DRAWN = 64
_WRITTEN = 6


@dataclass(frozen=True)
class Walk(Block):
    """Figure of one query on a page; in a terminal, it takes no line.

    From the left, a line has a key, its score, its weight and its value. The query stands above the
    keys, and the context, the sum of the values times the weights, below the values.

    Args:
        row: The numbers, as of `glasshead.explanation.walk.row_of`.
        titles: The names of the columns: keys, scores, weights and values.
        others: The name of the keys that are not shown.
        caption: What the figure shows, a sentence.
    """

    row: Mapping[str, Any]
    titles: Sequence[str]
    _: KW_ONLY
    others: str = ""
    caption: str

    def lines(self, canvas: Canvas) -> Iterator[Text]:
        """Draw nothing: the tables of an explanation have the same numbers."""
        yield from ()

    def html(self, words: Words = ENGLISH) -> str:
        """Draw the figure as a table, whose bars and colors need no script."""
        row = self.row
        keys, rest = row["keys"], row["rest"]
        asked = _scale([row["q"], *(key["k"] for key in keys)])
        lanes = [(key["word"], key["k"], key, key["weight"], key["v"]) for key in keys]
        if rest is not None:
            lanes.append((self.others, None, None, rest["weight"], rest["mean"]))
        mixed = _scale([row["context"], *(value for *_, value in lanes)])
        scores = [key["masked"] for key in keys if key["masked"] is not None]
        ends = min(0.0, *scores, 0.0), max(0.0, *scores, 0.0)
        most = max(weight for *_, weight, _ in lanes) or 1.0
        return rendered(
            "walk.html",
            word=row["word"],
            titles=self.titles,
            query=_cells(row["q"], asked),
            lanes=[
                {
                    "word": word,
                    "key": None if k is None else _cells(k, asked),
                    "score": _bar(key["masked"], *ends)
                    if key and key["masked"] is not None
                    else None,
                    "hidden": key is not None and key["masked"] is None,
                    "weight": _Bar(f"{weight:.3f}", 0.0, weight / most),
                    "value": _cells(value, mixed),
                }
                for word, k, key, weight, value in lanes
            ],
            sum=f"{sum(weight for *_, weight, _ in lanes):.3f}",
            context=_cells(row["context"], mixed),
            caption=self.caption,
        )


class _Bar(NamedTuple):
    """A number, and the ends of its bar as shares of the column."""

    text: str
    start: float
    stop: float


def _bar(score: float, lowest: float, highest: float) -> _Bar:
    """Return the bar of a score, from 0 to it."""
    zero, end = ((x - lowest) / ((highest - lowest) or 1.0) for x in (0.0, score))
    return _Bar(_short(score), min(zero, end), max(zero, end))


def _short(number: float) -> str:
    """Return a number to two decimals, and no zero with a sign."""
    text = f"{number:.2f}"
    return text if float(text) else "0.00"


def _scale(vectors: Sequence[Sequence[float]]) -> float:
    """Return the largest magnitude of some vectors."""
    return max((abs(x) for vector in vectors for x in vector), default=0.0) or 1.0


def _cells(vector: Sequence[float], top: float) -> list[tuple[float, str]]:
    """Return the cells of a vector: shares from -1 to 1, and the numbers of a short one."""
    written = len(vector) <= _WRITTEN
    return [(x / top, _short(x) if written else "") for x in vector[:_DRAWN]]
