"""The translator of the demo: trained, or trained further, or there already."""

from pathlib import Path

import typer

from glasshead.cli.outputs.terminal import remark
from glasshead.cli.program import INTERRUPTED
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.runs import train_to_the_end
from glasshead.tasks.training import Hardware, Interrupted
from glasshead.tasks.translate import TRANSLATE, TextTranslator, TranslateSettings


def trained(run: Path) -> TextTranslator:
    """The translator in a folder, trained to its end; one that is there is not trained again.

    Errors: an OSError or ValueError where the folder has another run.
    """
    folder, settings = RunFolder(run), TranslateSettings.from_preset("tiny")
    if folder.config.exists() and _steps(folder) >= settings.training.steps:
        remark(f"It is there already, from the last time; remove {run} to train anew.")
        return TextTranslator.load(run)
    resume = folder.config.exists()
    if resume:
        prepared = TRANSLATE.go_on(folder)
    else:
        prepared = TRANSLATE.begin(settings, folder, "glasshead demo")
    parameters = sum(parameter.numel() for parameter in prepared.task.model.parameters())
    remark(f"{parameters:,} parameters, {prepared.about}")
    try:
        train_to_the_end(prepared, folder, Hardware(accelerator="cpu"), resume=resume)
    except Interrupted as interrupted:
        remark(f"{interrupted} (here: the same command again)")
        raise typer.Exit(INTERRUPTED) from None
    return TextTranslator.load(run)


def _steps(folder: RunFolder) -> int:
    """After how many steps it was validated last."""
    if not folder.metrics.exists():
        return 0
    return int(folder.read_metrics()["last"]["step"])
