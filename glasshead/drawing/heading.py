"""Heading: the title of a part."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from glasshead.drawing.block import Block, Canvas, line
from glasshead.drawing.checks import check_text
from glasshead.drawing.page import quoted
from glasshead.drawing.printable import printable
from glasshead.drawing.words import ENGLISH, Words
from glasshead.drawing.wrapping import collapse, wrap

_RULES = {0: "━", 1: "─"}


@dataclass(frozen=True)
class Heading(Block):
    """The title of a part of a document.

    Args:
        text: The words of the title.
        level: 1 for a part, 2 for a part of that, and so on to 5. A `Document` draws its own
            title, at level 0.

    Raises:
        TypeError: the text is not a string.
        ValueError: the level is not an int from 0 to 5.

    Example:
        >>> print(Heading("Scores").as_text())
        Scores
        ──────
        >>> Heading("Scores", level=2).html()
        '<h3>Scores</h3>'
    """

    text: str
    level: int = 1

    def __post_init__(self) -> None:
        check_text(self.text, "Heading text")
        if self.level not in range(6):
            raise ValueError(
                f"Heading level must be 0 to 5, got {self.level!r}; leave it out for 1."
            )

    def lines(self, canvas: Canvas) -> Iterator[Text]:
        """Draw the title in bold, the upper levels on a rule."""
        drawn = wrap(printable(collapse(self.text)), canvas.width)
        yield from (line(part, "bold") for part in drawn)
        if self.level in _RULES:
            yield line(_RULES[self.level] * max(map(cell_len, drawn)), "dim")

    def html(self, words: Words = ENGLISH) -> str:
        """Draw the title as `h1` to `h6`."""
        del words
        tag = f"h{self.level + 1}"
        return f"<{tag}>{quoted(collapse(self.text))}</{tag}>"
