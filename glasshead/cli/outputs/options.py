"""Options that several commands have, of what they write."""

from typing import Annotated

from typer import Option

from glasshead.cli.inputs.wording import whole_number

OUTPUT = "The output"

Width = Annotated[
    int | None,
    Option(
        metavar="N",
        parser=whole_number,
        show_default=False,
        rich_help_panel=OUTPUT,
        help="How many columns the text takes. If not given, those of the terminal.",
    ),
]
