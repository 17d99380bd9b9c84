"""How often a classifier is right."""

import dataclasses
from collections.abc import Sequence

from glasshead.cli.outputs.progress import Counter
from glasshead.cli.outputs.terminal import print_drawing, print_json
from glasshead.cli.training.figures import print_figures
from glasshead.drawing import Table
from glasshead.tasks.classify import Evaluation, TextClassifier
from glasshead.tasks.classify import evaluate as evaluate_labels


def evaluate_classifier(run: str, files: Sequence[str], *, json: bool) -> None:
    """Print the figures, and the table of what is taken for what.

    Errors: an OSError or ValueError where the run or a file is not what it is to be.
    """
    classifier = TextClassifier.load(run)
    with Counter("evaluating") as counter:
        evaluation = evaluate_labels(classifier, tuple(files), counter.show)
    if json:
        print_json(dataclasses.asdict(evaluation))
        return
    print_figures(dataclasses.asdict(evaluation), "text")
    print_drawing(confusion_table(evaluation))


def confusion_table(evaluation: Evaluation) -> Table:
    """How many texts of each label were given each label."""
    labels = evaluation.labels
    rows = [
        [label, *(f"{count:,}" for count in counts)]
        for label, counts in zip(labels, evaluation.confusion, strict=True)
    ]
    return Table(
        ["label", *(f"as {label}" for label in labels)],
        rows,
        caption="How many texts of each label were taken as what",
    )
