"""Demo: an attention by hand, a translator from nothing, and what that one looks at."""

import shlex
from pathlib import Path

import typer

from glasshead.cli.demonstrating.translator import trained
from glasshead.cli.explaining.request import ExplainRequest
from glasshead.cli.explaining.run import explained
from glasshead.cli.inputs.reading import shown
from glasshead.cli.outputs.page_file import check_target, write_page
from glasshead.cli.outputs.terminal import print_drawing
from glasshead.cli.translating.alignment_map import alignment_blocks
from glasshead.drawing import Block, Document, Heading, Paragraph
from glasshead.tasks.data.sentences import HELD_OUT
from glasshead.tasks.translate import TextTranslator, align

_PAGE, _RUN = "glasshead.html", "translator"
_ANOTHER = "Wir müssen heute die Tür aufmachen."


def run_demo(folder: Path) -> None:
    """Explain, train, translate, and say where everything is.

    Errors: an OSError or ValueError where the folder cannot be written, or has another run.
    """
    page, run = folder / _PAGE, folder / _RUN
    check_target(page)
    explanation = explained(ExplainRequest(lang="en")).document()
    _print(Paragraph(_plan(folder)), title="glasshead: attention you can see through")
    typer.echo()
    print_drawing(explanation)
    _print(Paragraph(_TRAINING), title="A translator, trained from nothing")
    translator = trained(run)
    blocks = _translated(translator)
    _print(*blocks, title="A sentence that it has never seen")
    together = Document(
        [
            Heading("A sentence that a translator has never seen"),
            *blocks,
            Paragraph(_TRAINING),
            Heading(explanation.title),
            *explanation.blocks,
        ],
        title="glasshead: attention you can see through",
    )
    write_page(page, together.html())
    _say_where(page, run)


_TRAINING = (
    "An encoder reads German, a decoder writes English, and between them stands the attention of "
    "the worked example: for each word that is about to be written, the words of the German "
    "sentence are compared, weighed and mixed. It learns from sentences that are made up, in which "
    "German puts its verbs elsewhere than English does."
)


def _plan(folder: Path) -> str:
    return (
        "First an attention of three words is worked out by hand. Then a translator is trained, in "
        "a minute or two. Then it is shown a sentence that it has never seen, and each word that "
        f"it writes says where it looked. All of it is put into {shown(folder)}."
    )


def _translated(translator: TextTranslator) -> list[Block]:
    """The sentence of the texts, its translation, and where each word looked."""
    translation = translator.translate([HELD_OUT.german])[0]
    expected = "as it should be" if translation.text == HELD_OUT.english else "not as it should be"
    return [
        Paragraph(f"German: {translation.source}"),
        Paragraph(f"English: {translation.text} ({expected})"),
        *alignment_blocks(align(translator, translation)),
    ]


def _say_where(page: Path, run: Path) -> None:
    name = shlex.quote(shown(run))
    lines = {
        shown(page): "is all of this as a page: open it in a browser",
        shown(run): "is the translator; ask it yourself, or look into it in the studio:",
    }
    width = max(map(len, lines))
    typer.echo()
    for place, said in lines.items():
        typer.echo(f"{place:<{width}}  {said}")
    typer.echo(f"glasshead translate {name} '{_ANOTHER}' --attention")
    typer.echo(f"glasshead studio {name}")


def _print(*blocks: Block, title: str) -> None:
    typer.echo()
    print_drawing(Document(list(blocks), title=title))
