"""The command `report`: its options."""

from typing import Annotated

from typer import Argument, Option

from glasshead.cli.inputs.naming import input_file, output_file
from glasshead.cli.outputs.options import OUTPUT
from glasshead.cli.showing.report_request import ReportRequest


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
