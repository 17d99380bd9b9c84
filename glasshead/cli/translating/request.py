"""Request: translates, prints, and draws what was looked at."""

from dataclasses import dataclass
from pathlib import Path

from glasshead.cli.inputs.lines import texts_of
from glasshead.cli.inputs.reading import shown
from glasshead.cli.outputs.page_file import check_target, write_page
from glasshead.cli.outputs.terminal import print_drawing, print_text, remark
from glasshead.cli.translating.alignment_map import alignment_map, alignment_page
from glasshead.models.decoding import Beam
from glasshead.tasks.translate import TextTranslator, align, check_choice


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
            remark(f"The page is at {shown(self.html)}")
