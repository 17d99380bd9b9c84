"""Documents, and their blocks of text: headings, paragraphs, notes and formulas."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass

from markupsafe import Markup, escape
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from glasshead.drawing.block import ENGLISH, Block, Canvas, Words, check_text, line, plain, printed
from glasshead.drawing.page import fragment, page, rendered
from glasshead.drawing.printable import MEASURE, collapse, folded, printable, wrap


@dataclass(frozen=True)
class _TextBlock(Block):
    """Base class of blocks that hold one text, which is checked."""

    text: str

    def __post_init__(self) -> None:
        check_text(self.text, f"{type(self).__name__} text")


@dataclass(frozen=True)
class Paragraph(_TextBlock):
    """Paragraph of text; line breaks count as spaces, and nothing in it is markup.

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

    def lines(self, canvas: Canvas) -> Iterator[Text]:
        """Draw the text, on a wide canvas in lines that are still read with ease."""
        drawn = folded(self.text, min(canvas.width, MEASURE))
        yield from map(line, drawn)

    def html(self, words: Words = ENGLISH) -> str:
        """Draw the text as `p`."""
        return rendered("paragraph.html", text=collapse(self.text))


_RULES = {0: "━", 1: "─"}


@dataclass(frozen=True)
class Heading(_TextBlock):
    """Heading of a section.

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

    level: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.level not in range(6):
            raise ValueError(f"Heading level must be 0 to 5, got {self.level!r}. Omit it for 1.")

    def lines(self, canvas: Canvas) -> Iterator[Text]:
        """Draw the title in bold, the upper levels on a rule."""
        drawn = folded(self.text, canvas.width)
        yield from (line(part, "bold") for part in drawn)
        if self.level in _RULES:
            yield line(_RULES[self.level] * max(map(cell_len, drawn)), "dim")

    def html(self, words: Words = ENGLISH) -> str:
        """Draw the title as `h1` to `h6`."""
        return rendered("heading.html", level=self.level, text=collapse(self.text))


_BAR = "  │ "


@dataclass(frozen=True)
class Note(_TextBlock):
    """Note: a remark set apart, such as why a step is taken.

    Args:
        text: The words.

    Raises:
        TypeError: the text is not a string.

    Example:
        >>> print(Note("Why: the weights must sum to one.").as_text(width=24))
          │ Why: the weights
          │ must sum to one.
    """

    def lines(self, canvas: Canvas) -> Iterator[Text]:
        """Draw the remark behind a bar."""
        drawn = folded(self.text, min(canvas.width, MEASURE) - len(_BAR))
        for part in drawn:
            yield line().append(_BAR, "dim").append(part, "italic")

    def html(self, words: Words = ENGLISH) -> str:
        """Draw the remark as `p` of its own class."""
        return rendered("note.html", text=collapse(self.text))


_LETTER = "[A-Za-zΑ-Ωα-ω∂]"
_INDEX = f"_(?:{_LETTER}|[ijk]+|[0-9]+)"
_POWER = rf"[-+−]?(?:\d+(?:\.\d+)?|{_LETTER}+|∞)"
_SCRIPT = re.compile(
    rf"(?<![\w^])(?P<base>{_LETTER})(?:(?P<index>{_INDEX})|"
    rf"\^(?:\((?P<group>[^()\n]+)\)|(?P<power>{_POWER})(?P<inner>{_INDEX})?))(?![\w^])"
)
# Brackets after one letter hold a name, as in s(the_cat), and quotation marks a word of a text.
# Neither is parsed.
_NAMED = re.compile(r"(?<!\w)\w\([^()\n]*\)|“[^”\n]*”|«[^»\n]*»|「[^」\n]*」")


def subscripts(text: str) -> Markup:
    """Return a formula as HTML, its indices as `sub` and its powers as `sup`.

    Only a single letter carries them, so W_query and the_cat stay as they are, and so does a name
    in brackets or quotation marks. Brackets around a power fall away.

    Args:
        text: Any text; it is escaped, and never read as markup.

    Example:
        >>> print(subscripts("p_j = e^s_j / Σ"))
        p<sub>j</sub> = e<sup>s<sub>j</sub></sup> / Σ
        >>> print(subscripts("s(a_b) = W_query < e^0.7842"))
        s(a_b) = W_query &lt; e<sup>0.7842</sup>
    """
    text, done, html = printable(text), 0, Markup()
    for name in _NAMED.finditer(text):
        html += _scripted(text[done : name.start()]) + escape(name.group())
        done = name.end()
    return html + _scripted(text[done:])


def _scripted(text: str) -> Markup:
    """Set the scripts of a text without names."""
    done, html = 0, Markup()
    for found in _SCRIPT.finditer(text):
        html += escape(text[done : found.start()] + found["base"])
        if found["index"]:
            html += _sub(found["index"])
        else:
            power = _scripted(found["group"]) if found["group"] else escape(found["power"])
            html += Markup("<sup>{}{}</sup>").format(power, _sub(found["inner"]))
        done = found.end()
    return html + escape(text[done:])


def _sub(index: str | None) -> Markup:
    """Return an index without its sign."""
    return Markup("<sub>{}</sub>").format(index[1:]) if index else Markup()


_MARGIN = 4
_BOUND = "\u00a0"  # a space at which no line breaks


@dataclass(frozen=True)
class Formula(_TextBlock):
    """Formula: one or more lines of calculation, with spaces and line breaks kept.

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
        lines = Markup("\n").join(map(subscripts, _split(self.text)))
        return rendered("formula.html", label=words.formula, lines=lines)


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


_LANGUAGE = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*")


@dataclass(frozen=True)
class Document:
    """Document: blocks under a title, drawn in a terminal, as plain text, as HTML, in a notebook.

    `rich.print(document)` draws it in a terminal, with colors where there are some.

    Args:
        blocks: The blocks, from top to bottom.
        title: The title, drawn above the blocks and in the window of a page.
        language: The language of the text as a tag of BCP 47, such as "en", "tr" or "zh-Hant".
        words: The phrases that blocks add themselves, in that language.

    Raises:
        TypeError: a block is no `Block`, or the title is not a string.
        ValueError: the language is not a tag.

    Example:
        >>> from glasshead.drawing import Document, Paragraph
        >>> document = Document([Paragraph("Every query looks at every key.")], title="Two words")
        >>> print(document.text(width=40))
        Two words
        ━━━━━━━━━
        <BLANKLINE>
        Every query looks at every key.
        >>> document.html().splitlines()[:2]
        ['<!doctype html>', '<html lang="en">']
    """

    blocks: Sequence[Block]
    _: KW_ONLY
    title: str
    language: str = "en"
    words: Words = ENGLISH

    def __post_init__(self) -> None:
        if isinstance(self.blocks, str) or not isinstance(self.blocks, Sequence):
            raise TypeError(
                f"Document blocks must be a sequence, got {type(self.blocks).__name__}. Pass a "
                "list."
            )
        for place, block in enumerate(self.blocks):
            if not isinstance(block, Block):
                raise TypeError(
                    f"Document blocks[{place}] must be a Block, got {type(block).__name__}. Wrap "
                    "text in Paragraph."
                )
        check_text(self.title, "Document title")
        if not isinstance(self.language, str) or not _LANGUAGE.fullmatch(self.language):
            raise ValueError(
                'Document language must be a tag such as "en" or "zh-Hant", got '
                f'{self.language!r}. Write "-" and not "_".'
            )
        object.__setattr__(self, "blocks", tuple(self.blocks))

    def text(self, width: int = 80) -> str:
        """Draw the document as plain text, without colors.

        Args:
            width: The most cells of a line, at least 20.

        Raises:
            ValueError: the width is below 20.
        """
        return plain(self._lines(Canvas(width=width, words=self.words)))

    def html(self) -> str:
        """Draw the document as a whole page in one file, with nothing from outside."""
        return page(self._body(), printable(collapse(self.title)), self.language)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        canvas = Canvas.of(console, options, self.words)
        yield from printed(self._lines(canvas), canvas)

    def _repr_html_(self) -> str:
        return fragment(self._body(), self.language)

    def _parts(self) -> tuple[Block, ...]:
        """Return the title and the blocks."""
        return (Heading(self.title, level=0), *self.blocks)

    def _lines(self, canvas: Canvas) -> Iterator[Text]:
        """Draw the blocks with an empty line between them."""
        for place, block in enumerate(self._parts()):
            if place:
                yield line()
            yield from block.lines(canvas)

    def _body(self) -> str:
        """Draw the blocks as HTML."""
        return "\n".join(block.html(self.words) for block in self._parts())


class Drawn(ABC):
    """Base class of results that are drawn as a document: in the terminal, a notebook, a page."""

    @abstractmethod
    def document(self) -> Document:
        """Return the result as a document, to be drawn or embedded in a larger one."""

    def text(self, width: int = 80) -> str:
        """Return plain text, at most `width` cells wide except for code that cannot be broken.

        Errors: a ValueError if the width is below 20.
        """
        return self.document().text(width)

    def html(self) -> str:
        """Return a self-contained HTML page, whose only script copies code, if it has some."""
        return self.document().html()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.document().__rich_console__(console, options)

    def _repr_html_(self) -> str:
        return self.document()._repr_html_()
