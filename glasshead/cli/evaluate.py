"""The command `evaluate`: how good a trained model is."""

from typing import Annotated

import typer
from typer import Argument, Option


def evaluate(
    run: Annotated[str, Argument(metavar="RUN", show_default=False, help="The folder of a run.")],
    files: Annotated[
        list[str] | None,
        Argument(
            metavar="FILE",
            show_default=False,
            help="Texts; without any, those that the run held out.",
        ),
    ] = None,
    *,
    field: Annotated[
        str | None,
        Option(metavar="COLUMN", show_default=False, help="The column of tables with the text."),
    ] = None,
    json: Annotated[bool, Option("--json", help="Print the figures as JSON alone.")] = False,
) -> None:
    """Tell how good a trained model is: its loss, perplexity, bits a character."""
    from glasshead.cli.inputs.extras import check_extra

    check_extra("train", "glasshead evaluate")
    from glasshead.cli.outputs.progress import Counter
    from glasshead.cli.outputs.terminal import print_json
    from glasshead.cli.training.write import print_figures
    from glasshead.tasks.write import Writer
    from glasshead.tasks.write import evaluate as evaluated

    writer = Writer.load(run)
    with Counter("evaluating") as counter:
        figures = evaluated(writer, tuple(files or ()), field, counter.show)
    if json:
        print_json(figures)
        return
    print_figures(figures)
    typer.echo(f"{'tokens':<20}{figures['tokens']:,.0f}")
    typer.echo(f"{'characters':<20}{figures['characters']:,.0f}")
