"""The command `report`: write the studio's views of a text to one page."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from glasshead.cli.inputs.files import input_file, output_file, read_text, shown
from glasshead.cli.inputs.messages import print_stderr
from glasshead.cli.output import (
    OUTPUT,
    check_apart,
    check_language,
    check_target,
    chosen_language,
    going_on,
    spoken,
    write_page,
)
from glasshead.explanation.choices import quoted
from glasshead.message import Message
from glasshead.tasks.run_folder import require_for_model

if TYPE_CHECKING:
    from glasshead.explanation.translations import Say
    from glasshead.studio.report import Report


def report(
    model: Annotated[
        str,
        Argument(
            metavar="RUN_OR_HF_DIR",
            show_default=False,
            help="A run folder; the folder of a Hugging Face text model (config.json, tokenizer, "
            "safetensors weights); or a llama2.c model (.bin, with its tokenizer next to "
            "it), or its folder.",
        ),
    ],
    *,
    html: Annotated[
        str,
        Option(
            metavar="FILE",
            show_default=False,
            rich_help_panel=OUTPUT,
            help="HTML file to write; it opens offline. Missing folders are created.",
        ),
    ],
    text: Annotated[
        str | None,
        Option(
            metavar="FILE",
            show_default=False,
            help="Plain text file for the model to read; - reads standard input. Default: a "
            "held-out text of the training run.",
        ),
    ] = None,
    lang: Annotated[
        str | None,
        Option(
            metavar="CODE",
            show_default=False,
            rich_help_panel=OUTPUT,
            help="Language of the page: en, tr, es, zh-Hant or zh-Hans. Default: the language of "
            "the environment.",
        ),
    ] = None,
) -> None:
    """Write the studio's views of a text as one HTML page that opens offline."""
    folder = Path(model)
    text_file = input_file(text, "--text")
    page_file: Path = output_file(html, "--html")  # type: ignore[assignment] - it is given
    if not model:
        raise ValueError(Message("RUN_OR_HF_DIR must be the folder of a model, got an empty name."))
    check_language(lang)
    is_file = folder.suffix == ".bin" and folder.is_file()
    if not (folder.is_dir() or is_file):
        raise FileNotFoundError(
            Message(
                "RUN_OR_HF_DIR must be the folder of a run or a model, or a .bin file of "
                "llama2.c, got {model}. Check its name.",
                model=quoted(model),
            )
        )
    check_target(page_file)
    sources = [] if text_file is None else [text_file]
    check_apart(page_file, (*sources, *(folder.parent if is_file else folder).iterdir()))
    require_for_model(folder, "glasshead report RUN_OR_HF_DIR")
    content = None if text_file is None else _content(text_file)
    language = chosen_language(lang, os.environ)
    say = spoken(lang)
    with going_on(say("Reading…")):
        from glasshead.studio.report import Report

        made = Report(folder, content, lang=language)
        page = made.html()
    write_page(page_file, page)
    print_stderr(say("The page is at {place}", place=shown(page_file)))
    _print_gaps(made, say("the text") if text_file is None else shown(text_file), say)


def _print_gaps(made: "Report", text: str, say: "Say") -> None:
    """Print where a text is from that was not given, and what the page leaves out."""
    from glasshead.studio.shell import words

    if made.sample.origin != "given":
        name, said = f"shell.origin.{made.sample.origin}", words(say.language)
        origin = said.get(f"{name}.why", said[name])
        print_stderr(origin.format(why=say.translated(made.sample.why)))
    for view, why in made.refused.items():
        print_stderr(say("It has no view {view}: {why}", view=view, why=say.translated(why)))
    for view, (count, of) in made.tokens.items():
        if count < of:
            sentence = say(
                "Its view {view} shows {count:,} of the {of:,} tokens of {text}.",
                view=view,
                count=count,
                of=of,
                text=text,
            )
            print_stderr(sentence)


def _content(file: Path) -> str:
    content = read_text(file)
    if not content.strip():
        raise ValueError(
            Message(
                "a report needs a text of at least one word, got none in {file}. Name another "
                "file.",
                file=shown(file),
            )
        )
    return content
