"""The work of `glasshead translate`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from glasshead.cli.inputs.files import shown, texts_of
from glasshead.cli.output import check_target, print_drawing, print_stderr, print_text, write_page
from glasshead.drawing import Bands, Block, Document, Heading, HeatMap, Paragraph
from glasshead.models.decoding import Beam
from glasshead.tasks.translate import Alignment, TextTranslator, Translation, align, check_choice

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


@dataclass(frozen=True)
class TranslateRequest:
    """What the user wrote; the fields are the options of the command."""

    run: str
    texts: tuple[str, ...]
    beam: int
    length_penalty: float
    attention: bool
    layer: int | None
    head: int | None
    html: Path | None

    def execute(self) -> None:
        """Translate every text, in order.

        Errors: an OSError or ValueError where an option, the run or a text is not what it is to be.
        """
        drawn = self.attention or self.html is not None
        if not drawn and (self.layer is not None or self.head is not None):
            raise ValueError("--layer and --head say what --attention shows: add it.")
        if self.html is not None:
            check_target(self.html)
        strategy = Beam(self.beam, length_penalty=self.length_penalty)
        translator = TextTranslator.load(self.run)
        check_choice(translator, self.layer, self.head)
        alignments = []
        for some in texts_of(self.texts):
            for translation in translator.translate(some.texts, strategy, name=some.name):
                print_text(translation.text, end="\n")
                if not drawn:
                    continue
                alignment = align(translator, translation, self.layer, self.head)
                if alignment.target:
                    alignments.append((translation, alignment))
                    if self.attention:
                        print_drawing(alignment_map(alignment))
        if self.html is not None:
            write_page(self.html, alignment_page(alignments).html())
            print_stderr(f"The page is at {shown(self.html)}")
