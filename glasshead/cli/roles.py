"""The command `roles`: its options."""

from typing import Annotated

from typer import Argument, Option

from glasshead.cli.finding_roles.request import RolesRequest
from glasshead.cli.inputs.naming import input_file, output_file
from glasshead.cli.inputs.wording import whole_number
from glasshead.cli.outputs.options import OUTPUT, Width

_SUBJECT = "What is read"


def roles(
    model: Annotated[
        str,
        Argument(
            metavar="MODEL",
            show_default=False,
            help="The folder of a run of train write, or of a text model of Hugging Face, with its "
            "config.json, its tokenizer and its weights as safetensors.",
        ),
    ],
    *,
    text: Annotated[
        str | None,
        Option(
            metavar="FILE",
            rich_help_panel=_SUBJECT,
            help="A text that MODEL reads, too: plain, the texts of a .jsonl, .csv or .tsv, or a "
            "folder of such files.",
        ),
    ] = None,
    period: Annotated[
        int | None,
        Option(
            metavar="N",
            parser=whole_number,
            show_default=False,
            rich_help_panel=_SUBJECT,
            help="How many random tokens are repeated. If not given, 25, or as many as fit twice "
            "into what MODEL reads at once.",
        ),
    ] = None,
    seed: Annotated[
        int,
        Option(
            metavar="N",
            parser=whole_number,
            rich_help_panel=_SUBJECT,
            help="Which random tokens.",
        ),
    ] = 0,
    png: Annotated[
        str | None,
        Option(
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Also draw all scores, layers × heads; folders are made as needed.",
        ),
    ] = None,
    json: Annotated[
        str | None,
        Option(metavar="FILE", rich_help_panel=OUTPUT, help="Also write all scores, as JSON."),
    ] = None,
    width: Width = None,
) -> None:
    """Find what each head of a model does, on repeated random tokens and on a text."""
    request = RolesRequest(
        model=model,
        text=input_file(text, "--text"),
        period=period,
        seed=seed,
        png=output_file(png, "--png"),
        json=output_file(json, "--json"),
        width=width,
    )
    request.check()
    request.execute()
