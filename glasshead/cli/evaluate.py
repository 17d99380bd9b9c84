"""The command `evaluate`: how good a trained model is, by the task that it was trained for."""

from collections.abc import Iterable
from typing import Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from glasshead.cli.inputs.files import output_file
from glasshead.cli.inputs.messages import listed, quoted, whole_number

_Run = Annotated[str, Argument(metavar="RUN", show_default=False, help="The folder of a run.")]
_Files = Annotated[
    list[str] | None,
    Argument(
        metavar="FILE",
        show_default=False,
        help="Files like those of training; without any, what the run held out.",
    ),
]
_Json = Annotated[bool, Option("--json", help="Print the figures as JSON alone.")]


class _ByTask(TyperGroup):
    """A group whose command may be left out, as the run knows its task."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        run = self._first(args)
        if run is not None and run not in self.commands:
            args = [_task_of(run, self.commands), *args]
        return super().parse_args(ctx, args)

    def _first(self, args: list[str]) -> str | None:
        """The first argument that is neither an option nor the value of one."""
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
    help="Tell how good a trained model is: glasshead evaluate RUN [FILE]…, as the run knows its "
    "task, or with the task before it.",
    invoke_without_command=True,
)


@evaluate.callback()
def _evaluate(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@evaluate.command("classify")
def classify(run: _Run, files: _Files = None, *, json: _Json = False) -> None:
    """Accuracy, F1, and what is taken for what."""
    _check_extra()
    from glasshead.cli.evaluating import evaluate_classifier

    evaluate_classifier(run, files or (), json=json)


@evaluate.command("translate")
def translate(
    run: _Run,
    files: _Files = None,
    *,
    beam: Annotated[
        int,
        Option(
            metavar="WIDTH",
            parser=whole_number,
            help="How many beginnings are gone on with at a time; 1 is greedy.",
        ),
    ] = 5,
    length_penalty: Annotated[
        float, Option(metavar="A", help="Above 0 longer translations lose less.")
    ] = 1.0,
    save: Annotated[
        str | None,
        Option(metavar="FILE", help="Also write the translations, a line each."),
    ] = None,
    json: _Json = False,
) -> None:
    """BLEU and chrF, as sacreBLEU counts them, with their signatures."""
    _check_extra()
    from glasshead.cli.evaluating import evaluate_translator
    from glasshead.models.decoding import Beam

    strategy = Beam(beam, length_penalty=length_penalty)
    evaluate_translator(run, files or (), strategy, output_file(save, "--save"), json=json)


@evaluate.command("write")
def write(
    run: _Run,
    files: _Files = None,
    *,
    field: Annotated[
        str | None,
        Option(metavar="COLUMN", show_default=False, help="The column of tables with the text."),
    ] = None,
    json: _Json = False,
) -> None:
    """Loss, perplexity, bits a character."""
    _check_extra()
    from glasshead.cli.evaluating import evaluate_writer

    evaluate_writer(run, files or (), field, json=json)


def _check_extra() -> None:
    from glasshead.cli.inputs.messages import check_extra

    check_extra("train", "glasshead evaluate")


def _task_of(run: str, known: Iterable[str]) -> str:
    from glasshead.tasks.run_folder import RunFolder

    folder = RunFolder(run)
    task = str(folder.read_config().get("task"))
    if task not in known:
        raise ValueError(
            f"{folder.config} says that its task is {quoted(task)}, and expected is one of "
            f"{listed(known)}: train anew."
        )
    return task
