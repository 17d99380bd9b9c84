"""The work of `glasshead evaluate`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import typer

from glasshead.cli.inputs.files import shown
from glasshead.cli.output import (
    Counter,
    Kind,
    check_target,
    print_drawing,
    print_json,
    print_stderr,
    write_bytes,
)
from glasshead.cli.training import print_figures
from glasshead.drawing import Table
from glasshead.models.decoding import Beam
from glasshead.tasks.classify import LabelEvaluation, TextClassifier
from glasshead.tasks.classify import evaluate as evaluate_labels
from glasshead.tasks.translate import TextTranslator
from glasshead.tasks.translate import evaluate as evaluate_translations
from glasshead.tasks.write import Writer
from glasshead.tasks.write import evaluate as evaluate_text


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


def confusion_table(evaluation: LabelEvaluation) -> Table:
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


_TRANSLATIONS = Kind("--save", "the translations", "translations.txt")


def evaluate_translator(
    run: str,
    files: Sequence[str],
    strategy: Beam,
    save: Path | None,
    *,
    json: bool,
) -> None:
    """Print the figures.

    Errors: an OSError or ValueError where the run or a file is not what it is to be.
    """
    if save is not None:
        check_target(save, _TRANSLATIONS)
    translator = TextTranslator.load(run)
    with Counter("translating") as counter:
        found = evaluate_translations(translator, tuple(files), strategy, counter.show)
    if save is not None:
        lines = "".join(f"{translation.text}\n" for translation in found.translations)
        write_bytes(save, lines.encode(), _TRANSLATIONS)
    figures = {"bleu": found.bleu, "chrf": found.chrf, "exact": found.exact, "texts": found.texts}
    signatures = {"bleu": found.bleu_signature, "chrf": found.chrf_signature}
    if json:
        print_json({**figures, "signatures": signatures})
    else:
        print_figures(figures)
        for name, signature in signatures.items():
            typer.echo(f"{name + ' signature':<20}{signature}")
    if save is not None:
        print_stderr(f"The translations are at {shown(save)}")


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
