"""The command `evaluate`: metrics of a trained model on its task."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from glasshead.cli.inputs.files import Run, output_file, shown
from glasshead.cli.inputs.messages import (
    check_task,
    listed,
    number,
    options_of_decoding,
    print_stderr,
    quoted,
    whole_number,
)
from glasshead.cli.output import (
    Counter,
    Kind,
    check_target,
    print_drawing,
    print_json,
    spoken,
    write_bytes,
)
from glasshead.cli.train import print_figures
from glasshead.drawing.printable import nearest
from glasshead.extras import require

if TYPE_CHECKING:
    from glasshead.drawing import Table
    from glasshead.explanation.translations import Say
    from glasshead.tasks.classify import LabelEvaluation

_Files = Annotated[
    list[str] | None,
    Argument(
        metavar="FILE",
        show_default=False,
        help="Evaluation data, in the format of the training files. Default: the held-out data of "
        "the training run.",
    ),
]
_Json = Annotated[bool, Option("--json", help="Print the metrics as JSON.")]


class _ByTask(TyperGroup):
    """A command group whose subcommand may be omitted, as the run stores its task."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        run = self._first(args)
        if run is not None and run not in self.commands:
            args = [_task_of(run, self.commands), *args]
        return super().parse_args(ctx, args)

    def _first(self, args: list[str]) -> str | None:
        """Return the first argument that is neither an option nor the value of one."""
        taking = {
            name
            for command in self.commands.values()
            for parameter in command.params
            if not getattr(parameter, "is_flag", False)
            for name in parameter.opts
            if name.startswith("-")
        }
        pairs = zip(["", *args], args, strict=False)
        return next(
            (one for before, one in pairs if not one.startswith("-") and before not in taking), None
        )


evaluate = typer.Typer(
    cls=_ByTask,
    help="Evaluate a trained model: glasshead evaluate RUN [FILE]… The run folder stores its "
    "task; you may also write the task before RUN.",
    invoke_without_command=True,
)


@evaluate.callback()
def _evaluate(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@evaluate.command("classify")
def classify(run: Run, files: _Files = None, *, json: _Json = False) -> None:
    """Print accuracy, F1 and the confusion matrix."""
    require("glasshead evaluate", "tokenizers", "torchmetrics")
    from glasshead.tasks.classify import TextClassifier
    from glasshead.tasks.classify import evaluate as evaluate_labels

    check_task(Path(run), "classify", "evaluate classify")
    classifier = TextClassifier.load(run)
    say = spoken(None)
    with Counter(say("evaluating")) as counter:
        evaluation = evaluate_labels(classifier, tuple(files or ()), counter.show)
    if json:
        print_json(dataclasses.asdict(evaluation))
        return
    print_figures(dataclasses.asdict(evaluation), "text")
    print_drawing(confusion_table(evaluation, say))


def confusion_table(evaluation: "LabelEvaluation", say: "Say") -> "Table":
    """Draw the confusion matrix: rows are true labels, columns predicted ones."""
    from glasshead.drawing import Table

    labels = evaluation.labels
    rows = [
        [label, *(f"{count:,}" for count in counts)]
        for label, counts in zip(labels, evaluation.confusion, strict=True)
    ]
    return Table(
        [say("label"), *(say("as {label}", label=label) for label in labels)],
        rows,
        caption=say("Number of texts by label (rows) and predicted label (columns)"),
    )


_TRANSLATIONS = Kind("--save", "the translations", "translations.txt")


@evaluate.command("translate")
def translate(
    run: Run,
    files: _Files = None,
    *,
    beam: Annotated[
        int, Option(metavar="WIDTH", parser=whole_number, help="Beam width; 1 is greedy search.")
    ] = 5,
    length_penalty: Annotated[
        float,
        Option(
            metavar="A",
            parser=number,
            help="Length penalty. Above 0, it favors longer translations.",
        ),
    ] = 1.0,
    save: Annotated[
        str | None, Option(metavar="FILE", help="Also write the translations, one per line.")
    ] = None,
    json: _Json = False,
) -> None:
    """Print BLEU and chrF, computed by sacreBLEU, with their signatures."""
    require("glasshead evaluate", "tokenizers", "sacrebleu")
    from glasshead.models.decoding import Beam
    from glasshead.tasks.translate import TextTranslator
    from glasshead.tasks.translate import evaluate as evaluate_translations

    with options_of_decoding():
        strategy = Beam(beam, length_penalty=length_penalty)
    file = output_file(save, "--save")
    if file is not None:
        check_target(file, _TRANSLATIONS)
    check_task(Path(run), "translate", "evaluate translate")
    translator = TextTranslator.load(run)
    say = spoken(None)
    with Counter(say("translating")) as counter:
        result = evaluate_translations(translator, tuple(files or ()), strategy, counter.show)
    if file is not None:
        lines = "".join(f"{translation.text}\n" for translation in result.translations)
        write_bytes(file, lines.encode(), _TRANSLATIONS)
    figures = {
        "bleu": result.bleu,
        "chrf": result.chrf,
        "exact": result.exact,
        "texts": result.texts,
    }
    signatures = {"bleu": result.bleu_signature, "chrf": result.chrf_signature}
    if json:
        print_json({**figures, "signatures": signatures})
    else:
        print_figures(figures)
        for name, signature in signatures.items():
            typer.echo(f"{name + ' signature':<20}{signature}")
    if file is not None:
        print_stderr(say("The translations are at {place}", place=shown(file)))


@evaluate.command("write")
def write(
    run: Run,
    files: _Files = None,
    *,
    field: Annotated[
        str | None,
        Option(metavar="COLUMN", show_default=False, help="Column of a table that holds the text."),
    ] = None,
    json: _Json = False,
) -> None:
    """Print loss, perplexity and bits per character."""
    require("glasshead evaluate", "tokenizers")
    from glasshead.tasks.write import Writer
    from glasshead.tasks.write import evaluate as evaluate_text

    check_task(Path(run), "write", "evaluate write")
    writer = Writer.load(run)
    say = spoken(None)
    with Counter(say("evaluating")) as counter:
        figures = evaluate_text(writer, tuple(files or ()), field, counter.show)
    if json:
        print_json(figures)
    else:
        print_figures(figures)


def _task_of(run: str, known: Iterable[str]) -> str:
    """Read the task from a run's config."""
    from glasshead.tasks.run_folder import RunFolder

    folder = RunFolder(run)
    alike = nearest(run, known)
    if alike and not folder.path.exists():
        raise ValueError(f"there is no task or folder {quoted(run)}. Did you mean {alike!r}?")
    task = str(folder.read_config().get("task"))
    if task not in known:
        raise ValueError(
            f"the task in {folder.config} must be one of {listed(known)}, got {quoted(task)}. "
            "Train again."
        )
    return task
