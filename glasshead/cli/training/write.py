"""Write: trains a language model, says how good it became, and what to do with it."""

import shlex
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import typer

from glasshead.cli.outputs.progress import going_on
from glasshead.cli.outputs.terminal import remark
from glasshead.cli.program import INTERRUPTED
from glasshead.tasks.run_folder import RunFolder, leads
from glasshead.tasks.training import Hardware, Interrupted, check_hardware
from glasshead.tasks.write import Prepared, WriteSettings, begin, go_on, train_to_the_end

DEFAULT = "tiny"


@dataclass(frozen=True)
class TrainWriteRequest:
    """What the user wrote; the fields are the options of the command."""

    files: tuple[str, ...]
    run: str
    preset: str | None
    assign: tuple[str, ...]
    resume: bool
    hardware: dict[str, Any]

    def command(self) -> str:
        """The command that makes the run again."""
        assigned = [part for each in self.assign for part in ("--set", each)]
        words = ["glasshead", "train", "write", *self.files, "--run", self.run]
        return shlex.join([*words, "--preset", self.preset or DEFAULT, *assigned])


def run_training(request: TrainWriteRequest) -> None:
    """Train, or go on training.

    Errors: an OSError or ValueError where an option, a file, the folder or training itself goes
    wrong.
    """
    if not request.run:
        raise ValueError("--run takes a folder, and got nothing: name one, as in --run runs/first.")
    hardware, folder = Hardware(**request.hardware), RunFolder(request.run)
    with going_on("reading the texts") if leads() else nullcontext():
        prepared = _prepared(request, folder, hardware)
    if leads():
        count = sum(parameter.numel() for parameter in prepared.task.model.parameters())
        remark(
            f"{count:,} parameters, {len(prepared.source.tokens):,} tokens to train on, "
            f"{len(prepared.held_out.tokens):,} held out"
        )
    try:
        figures = train_to_the_end(prepared, folder, hardware, resume=request.resume)
    except Interrupted as interrupted:
        remark(str(interrupted))
        raise typer.Exit(INTERRUPTED) from None
    if leads():
        print_figures(figures["best"])
        run = shlex.quote(request.run)
        typer.echo(f"\nglasshead write {run} --prompt TEXT   goes on with a text")
        typer.echo(f"glasshead near {run} WORD             shows what is like a word")


def _prepared(request: TrainWriteRequest, folder: RunFolder, hardware: Hardware) -> Prepared:
    if request.resume:
        prepared = go_on(folder, request.preset, request.assign, request.files)
        check_hardware(hardware, prepared.settings.training.optimizer, resume=True)
        return prepared
    preset = request.preset or DEFAULT
    settings = WriteSettings.from_preset(preset, request.assign, request.files)
    # Before the folder becomes a run.
    check_hardware(hardware, settings.training.optimizer, resume=False)
    return begin(settings, folder, request.command())


def print_figures(figures: dict[str, float]) -> None:
    """The figures of a validation, a line each."""
    for name, digits, unit in (
        ("step", 0, ""),
        ("loss", 4, "nats a token"),
        ("perplexity", 2, ""),
        ("bits_per_character", 4, ""),
    ):
        if name in figures:
            written = f"{name.replace('_', ' '):<20}{figures[name]:,.{digits}f} {unit}"
            typer.echo(written.rstrip())
