"""How well a language model tells a text."""

from collections.abc import Sequence

from glasshead.cli.outputs.progress import Counter
from glasshead.cli.outputs.terminal import print_json
from glasshead.cli.training.figures import print_figures
from glasshead.tasks.write import Writer
from glasshead.tasks.write import evaluate as evaluate_text


def evaluate_writer(run: str, files: Sequence[str], field: str | None, *, json: bool) -> None:
    """Print the figures.

    Errors: an OSError or ValueError where the run or a file is not what it is to be.
    """
    writer = Writer.load(run)
    with Counter("evaluating") as counter:
        figures = evaluate_text(writer, tuple(files), field, counter.show)
    if json:
        print_json(figures)
    else:
        print_figures(figures)
