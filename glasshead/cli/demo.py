"""The command `demo`: explain the worked example, train a translator, and show its attention."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from glasshead.cli.explain import explain_sentence
from glasshead.cli.inputs.files import output_folder, shown
from glasshead.cli.inputs.messages import print_stderr
from glasshead.cli.inputs.settings import CommandSettings
from glasshead.cli.output import (
    Lang,
    check_language,
    check_target,
    print_drawing,
    spoken,
    write_page,
)
from glasshead.cli.train import TRAINING_LIBRARIES, train_run
from glasshead.cli.translate import alignment_blocks
from glasshead.drawing.printable import as_command
from glasshead.extras import require
from glasshead.message import Message

if TYPE_CHECKING:
    from glasshead.drawing import Block
    from glasshead.explanation.translations import Say
    from glasshead.tasks.run_folder import RunFolder
    from glasshead.tasks.translate import TextTranslator

_PAGE, _RUN = "glasshead.html", "translator"
_ANOTHER = "Wir müssen heute die Tür aufmachen."


def demo(
    *,
    folder: Annotated[
        str, Option(metavar="DIR", help="Folder for the page and the translator.")
    ] = "demo",
    resume: Annotated[
        bool,
        Option(
            "--resume",
            help="Resume interrupted training in DIR; an error if DIR has none. Without this "
            "option, the demo resumes if it can.",
        ),
    ] = False,
    lang: Lang = None,
) -> None:
    """Explain the worked example, train a translator, and show which words it attends to."""
    check_language(lang)
    require("glasshead demo", *TRAINING_LIBRARIES)
    place = output_folder(folder, "--folder")
    page, run = place / _PAGE, place / _RUN
    check_target(page)
    if resume and not (run / "config.json").exists():
        raise FileNotFoundError(
            Message("{run} has no run to resume. Omit --resume to begin one.", run=shown(run))
        )
    from glasshead.drawing import Document, Heading, Paragraph

    say = spoken(lang)
    explanation = explain_sentence(CommandSettings(lang=say.language)).document()
    title, training = say("glasshead: attention you can see through"), Paragraph(_training(say))
    _print(Paragraph(_plan(place, say)), title=title, say=say)
    typer.echo()
    print_drawing(explanation)
    _print(training, title=say("A translator, trained from scratch"), say=say)
    translator = trained(run, _command(folder, lang), say)
    blocks = _translated(translator, say)
    _print(*blocks, title=say("A new sentence"), say=say)
    all_parts = Document(
        [
            Heading(say("A sentence that is new to the translator")),
            *blocks,
            training,
            Heading(explanation.title),
            *explanation.blocks,
        ],
        title=title,
        language=say.language,
        words=say.words(),
    )
    write_page(page, all_parts.html())
    _say_where(page, run, say)


def _command(folder: str, lang: str | None) -> str:
    """Return the command that makes this demo again."""
    language = [] if lang is None else ["--lang", lang]
    return as_command(["glasshead", "demo", "--folder", folder, *language])


def _training(say: "Say") -> str:
    return say(
        "An encoder reads German and a decoder writes English. Cross-attention connects "
        "them, computed as in the worked example: for each word to write, the decoder "
        "compares, weighs and mixes the words of the German sentence. The translator learns "
        "from generated sentences, in which German puts its verbs in other places than "
        "English."
    )


def _plan(folder: Path, say: "Say") -> str:
    return say(
        "The demo first computes an attention of three words step by step. It then trains a "
        "translator, in one to eight minutes, depending on the processor. At last the "
        "translator reads a new sentence, and the demo shows which German words each English "
        "word looked at. All files are written to {folder}.",
        folder=shown(folder),
    )


def _translated(translator: "TextTranslator", say: "Say") -> "list[Block]":
    """Translate a held-out sentence; draw the translation and its cross-attention."""
    from glasshead.drawing import Paragraph
    from glasshead.tasks.data.sentences import HELD_OUT
    from glasshead.tasks.translate import align

    translation = translator.translate([HELD_OUT.german])[0]
    written = say("English: {text} (wrong)", text=translation.text)
    if translation.text == HELD_OUT.english:
        written = say("English: {text} (correct)", text=translation.text)
    return [
        Paragraph(say("German: {text}", text=translation.source)),
        Paragraph(written),
        *alignment_blocks(align(translator, translation), say),
    ]


def trained(run: Path, command: str, say: "Say") -> "TextTranslator":
    """Train the translator in a folder to its end; a finished one is loaded.

    Args:
        run: The folder.
        command: The command that trains it, for the README of the run.
        say: The language of the README, and of what is said meanwhile.

    Errors: an OSError or ValueError if the folder has another run.
    """
    from glasshead.tasks.run_folder import RunFolder
    from glasshead.tasks.training import Hardware
    from glasshead.tasks.translate import TRANSLATE, TextTranslator, TranslateSettings

    cpu = Hardware(accelerator="cpu")
    folder = RunFolder(run)
    if folder.config.exists() and _steps(folder) >= _wanted(folder):
        print_stderr(
            say(
                "The translator exists from an earlier demo. Delete {run} to train it again.",
                run=run,
            )
        )
        return TextTranslator.load(run)
    with folder.locked():
        if not folder.config.exists():
            settings = TranslateSettings.from_preset("tiny")
            prepared = TRANSLATE.begin(settings, folder, command, say.language)
            train_run(prepared, folder, cpu, say, resume=False)
        else:
            train_run(TRANSLATE.go_on(folder), folder, cpu, say, resume=True)
    return TextTranslator.load(run)


def _wanted(folder: "RunFolder") -> int:
    """Return the number of training steps in the run's settings."""
    from glasshead.tasks.translate import TranslateSettings

    return TranslateSettings.from_run(folder).training.steps


def _steps(folder: "RunFolder") -> int:
    """Return the step of the last validation."""
    if not folder.metrics.exists():
        return 0
    return int(folder.read_metrics()["last"]["step"])


def _say_where(page: Path, run: Path, say: "Say") -> None:
    name = shown(run)
    lines = {
        shown(page): say("shows all of this as a page: open it in a browser"),
        shown(run): say("is the translator. Translate with it, or open it in the studio:"),
    }
    width = max(map(len, lines))
    typer.echo()
    for place, said in lines.items():
        typer.echo(f"{place:<{width}}  {said}")
    typer.echo(as_command(["glasshead", "translate", name, _ANOTHER, "--attention"]))
    typer.echo(as_command(["glasshead", "studio", name]))


def _print(*blocks: "Block", title: str, say: "Say") -> None:
    from glasshead.drawing import Document

    typer.echo()
    document = Document(list(blocks), title=title, language=say.language, words=say.words())
    print_drawing(document)
