"""Paragraph: running text."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.text import Text

from glasshead.drawing.block import Block, Canvas, line
from glasshead.drawing.checks import check_text
from glasshead.drawing.page import quoted
from glasshead.drawing.printable import printable
from glasshead.drawing.words import ENGLISH, Words
from glasshead.drawing.wrapping import MEASURE, collapse, wrap


@dataclass(frozen=True)
class Paragraph(Block):
    """Running text; line breaks in it count as spaces, and nothing in it is markup.

    Args:
        text: The words.

    Raises:
        TypeError: the text is not a string.

    Example:
        >>> print(Paragraph("Each query is compared with each key.").as_text(width=24))
        Each query is compared
        with each key.
        >>> Paragraph("1 < 2").html()
        '<p>1 &lt; 2</p>'
    """

    text: str

    def __post_init__(self) -> None:
        check_text(self.text, "Paragraph text")

    def lines(self, canvas: Canvas) -> Iterator[Text]:
        """Draw the text, on a wide canvas in lines that are still read with ease."""
        drawn = wrap(printable(collapse(self.text)), min(canvas.width, MEASURE))
        yield from map(line, drawn)

    def html(self, words: Words = ENGLISH) -> str:
        """Draw the text as `p`."""
        del words
        return f"<p>{quoted(collapse(self.text))}</p>"
