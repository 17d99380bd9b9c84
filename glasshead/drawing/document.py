"""Document: blocks under one title."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from glasshead.drawing.block import ENGLISH, Block, Canvas, Words, check_text, line, plain, printed
from glasshead.drawing.page import fragment, page
from glasshead.drawing.printable import printable
from glasshead.drawing.text import Heading
from glasshead.drawing.wrapping import collapse

_LANGUAGE = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*")


@dataclass(frozen=True)
class Document:
    """Blocks under one title, drawn in a terminal, as plain text, as a page, or in a notebook.

    `rich.print(document)` draws it in a terminal, with colours where there are some.

    Args:
        blocks: What is drawn, from top to bottom.
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
                f"Document blocks must be a sequence, got {type(self.blocks).__name__}; "
                "pass a list."
            )
        for place, block in enumerate(self.blocks):
            if not isinstance(block, Block):
                raise TypeError(
                    f"Document blocks[{place}] must be a Block, got {type(block).__name__}; "
                    "wrap text in Paragraph."
                )
        check_text(self.title, "Document title")
        if not isinstance(self.language, str) or not _LANGUAGE.fullmatch(self.language):
            raise ValueError(
                'Document language must be a tag such as "en" or "zh-Hant", '
                f'got {self.language!r}; write "-" and not "_".'
            )
        object.__setattr__(self, "blocks", tuple(self.blocks))

    def text(self, width: int = 80) -> str:
        """Draw the document as plain text, without colours.

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
