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
    write_page,
)
from glasshead.explanation.choices import quoted
from glasshead.message import Message
from glasshead.tasks.run_folder import require_for_model

if TYPE_CHECKING:
    from glasshead.studio.report import Report


def report(
    model: Annotated[
        str,
        Argument(
            metavar="RUN_OR_HF_DIR",
            show_default=False,
            help="The folder of a run, or of a text model of Hugging Face, with its config.json, "
            "its tokenizer and its weights as safetensors; or llama2.c's file of a model (.bin), "
            "with its tokenizer beside it, or its folder.",
        ),
    ],
    *,
    html: Annotated[
        str,
        Option(
            metavar="FILE",
            show_default=False,
            rich_help_panel=OUTPUT,
            help="The page, one file that opens offline; folders are made as needed.",
        ),
    ],
    text: Annotated[
        str | None,
        Option(
            metavar="FILE",
            show_default=False,
            help="A plain text that the model reads; - reads standard input. If not given, a text "
            "that the run has held out.",
        ),
    ] = None,
    lang: Annotated[
        str | None,
        Option(
            metavar="CODE",
            show_default=False,
            rich_help_panel=OUTPUT,
            help="Language of the page: en, tr, es, zh-Hant or zh-Hans. If not given, that of "
            "the environment.",
        ),
    ] = None,
) -> None:
    """Write what the studio shows of a text as one page that opens offline, for sharing."""
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
                "RUN_OR_HF_DIR takes the folder of a run or a model, or a .bin file of "
                "llama2.c, and {model} is none: check its name.",
                model=quoted(model),
            )
        )
    check_target(page_file)
    sources = [] if text_file is None else [text_file]
    check_apart(page_file, (*sources, *(folder.parent if is_file else folder).iterdir()))
    require_for_model(folder, "glasshead report RUN_OR_HF_DIR")
    content = None if text_file is None else _content(text_file)
    language = chosen_language(lang, os.environ)
    with going_on("Reading…"):
        from glasshead.studio.report import Report

        made = Report(folder, content, lang=language)
        page = made.html()
    write_page(page_file, page)
    print_stderr(f"The page is at {shown(page_file)}")
    _print_gaps(made, "the text" if text_file is None else shown(text_file))


def _print_gaps(made: "Report", text: str) -> None:
    """Print where a text is from that was not given, and what the page leaves out."""
    from glasshead.studio.shell import words

    if made.sample.origin != "given":
        print_stderr(words("en")[f"shell.origin.{made.sample.origin}"].format(why=made.sample.why))
    for view, why in made.refused.items():
        print_stderr(f"It has no view {view}: {why}")
    for view, (count, of) in made.tokens.items():
        if count < of:
            print_stderr(f"Its view {view} shows {count:,} of the {of:,} tokens of {text}.")


def _content(file: Path) -> str:
    content = read_text(file)
    if not content.strip():
        raise ValueError(
            Message(
                "a report takes a text of a word at least, and {file} has none: name another file.",
                file=shown(file),
            )
        )
    return content
