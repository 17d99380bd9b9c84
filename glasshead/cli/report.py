"""The command `report`: the studio's views in one file."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from glasshead.cli.inputs.files import input_file, output_file, read_text, shown
from glasshead.cli.inputs.messages import check_extra_of, quoted
from glasshead.cli.output import (
    OUTPUT,
    check_apart,
    check_language,
    check_target,
    chosen_language,
    going_on,
    print_stderr,
    write_page,
)


@dataclass(frozen=True, kw_only=True)
class ReportRequest:
    """What the user wrote; the fields are the options of the command."""

    model: str
    text: Path
    html: Path
    lang: str | None = None

    @property
    def folder(self) -> Path:
        """The folder of the run, or of the model."""
        return Path(self.model)

    def check(self) -> None:
        """Raise where an option is wrong by itself, before torch is imported.

        Errors: a ValueError or an OSError that names the option.
        """
        if not self.model:
            raise ValueError("RUN_OR_HF_DIR takes the folder of a model, and got nothing: name it.")
        check_language(self.lang)
        if not self.folder.is_dir():
            raise FileNotFoundError(
                f"RUN_OR_HF_DIR takes the folder of a run or a model, and {quoted(self.model)} is "
                f"none: check its name."
            )
        check_target(self.html)
        check_apart(self.html, (self.text, *self.folder.iterdir()))
        check_extra_of(self.folder, "glasshead report RUN_OR_HF_DIR")

    def execute(self) -> None:
        """Read, and write the page.

        Errors: a ValueError, TypeError or OSError in one sentence. Then nothing was written.
        """
        text = read_text(self.text)
        if not text.strip():
            raise ValueError(
                f"a report takes a text of a word at least, and {shown(self.text)} has none: name "
                f"another file."
            )
        lang = chosen_language(self.lang, os.environ)
        with going_on("Reading…"):
            from glasshead.studio.report import Report

            report = Report(self.folder, text, lang=lang)
            page = report.html()
        write_page(self.html, page)
        print_stderr(f"The page is at {shown(self.html)}")
        for view, why in report.refused.items():
            print_stderr(f"It has no view {view}: {why}")
        for view, (count, of) in report.tokens.items():
            if count < of:
                print_stderr(
                    f"Its view {view} shows {count:,} of the {of:,} tokens of {shown(self.text)}."
                )


def report(
    model: Annotated[
        str,
        Argument(
            metavar="RUN_OR_HF_DIR",
            show_default=False,
            help="The folder of a run, or of a text model of Hugging Face, with its config.json, "
            "its tokenizer and its weights as safetensors.",
        ),
    ],
    *,
    text: Annotated[
        str,
        Option(
            metavar="FILE",
            show_default=False,
            help="A plain text that the model reads; - reads standard input.",
        ),
    ],
    html: Annotated[
        str,
        Option(
            metavar="FILE",
            show_default=False,
            rich_help_panel=OUTPUT,
            help="The page, one file that opens offline; folders are made as needed.",
        ),
    ],
    lang: Annotated[
        str | None,
        Option(
            metavar="CODE",
            show_default=False,
            rich_help_panel=OUTPUT,
            help="The language of the page: en, tr, es, zh-Hant or zh-Hans. If not given, that of "
            "the environment.",
        ),
    ] = None,
) -> None:
    """Write what the studio shows of a text as one page that opens offline, for sharing."""
    request = ReportRequest(
        model=model,
        text=input_file(text, "--text"),  # type: ignore[arg-type] - it is given
        html=output_file(html, "--html"),  # type: ignore[arg-type] - it is given
        lang=lang,
    )
    request.check()
    request.execute()
