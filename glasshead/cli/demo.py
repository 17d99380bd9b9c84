"""The command `demo`: all at once, from three words to a trained translator."""

from typing import Annotated

from typer import Option

from glasshead.cli.inputs.files import output_folder


def demo(
    *,
    folder: Annotated[
        str, Option(metavar="DIR", help="Where the page and the translator are put.")
    ] = "demo",
) -> None:
    """Explain the worked example, train a translator, and see which words it looks at."""
    from glasshead.cli.inputs.messages import check_extra

    check_extra("train", "glasshead demo")
    from glasshead.cli.demonstrating import run_demo

    run_demo(output_folder(folder, "--folder"))
