"""Block: what every drawing can do, and the canvas that it is drawn on."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from glasshead.drawing.page import fragment
from glasshead.drawing.words import ENGLISH, Words

NARROWEST = 20

# Sixteen colours are the user's own theme: nobody knows how a weight would look in them.
_COLORS = {"256": 256, "truecolor": 2**24}


@dataclass(frozen=True, kw_only=True)
class Canvas:
    """Where text is drawn: its size, whether it has colours, and the words of its language.

    Attributes:
        width: Cells of the terminal in a line, at least 20.
        height: The most rows that a table or a heat map takes; larger ones are shortened or pooled.
        colors: How many colours there are: 2**24, 256, or 0 where numbers and shades must do.
        words: The phrases that blocks add.

    Raises:
        ValueError: the width is below 20, or the height below 4.

    Example:
        >>> Canvas(width=40).colors
        0
    """

    width: int = 80
    height: int = 40
    colors: int = 0
    words: Words = ENGLISH

    def __post_init__(self) -> None:
        if self.width < NARROWEST:
            raise ValueError(
                f"the width must be at least {NARROWEST} cells, got {self.width}; "
                "widen the terminal or leave the width out for 80."
            )
        if self.height < 4:
            raise ValueError(
                f"the height must be at least 4 rows, got {self.height}; leave it out for 40."
            )

    @classmethod
    def of(cls, console: Console, options: ConsoleOptions, words: Words = ENGLISH) -> "Canvas":
        """Return the canvas that a rich console offers."""
        colors = 0 if console.no_color else _COLORS.get(console.color_system or "", 0)
        return cls(width=max(NARROWEST, options.max_width), colors=colors, words=words)


class Block(ABC):
    """One piece of a document: drawn as lines of text in a terminal, or as HTML.

    A block of your own needs `lines` and `html`; the rest follows from them.

    Example:
        >>> class Rule(Block):
        ...     def lines(self, canvas):
        ...         yield Text("─" * canvas.width)
        ...
        ...     def html(self, words=ENGLISH):
        ...         return "<hr>"
        >>> Rule().as_text(width=20)
        '────────────────────'
    """

    @abstractmethod
    def lines(self, canvas: Canvas) -> Iterator[Text]:
        """Draw the block as lines, each at most as wide as the canvas."""

    @abstractmethod
    def html(self, words: Words = ENGLISH) -> str:
        """Draw the block as one HTML element, to be styled by the page of its document."""

    def as_text(self, width: int = 80, words: Words = ENGLISH) -> str:
        """Draw the block as plain text, at most `width` cells wide, without colours."""
        return plain(self.lines(Canvas(width=width, words=words)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        canvas = Canvas.of(console, options)
        yield from printed(self.lines(canvas), canvas)

    def _repr_html_(self) -> str:
        return fragment(self.html())


def line(text: str = "", style: str = "") -> Text:
    """Return one finished line: rich neither wraps it nor reads markup in it."""
    return Text(text, style=style, no_wrap=True, overflow="crop")


def printed(lines: Iterator[Text], canvas: Canvas) -> Iterator[Text]:
    """Return lines for a console; without colours, spaces at their ends say nothing."""
    for drawn in lines:
        if not canvas.colors:
            drawn.rstrip()
        yield drawn


def plain(lines: Iterator[Text]) -> str:
    """Return lines as text without colours, and without spaces at their ends."""
    return "\n".join(drawn.plain.rstrip() for drawn in lines)
