"""The work of `glasshead demo`."""

import shlex
from pathlib import Path

import typer

from glasshead.cli.explain import ExplainRequest
from glasshead.cli.explaining import explained
from glasshead.cli.inputs.files import shown
from glasshead.cli.output import check_target, print_drawing, print_stderr, write_page
from glasshead.cli.train import train_run
from glasshead.cli.translate import alignment_blocks
from glasshead.drawing import Block, Document, Heading, Paragraph
from glasshead.tasks.data.sentences import HELD_OUT
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training import Hardware
from glasshead.tasks.translate import TRANSLATE, TextTranslator, TranslateSettings, align

_CPU = Hardware(accelerator="cpu")


def trained(run: Path) -> TextTranslator:
    """The translator in a folder, trained to its end; one that is there is not trained again.

    Errors: an OSError or ValueError where the folder has another run.
    """
    folder = RunFolder(run)
    if folder.config.exists() and _steps(folder) >= _wanted(folder):
        print_stderr(f"It is there already, from the last time; remove {run} to train anew.")
        return TextTranslator.load(run)
    with folder.locked():
        if not folder.config.exists():
            settings = TranslateSettings.from_preset("tiny")
            prepared = TRANSLATE.begin(settings, folder, "glasshead demo")
            train_run(prepared, folder, _CPU, resume=False)
        else:
            train_run(TRANSLATE.go_on(folder), folder, _CPU, resume=True)
    return TextTranslator.load(run)


def _wanted(folder: RunFolder) -> int:
    """How many steps its training has."""
    return TranslateSettings.from_run(folder).training.steps


def _steps(folder: RunFolder) -> int:
    """After how many steps it was validated last."""
    if not folder.metrics.exists():
        return 0
    return int(folder.read_metrics()["last"]["step"])


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
