"""Code to be copied, as a block whose long lines are broken after brackets and commas."""

from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup
from rich.text import Text

from glasshead.drawing.block import ENGLISH, Block, Canvas, Words
from glasshead.drawing.page import rendered
from glasshead.drawing.printable import printable

_MARGIN = 4
_INDENT = "    "
# The width of a line of code on a page, in characters.
_PAGE = 72
_OPENING, _CLOSING = "([{", ")]}"


@dataclass(frozen=True)
class Code(Block):
    """Block of Python code, to be copied.

    A line that is too wide is broken after brackets and commas alone. What has none is drawn wider
    than the canvas, and never cut.

    >>> print(Code("mask = gh.padding([31, 29, 23, 19])").as_text(width=30))
        mask = gh.padding(
            [31, 29, 23, 19]
        )
    """

    text: str

    def lines(self, canvas: Canvas) -> Iterator[Text]:
        """Draw the lines, moved in from the margin where there is room."""
        margin = _MARGIN if canvas.width >= 36 else 0
        for given in self.text.split("\n"):
            for drawn in broken(printable(given), canvas.width - margin):
                yield Text(" " * margin + drawn, no_wrap=True, overflow="ignore")

    def html(self, words: Words = ENGLISH) -> str:
        """Draw the lines as `pre`, in a frame that scrolls sideways, and a button that copies them.

        The button is hidden where no script of a page shows it, as in a notebook.
        """
        lines = (part for given in self.text.split("\n") for part in broken(given, _PAGE))
        code = Markup("\n").join(map(printable, lines))
        phrases = {"label": words.code, "copy": words.copy, "copied": words.copied}
        return rendered("code.html", lines=code, **phrases)


def broken(code: str, room: int, indent: str = "") -> list[str]:
    """Break an expression or call of Python into lines of at most `room` cells where possible.

    >>> broken("f(query, key, mask=mask[:, None])", 20)
    ['f(', '    query, key,', '    mask=mask[', '        :, None', '    ]', ')']
    """
    start, stop = _widest(code)
    if len(indent) + len(code) <= room or stop - start < 2:
        return [indent + code]
    lines = [indent + code[: start + 1]]
    line = indent + _INDENT
    for item in _items(code[start + 1 : stop]):
        if line.strip() and len(line.rstrip()) + 1 + len(item) > room:
            lines += broken(line.strip(), room, indent + _INDENT)
            line = indent + _INDENT
        line += f" {item}" if line.strip() else item
    lines += broken(line.strip(), room, indent + _INDENT)
    return [*lines, *broken(code[stop:], room, indent)]


def _items(inner: str) -> Iterator[str]:
    """Split at top-level commas, each kept with the item before it."""
    depth = start = 0
    for place, letter in enumerate(inner):
        depth += (letter in _OPENING) - (letter in _CLOSING)
        if letter == "," and depth == 0:
            yield inner[start : place + 1].strip()
            start = place + 1
    if inner[start:].strip():
        yield inner[start:].strip()


def _widest(code: str) -> tuple[int, int]:
    """Return start and end of the widest outermost brackets; 0 and 0 without any."""
    depth = opened = 0
    best = (0, 0)
    for place, letter in enumerate(code):
        if letter in _OPENING:
            opened = place if depth == 0 else opened
            depth += 1
        elif letter in _CLOSING and depth:
            depth -= 1
            if depth == 0 and place - opened > best[1] - best[0]:
                best = (opened, place)
    return best
