"""The command `diagnose`: its options."""

from typing import Annotated

from typer import Argument, Option

from glasshead.cli.diagnosing.request import DiagnoseRequest
from glasshead.cli.inputs.naming import output_file
from glasshead.cli.inputs.wording import whole_number


def diagnose(
    file: Annotated[
        str,
        Argument(
            metavar="FILE",
            show_default=False,
            help="The mask: .npy, .npz with one array, .safetensors, .json (nested lists), or "
            "a table of 0, 1, true, false, other numbers or -inf (.csv, .tsv, .txt); - reads a "
            "table or JSON from standard input.",
        ),
    ],
    *,
    tensor: Annotated[
        str | None,
        Option(
            metavar="NAME",
            show_default=False,
            help="Which tensor of a safetensors file that has several; FILE:NAME says it too.",
        ),
    ] = None,
    queries: Annotated[
        int | None,
        Option(
            metavar="N",
            parser=whole_number,
            show_default=False,
            help="How many queries the attention will have. If not given, those of the mask.",
        ),
    ] = None,
    keys: Annotated[
        int | None,
        Option(
            metavar="N",
            parser=whole_number,
            show_default=False,
            help="How many keys it will have. If not given, those of the mask.",
        ),
    ] = None,
    offset: Annotated[
        int | None,
        Option(
            metavar="N",
            parser=whole_number,
            show_default=False,
            help="The position of the first query among the keys. If not given, keys - queries.",
        ),
    ] = None,
    convention: Annotated[
        str | None,
        Option(
            metavar="C",
            show_default=False,
            help="What the numbers mean: attend (1 = may attend), hidden (1 = hidden), additive or "
            "tokenizer. If not given, it is guessed.",
        ),
    ] = None,
    html: Annotated[
        str | None,
        Option(
            metavar="FILE", help="Also write one self-contained page; folders are made as needed."
        ),
    ] = None,
    width: Annotated[
        int | None,
        Option(
            metavar="N",
            parser=whole_number,
            show_default=False,
            help="How many columns the text takes. If not given, those of the terminal.",
        ),
    ] = None,
) -> None:
    """Tell what an attention mask of any library means, and what is wrong with it.

    The exit code is 0 for a healthy mask, 1 where there are errors or warnings, 2 for bad input.
    """
    request = DiagnoseRequest(
        file=file,
        tensor=tensor,
        queries=queries,
        keys=keys,
        offset=offset,
        convention=convention,
        html=output_file(html, "--html"),
        width=width,
    )
    request.check()
    request.execute()
