"""The base class of blocks, the canvas that they are drawn on, and the words of their labels."""

import string
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from glasshead.drawing.page import fragment


def check_text(value: Any, what: str) -> None:
    """Refuse what is not a string; `what` names it, as in "Heading text"."""
    if not isinstance(value, str):
        raise TypeError(
            f"{what} must be a string, got {type(value).__name__}. Convert it, a number with "
            "number()."
        )


def check_caption(caption: Any, what: str) -> None:
    """Refuse a caption that is neither a string nor None."""
    if caption is not None:
        check_text(caption, f"{what} caption")


def texts(values: Any, what: str) -> tuple[str, ...]:
    """Return several strings as a tuple; one string alone is refused, for it is a sequence too."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise TypeError(
            f"{what} must be a sequence of strings, got {type(values).__name__}. Pass a list."
        )
    for place, value in enumerate(values):
        check_text(value, f"{what}[{place}]")
    return tuple(values)


def check_row(row: Any, count: int, what: str) -> None:
    """Refuse a highlighted row that is not there."""
    if row is None:
        return
    if isinstance(row, bool) or not isinstance(row, int):
        raise TypeError(
            f"{what} highlight_row must be an int or None, got {type(row).__name__}. Pass the "
            "place of the row."
        )
    if not 0 <= row < count:
        raise ValueError(
            f"{what} highlight_row must be at least 0 and below its {count} rows, got {row}. "
            "Count rows from 0."
        )


_ = str  # marks a phrase for the collectors of translations


@dataclass(frozen=True, kw_only=True)
class Words:
    """Phrases that blocks add to their content, in English by default.

    A phrase with braces is a template; a translation keeps the names in the braces. They are
    worded so that no word has to agree with a number, which differs from language to language.

    Raises:
        TypeError: a phrase is not a string.
        ValueError: a template has other names in its braces than the English one.

    Example:
        >>> Words().columns_left_out.format(count=12)
        'Columns omitted: 12.'
        >>> Words(hidden="oculto").hidden
        'oculto'
        >>> catalogue = {"hidden": "gizli"}
        >>> Words.translated(lambda phrase: catalogue.get(phrase, phrase)).hidden
        'gizli'
    """

    columns_left_out: str = _("Columns omitted: {count}.")
    rows_left_out: str = _("Rows omitted: {count}.")
    pooled_columns: str = _("Each cell is the sum over {columns} columns.")
    pooled_rows: str = _("Each cell is the mean over {rows} rows.")
    pooled_both: str = _("Each cell is the sum over {columns} columns, averaged over {rows} rows.")
    counted_from_zero: str = _("Positions are counted from 0.")
    hidden: str = _("hidden")
    scale: str = _("Colors from {low} to {high}")
    count_of_numbers: str = _("{count} numbers")
    table: str = _("Table")
    heat_map: str = _("Heat map")
    formula: str = _("Formula")
    code: str = _("Code")
    copy: str = _("Copy")
    copied: str = _("Copied")

    def __post_init__(self) -> None:
        for field in fields(self):
            phrase = getattr(self, field.name)
            if not isinstance(phrase, str):
                raise TypeError(
                    f"Words({field.name}=...) must be a string, got {type(phrase).__name__}. Pass "
                    "the translated phrase."
                )
            expected, found = _names(str(field.default)), _names(phrase)
            if expected != found:
                raise ValueError(
                    f"Words({field.name}=...) must have the names {sorted(expected)} in braces, "
                    f"got {phrase!r}. Keep the names in braces untranslated."
                )

    @classmethod
    def translated(cls, translate: Callable[[str], str]) -> "Words":
        """Return the phrases with each passed through `translate`, as of gettext."""
        return cls(**{field.name: translate(str(field.default)) for field in fields(cls)})


def _names(template: str) -> set[str]:
    """Return the names in the braces of a template; a broken one has an impossible name."""
    try:
        return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
    except ValueError:
        return {"a brace that is not closed"}


ENGLISH = Words()


NARROWEST = 20

# Sixteen colors are the user's own theme, in which weights could look like anything.
_COLORS = {"256": 256, "truecolor": 2**24}


@dataclass(frozen=True, kw_only=True)
class Canvas:
    """Output canvas: its size, whether it has colors, and the phrases of its language.

    Attributes:
        width: Cells of the terminal in a line, at least 20.
        height: The most rows that a table or a heat map takes; larger ones are shortened or pooled.
        colors: The number of colors: 2**24, 256, or 0 for numbers and shades alone.
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
                f"the width must be at least {NARROWEST} cells, got {self.width}. Widen the "
                "terminal or omit the width for 80."
            )
        if self.height < 4:
            raise ValueError(
                f"the height must be at least 4 rows, got {self.height}. Omit it for 40."
            )

    @classmethod
    def of(cls, console: Console, options: ConsoleOptions, words: Words = ENGLISH) -> "Canvas":
        """Return the canvas that a rich console offers."""
        colors = 0 if console.no_color else _COLORS.get(console.color_system or "", 0)
        return cls(width=max(NARROWEST, options.max_width), colors=colors, words=words)


class Block(ABC):
    """Base class of blocks: pieces of a document, drawn as terminal lines or as HTML.

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
        """Draw the block as plain text, at most `width` cells wide, without colors."""
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
    """Return lines for a console; without colors, spaces at their ends say nothing."""
    for drawn in lines:
        if not canvas.colors:
            drawn.rstrip()
        yield drawn


def plain(lines: Iterator[Text]) -> str:
    """Return lines as text without colors, and without spaces at their ends."""
    return "\n".join(drawn.plain.rstrip() for drawn in lines)
