"""Formula: lines of calculation, in letters of one width."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from glasshead.drawing.block import Block, Canvas, line
from glasshead.drawing.checks import check_text
from glasshead.drawing.page import region
from glasshead.drawing.printable import printable
from glasshead.drawing.scripts import scripted
from glasshead.drawing.words import ENGLISH, Words
from glasshead.drawing.wrapping import wrap

_MARGIN = 4
_BOUND = "\u00a0"  # a space at which no line breaks


@dataclass(frozen=True)
class Formula(Block):
    """One or more lines of calculation. Spaces and line breaks stay as they are.

    A line that is too wide for the terminal goes on below its first "= ", and breaks before
    its operators; a page lets it scroll sideways, and sets p_j and e^s with an index and a power.

    Args:
        text: The lines.

    Raises:
        TypeError: the text is not a string.

    Example:
        >>> print(Formula("score = 0.34·0.53 + 0.22·0.34 + 0.54·0.98").as_text(width=36))
            score = 0.34·0.53 + 0.22·0.34
                    + 0.54·0.98
    """

    text: str

    def __post_init__(self) -> None:
        check_text(self.text, "Formula text")

    def lines(self, canvas: Canvas) -> Iterator[Text]:
        """Draw the lines, moved in from the margin where there is room."""
        given = [printable(part) for part in _split(self.text)]
        widest = max(map(cell_len, given))
        margin = _MARGIN if canvas.width >= 36 or widest + _MARGIN <= canvas.width else 1
        for part in given:
            room = canvas.width - margin
            for drawn in wrap(_bound(part), room, hang=_hang(part, room)):
                yield line(" " * margin + drawn.replace(_BOUND, " "))

    def html(self, words: Words = ENGLISH) -> str:
        """Draw the lines as `pre`, in a frame that scrolls sideways."""
        lines = "\n".join(map(scripted, _split(self.text)))
        return region(words.formula, f'<pre class="formula"><code>{lines}</code></pre>')


def _split(text: str) -> list[str]:
    """Return the lines of a formula; a tab is four spaces."""
    lines = text.replace("\r\n", "\n").strip("\n").split("\n")
    return [part.replace("\t", "    ").rstrip(" ") for part in lines]


def _bound(text: str) -> str:
    """Tie each operator to what follows, so that lines break before it."""
    return re.sub(r"(?<= )([-+−×·⋅*/=≈→]) (?=[^ ])", rf"\1{_BOUND}", text)


def _hang(text: str, width: int) -> int:
    """Return where a long line goes on: below what follows "= ", or a little further in."""
    head, equals, _ = text.partition("= ")
    if equals and cell_len(head) + 2 <= width // 2:
        return cell_len(head) + 2
    indent = len(text) - len(text.lstrip(" "))
    return min(indent + 2, width // 2)
