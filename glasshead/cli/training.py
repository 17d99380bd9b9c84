"""The work of `glasshead train`, and the decoding options of its models."""

import shlex
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer

from glasshead.cli.exits import INTERRUPTED
from glasshead.cli.output import going_on, print_stderr
from glasshead.models.decoding import Beam, Greedy, Sampling, Strategy
from glasshead.tasks.job import Job, Prepared, train_to_the_end
from glasshead.tasks.run_folder import RunFolder, leads
from glasshead.tasks.training import (
    Hardware,
    Interrupted,
    check_hardware,
    read_attention_log,
)

_TEMPERATURE = 0.8


def chosen_strategy(**options: Any) -> Strategy:
    """Greedy at temperature 0, a beam where one is asked for, else sampling.

    Args:
        options: As the command line names them; None for what is not given.

    Errors: a ValueError where the options do not go together, or a number is none.

    >>> chosen_strategy(temperature=0.0), chosen_strategy(beam=3)
    (Greedy(repetition_penalty=1.0), Beam(width=3, length_penalty=1.0, candidates=1))
    """
    given = {name: value for name, value in options.items() if value is not None}
    if "beam" in given:
        alone = {"beam", "length_penalty"}
        _check_only(given, alone, "--beam searches, and")
        return Beam(given["beam"], length_penalty=given.get("length_penalty", 1.0))
    if "length_penalty" in given:
        raise ValueError("--length-penalty belongs to a beam: add --beam WIDTH, or leave it out.")
    if given.get("temperature") == 0:
        alone = {"temperature", "seed", "repetition_penalty"}
        _check_only(given, alone, "--temperature 0 takes the likeliest, and")
        return Greedy(repetition_penalty=given.get("repetition_penalty", 1.0))
    return Sampling(
        temperature=given.get("temperature", _TEMPERATURE),
        top_k=given.get("top_k"),
        top_p=given.get("top_p"),
        seed=given.get("seed"),
        repetition_penalty=given.get("repetition_penalty", 1.0),
    )


def _check_only(given: dict[str, Any], known: set[str], why: str) -> None:
    surplus = [f"--{name.replace('_', '-')}" for name in given if name not in known]
    if surplus:
        raise ValueError(f"{why} {', '.join(surplus)} would change nothing: leave it out.")


# How many decimals each has, and its unit.
_KNOWN = {
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
    """The figures that are there, each with its unit.

    Args:
        figures: By name.
        of: What the loss is the mean over.
    """
    for name, (digits, known) in _KNOWN.items():
        unit = f"{known} a {of}" if known else known
        if name in figures:
            written = f"{name.replace('_', ' '):<20}{figures[name]:,.{digits}f} {unit}"
            typer.echo(written.rstrip())


def job(task: str) -> Job[Any]:
    """The job of a task.

    >>> job("write").title
    'A language model'
    """
    return getattr(import_module(f"glasshead.tasks.{task}"), task.upper())


DEFAULT = "tiny"
# What to do with a run, and what that does.
_NEXT = {
    "classify": {"classify {} TEXT": "tells what a text is"},
    "translate": {
        "translate {} TEXT": "translates a text",
        "translate {} TEXT --attention": "and shows which words it looked at",
    },
    "write": {
        "write {} --prompt TEXT": "goes on with a text",
        "near {} WORD": "shows what is like a word",
    },
}


@dataclass(frozen=True)
class TrainRequest:
    """What the user wrote; the fields are the options of the command, but for the first."""

    task: str
    files: tuple[str, ...]
    held_out: tuple[str, ...]
    run: str
    preset: str | None
    assign: tuple[str, ...]
    resume: bool
    watch: bool
    hardware: dict[str, Any]

    def command(self) -> str:
        """The command that makes the run's weights again."""
        held_out = [part for each in self.held_out for part in ("--held-out", each)]
        assigned = [part for each in self.assign for part in ("--set", each)]
        words = ["glasshead", "train", self.task, *self.files, *held_out, "--run", self.run]
        return shlex.join([*words, "--preset", self.preset or DEFAULT, *assigned])


def run_training(request: TrainRequest) -> None:
    """Train, or go on training.

    Errors: an OSError or ValueError where an option, a file, the folder or training itself goes
    wrong.
    """
    if not request.run:
        raise ValueError("--run takes a folder, and got nothing: name one, as in --run runs/first.")
    hardware, folder = Hardware(**request.hardware), RunFolder(request.run)
    with folder.locked(resume=request.resume):
        with going_on("reading the texts") if leads() else nullcontext():
            prepared = _prepared(request, folder, hardware)
        figures = train_run(prepared, folder, hardware, resume=request.resume, watch=request.watch)
    if leads():
        print_figures(figures["best"], "text" if request.task == "classify" else "token")
        if request.watch:
            typer.echo(f"{'attention':<20}{_alarms(folder)}")
        typer.echo()
        commands = {
            f"glasshead {command.format(shlex.quote(request.run))}": does
            for command, does in _NEXT[request.task].items()
        }
        width = max(map(len, commands))
        for command, does in commands.items():
            typer.echo(f"{command:<{width}}   {does}")


def train_run(
    prepared: Prepared[Any],
    folder: RunFolder,
    hardware: Hardware,
    *,
    resume: bool,
    watch: bool = False,
) -> dict[str, Any]:
    """Train to the end, and give the figures; whoever interrupts it is told how to go on.

    Errors: as of `train`.
    """
    if leads():
        count = sum(parameter.numel() for parameter in prepared.task.model.parameters())
        print_stderr(f"{count:,} parameters, {prepared.about}")
    try:
        return train_to_the_end(prepared, folder, hardware, resume=resume, watch=watch)
    except Interrupted as interrupted:
        print_stderr(str(interrupted))
        raise typer.Exit(INTERRUPTED) from None


def _alarms(folder: RunFolder) -> str:
    """How many heads raised an alarm, and the first of them."""
    log = read_attention_log(folder.path)
    heads = {(reading.layer, reading.head) for reading in log.readings}
    raised = {(alarm.layer, alarm.head) for alarm in log.alarms}
    said = f"{len(raised)} of {len(heads)} heads raised an alarm"
    return f"{said}, the first at {log.alarms[0].sentence}" if log.alarms else said


def _prepared(request: TrainRequest, folder: RunFolder, hardware: Hardware) -> Prepared[Any]:
    asked = (request.assign, request.files, request.held_out)
    task = job(request.task)
    if request.resume:
        prepared = task.go_on(folder, request.preset, *asked)
        check_hardware(hardware, prepared.settings.training.optimizer, resume=True)
        return prepared
    settings = task.settings.from_preset(request.preset or DEFAULT, *asked)
    # Before the folder becomes a run.
    check_hardware(hardware, settings.training.optimizer, resume=False)
    return task.begin(settings, folder, request.command())
