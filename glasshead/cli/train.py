"""The command `train`: a subcommand for each task."""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperCommand

from glasshead.cli.inputs.messages import check_task, print_stderr, whole_number
from glasshead.cli.output import chosen_language, going_on, spoken
from glasshead.drawing.printable import as_command
from glasshead.extras import require
from glasshead.message import _

if TYPE_CHECKING:
    from glasshead.explanation.translations import Say
    from glasshead.tasks.job import Job, Prepared
    from glasshead.tasks.run_folder import RunFolder
    from glasshead.tasks.training import Hardware

train = typer.Typer(
    help="Train a transformer on your texts, and save everything needed to use it in one folder.",
    invoke_without_command=True,
)
_run_option = partial(Option, show_default=False, rich_help_panel="Training run")
_hardware_option = partial(Option, rich_help_panel="Hardware")
_DEFAULT_PRESET = "tiny"
_TYPED = "glasshead.typed"
# The curve of a run is drawn by matplotlib.
TRAINING_LIBRARIES = ("lightning", "matplotlib", "pydantic", "tokenizers")


@train.callback()
def _train(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


_Run = Annotated[
    str, Option("--run", metavar="DIR", show_default=False, help="Run folder to write.")
]
_HeldOut = Annotated[
    list[str] | None,
    _run_option(
        metavar="FILE", help="Validation data, which training never uses. Default: a share of FILE."
    ),
]
_Assign = Annotated[
    list[str] | None,
    _run_option(
        "--set",
        metavar="KEY=VALUE…",
        help="Override settings of the preset, as in --set steps=500 tokenizer=bpe. config.json "
        "in the run folder lists all settings.",
    ),
]
_Resume = Annotated[
    bool,
    _run_option(
        "--resume", help="Resume the training run in the folder. --set steps=N changes its length."
    ),
]
_Watch = Annotated[
    bool,
    _run_option(
        "--watch",
        help="Log entropy and maximum score of each head every 40 steps (4 × log_every), and "
        "report heads that warn of divergence.",
    ),
]
_Devices = Annotated[
    int,
    _hardware_option(metavar="N", parser=whole_number, help="Number of processes on each machine."),
]
_Strategy = Annotated[
    str,
    _hardware_option(
        metavar="S",
        help="Strategy: auto; ddp: the whole model on each device; fsdp: a shard of the model on "
        "each GPU.",
    ),
]
_Nodes = Annotated[
    int,
    _hardware_option(
        metavar="N",
        parser=whole_number,
        help="Number of machines. Start the command on each with torchrun.",
    ),
]
_Accelerator = Annotated[
    str, _hardware_option(metavar="A", help="Accelerator: auto, cpu, gpu, cuda or mps.")
]
_Precision = Annotated[
    str,
    _hardware_option(
        metavar="P",
        help="Precision: auto (bfloat16 if the GPU supports it), 32-true or bf16-mixed.",
    ),
]


def _add(task: str, *, about: str, examples: str, presets: str) -> None:
    """Add the subcommand of a task; the options are common to all tasks."""

    @train.command(task, help=about, cls=_Typed)
    def train_task(
        context: typer.Context,
        files: Annotated[
            list[str] | None, Argument(metavar="FILE", show_default=False, help=examples)
        ] = None,
        *,
        run: _Run,
        preset: Annotated[
            str | None, _run_option(metavar="P", help=f"{presets} Default: tiny.")
        ] = None,
        held_out: _HeldOut = None,
        assign: _Assign = None,
        resume: _Resume = False,
        watch: _Watch = False,
        devices: _Devices = 1,
        strategy: _Strategy = "auto",
        nodes: _Nodes = 1,
        accelerator: _Accelerator = "auto",
        precision: _Precision = "auto",
    ) -> None:
        require("glasshead train", *TRAINING_LIBRARIES)
        from glasshead.tasks.training import Hardware

        _check_torchrun(nodes, os.environ)
        _check_rank(nodes * devices, os.environ)
        hardware = Hardware(
            devices=devices,
            strategy=strategy,  # type: ignore[arg-type]
            nodes=nodes,
            accelerator=accelerator,  # type: ignore[arg-type]
            precision=precision,  # type: ignore[arg-type]
        )
        typed = context.meta[_TYPED]
        assigned = _assigned(files or (), assign or (), held_out or (), typed)
        _train_task(task, run, preset, assigned, hardware, resume=resume, watch=watch)


class _Typed(TyperCommand):
    """A command that keeps its arguments in the order in which they were typed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_TYPED] = list(args)
        return super().parse_args(ctx, args)


# Overrides, files and held-out files of a run.
_Assigned = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]


def _assigned(
    files: Sequence[str], assign: Sequence[str], held_out: Sequence[str], typed: Sequence[str]
) -> _Assigned:
    """Return the overrides, which may stand among the files, and the files of a run.

    Args:
        files: What is a FILE to the parser, such as all but the first KEY=VALUE after --set.
        assign: The values of --set.
        held_out: The files of --held-out.
        typed: All arguments in their order, by which the later of two overrides wins.

    >>> typed = ["a.csv", "--set", "label=verdict", "steps=5", "--set=steps=7"]
    >>> _assigned(["a.csv", "steps=5"], ["label=verdict", "steps=7"], [], typed)
    (('label=verdict', 'steps=5', 'steps=7'), ('a.csv',), ())
    """
    more = [file for file in files if assign and _is_assignment(file)]
    places = {word.removeprefix("--set="): place for place, word in enumerate(typed)}
    overrides = sorted([*assign, *more], key=lambda one: places.get(one, -1))
    return tuple(overrides), tuple(file for file in files if file not in more), tuple(held_out)


def _is_assignment(argument: str) -> bool:
    """Return whether an argument is KEY=VALUE, and no file.

    >>> _is_assignment("label=verdict"), _is_assignment("texts/a=b.csv")
    (True, False)
    """
    return re.match(r"\w+=", argument) is not None and not Path(argument).exists()


def _train_task(
    task: str,
    run: str,
    preset: str | None,
    assigned: _Assigned,
    hardware: "Hardware",
    *,
    resume: bool,
    watch: bool,
) -> None:
    """Train into a folder, and print the metrics and the commands that use the run."""
    from glasshead.tasks.run_folder import RunFolder, leads

    if not run:
        raise ValueError(
            "--run must be a folder, got an empty name. Name one, as in --run runs/first."
        )
    folder = RunFolder(run)
    command = _reproducing_command(task, run, preset or _DEFAULT_PRESET, assigned)
    say = spoken(None)
    with folder.locked(resume=resume):
        with going_on(say("reading the texts")) if leads() else nullcontext():
            prepared = _prepare(task, folder, preset, assigned, hardware, command, resume=resume)
        figures = train_run(prepared, folder, hardware, say, resume=resume, watch=watch)
    if leads():
        print_figures(figures["best"], "text" if task == "classify" else "token")
        if watch:
            typer.echo(f"{'attention':<20}{_alarms(folder, say)}")
        _print_next_commands(task, run, say)


# What starts a process on each machine tells each of them where it stands, by one of these.
_PLACES = ("RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID")


def _check_torchrun(nodes: int, environment: Mapping[str, str]) -> None:
    """Raise a ValueError if one of several machines would wait for the others forever.

    >>> _check_torchrun(2, {"RANK": "0"})
    """
    if nodes > 1 and not any(name in environment for name in _PLACES):
        raise ValueError(
            f"--nodes {nodes} needs torchrun on each machine. Start with torchrun --nnodes "
            f"{nodes}, or omit --nodes to train on this one."
        )


def _check_rank(processes: int, environment: Mapping[str, str]) -> None:
    """Raise a ValueError if the only process would leave writing to another one.

    >>> _check_rank(2, {"RANK": "1"})
    """
    if processes > 1 or environment.get("WORLD_SIZE", "1") != "1":
        return
    for name in _PLACES:
        if environment.get(name, "0") != "0":
            raise ValueError(
                f"{name}={environment[name]} in the environment says that another process writes "
                f"the run, but there is one process. Start with env -u {name}, or ask for more "
                "with --devices or --nodes."
            )


def _job(task: str) -> "Job[Any]":
    """Return the training job of a task.

    >>> _job("write").title
    'A language model'
    """
    return getattr(import_module(f"glasshead.tasks.{task}"), task.upper())


def _prepare(
    task: str,
    folder: "RunFolder",
    preset: str | None,
    assigned: _Assigned,
    hardware: "Hardware",
    command: str,
    *,
    resume: bool,
) -> "Prepared[Any]":
    """Start a run in an empty folder, or load the run in it to train it further."""
    from glasshead.tasks.training import check_hardware

    job = _job(task)
    if resume:
        check_task(folder.path, task, f"train {task} --resume")
        prepared = job.go_on(folder, preset, *assigned)
        check_hardware(hardware, prepared.settings.training.optimizer, resume=True)
        return prepared
    settings = job.settings.from_preset(preset or _DEFAULT_PRESET, *assigned)
    # Before the folder becomes a run.
    check_hardware(hardware, settings.training.optimizer, resume=False)
    return job.begin(settings, folder, command, chosen_language(None, os.environ))


def _reproducing_command(task: str, run: str, preset: str, assigned: _Assigned) -> str:
    """Return the command that trains the same weights again."""
    settings, files, held_out_files = assigned
    held_out = [part for file in held_out_files for part in ("--held-out", file)]
    overrides = [part for setting in settings for part in ("--set", setting)]
    words = ["glasshead", "train", task, *files, *held_out, "--run", run]
    return as_command([*words, "--preset", preset, *overrides])


def train_run(
    prepared: "Prepared[Any]",
    folder: "RunFolder",
    hardware: "Hardware",
    say: "Say",
    *,
    resume: bool,
    watch: bool = False,
) -> dict[str, Any]:
    """Train to the end and return the metrics; an interruption prints how to resume.

    Errors: as of `train`.
    """
    from glasshead.tasks.run_folder import leads
    from glasshead.tasks.training import Interrupted

    if leads():
        count = sum(parameter.numel() for parameter in prepared.task.model.parameters())
        about = say.translated(prepared.about)
        print_stderr(say("{count:,} parameters, {about}", count=count, about=about))
    try:
        return prepared.train(folder, hardware, resume=resume, watch=watch, lang=say.language)
    except Interrupted as interrupted:
        print_stderr(say.translated(interrupted))
        raise typer.Abort from None


def _alarms(folder: "RunFolder", say: "Say") -> str:
    """Count the heads that raised an alarm, and name the first."""
    from glasshead.tasks.training import read_attention_log

    log = read_attention_log(folder.path)
    heads = {(reading.layer, reading.head) for reading in log.readings}
    raised = {(alarm.layer, alarm.head) for alarm in log.alarms}
    places = {"raised": len(raised), "heads": len(heads)}
    if not log.alarms:
        return say("{raised} of {heads} heads raised an alarm", **places)
    return say(
        "{raised} of {heads} heads raised an alarm, the first at {first}",
        **places,
        first=say.translated(log.alarms[0].sentence),
    )


# Commands that use a trained run, and what each does.
_NEXT = {
    "classify": {"classify {} TEXT": _("classifies a text")},
    "translate": {
        "translate {} TEXT": _("translates a text"),
        "translate {} TEXT --attention": _("and shows which words it looked at"),
    },
    "write": {
        "write {} --prompt TEXT": _("continues a text"),
        "near {} WORD": _("lists the tokens nearest to a word"),
    },
}


def _print_next_commands(task: str, run: str, say: "Say") -> None:
    typer.echo()
    commands = {
        f"glasshead {command.format(as_command([run]))}": say(does)
        for command, does in _NEXT[task].items()
    }
    width = max(map(len, commands))
    for command, does in commands.items():
        typer.echo(f"{command:<{width}}   {does}")


# Decimals and unit of each metric.
_METRICS = {
    "step": (0, ""),
    "loss": (4, "nats"),
    "perplexity": (2, ""),
    "bits_per_character": (4, ""),
    "accuracy": (4, ""),
    "f1": (4, ""),
    "bleu": (2, ""),
    "chrf": (2, ""),
    "exact": (4, ""),
    "tokens": (0, ""),
    "characters": (0, ""),
    "texts": (0, ""),
}


def print_figures(figures: Mapping[str, float], of: str = "token") -> None:
    """Print metrics, each with its unit.

    Args:
        figures: By name.
        of: The unit that the loss is averaged over.
    """
    for name, (digits, known) in _METRICS.items():
        unit = f"{known} per {of}" if known else known
        if name in figures:
            written = f"{name.replace('_', ' '):<20}{figures[name]:,.{digits}f} {unit}"
            typer.echo(written.rstrip())


_add(
    "classify",
    about="Train a classifier. Default: a tiny one on generated reviews, in a minute.",
    examples="Tables of texts and labels: .jsonl, .csv or .tsv, also as .gz or .xz. Columns are "
    "found by name or content; --set text=COLUMN label=COLUMN sets them. Default: generated "
    "reviews.",
    presets="Preset. tiny: a minute on two cores; small: some minutes; base: for a GPU; course: "
    "step 9 of the tutorial ladder.",
)
_add(
    "translate",
    about="Train a translator. Default: a tiny one, from German to English, in two minutes.",
    examples="Two text files with one text per line and its translation on the same line, as in "
    "train.de train.en; or tables: .jsonl, .csv or .tsv. Both also as .gz or .xz. Columns "
    "are found by name or order; --set source=COLUMN target=COLUMN sets them. Default: "
    "generated German and English.",
    presets="Preset. tiny: two minutes on two cores; small: about an hour; base: for a GPU.",
)
_add(
    "write",
    about="Train a language model. Default: a tiny one on generated stories, in two minutes.",
    examples="Texts: .txt, or .jsonl, .csv or .tsv with a column of texts, also as .gz or .xz. "
    "Default: generated stories.",
    presets="Preset. tiny: two minutes on two cores; small: ten minutes; base: for a GPU; nano: "
    "nanoGPT's CPU setting.",
)
