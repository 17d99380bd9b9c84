"""Alignment map: which words a translation looked at, for the terminal and for a page."""

from collections.abc import Sequence

from glasshead.drawing import Bands, Block, Document, Heading, HeatMap, Paragraph
from glasshead.tasks.translate import Alignment, Translation

_CAPTION = "Each word of the translation (a row), and the words that it looked at (columns)"
_BANDS = "Each word of the translation, below, and the words that it looked at"


def alignment_map(alignment: Alignment) -> HeatMap:
    """The map, for the terminal."""
    return HeatMap(alignment.weights, alignment.target, alignment.source, caption=_CAPTION)


def alignment_blocks(alignment: Alignment) -> list[Block]:
    """Bands and map; of a translation without a word, nothing."""
    if not alignment.target:
        return []
    bands = Bands(alignment.weights, alignment.target, alignment.source, caption=_BANDS)
    return [bands, alignment_map(alignment)]


def alignment_page(found: Sequence[tuple[Translation, Alignment]]) -> Document:
    """A page of all translations, each with its map."""
    blocks: list[Block] = []
    for translation, alignment in found:
        blocks += [
            Heading(translation.source),
            Paragraph(translation.text),
            *alignment_blocks(alignment),
        ]
    return Document(blocks or [Paragraph("No text had a word.")], title="Translations")
