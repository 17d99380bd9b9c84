"""Note: a remark beside the text."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.text import Text

from glasshead.drawing.block import Block, Canvas, line
from glasshead.drawing.checks import check_text
from glasshead.drawing.page import quoted
from glasshead.drawing.printable import printable
from glasshead.drawing.words import ENGLISH, Words
from glasshead.drawing.wrapping import MEASURE, collapse, wrap

_BAR = "  │ "


@dataclass(frozen=True)
class Note(Block):
    """A remark set apart, such as why a step is taken.

    Args:
        text: The words.

    Raises:
        TypeError: the text is not a string.

    Example:
        >>> print(Note("Why: the weights must sum to one.").as_text(width=24))
          │ Why: the weights
          │ must sum to one.
    """

    text: str

    def __post_init__(self) -> None:
        check_text(self.text, "Note text")

    def lines(self, canvas: Canvas) -> Iterator[Text]:
        """Draw the remark behind a bar."""
        drawn = wrap(printable(collapse(self.text)), min(canvas.width, MEASURE) - len(_BAR))
        for part in drawn:
            yield line().append(_BAR, "dim").append(part, "italic")

    def html(self, words: Words = ENGLISH) -> str:
        """Draw the remark as `p` of its own class: an `aside` would be a landmark each time."""
        del words
        return f'<p class="note">{quoted(collapse(self.text))}</p>'
