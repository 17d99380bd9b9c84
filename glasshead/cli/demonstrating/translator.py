"""The translator of the demo: trained, or trained further, or there already."""

from pathlib import Path

from glasshead.cli.outputs.terminal import remark
from glasshead.cli.training.run import carried_out
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training import Hardware
from glasshead.tasks.translate import TRANSLATE, TextTranslator, TranslateSettings

_CPU = Hardware(accelerator="cpu")


def trained(run: Path) -> TextTranslator:
    """The translator in a folder, trained to its end; one that is there is not trained again.

    Errors: an OSError or ValueError where the folder has another run.
    """
    folder = RunFolder(run)
    if folder.config.exists() and _steps(folder) >= _wanted(folder):
        remark(f"It is there already, from the last time; remove {run} to train anew.")
        return TextTranslator.load(run)
    with folder.locked():
        if not folder.config.exists():
            settings = TranslateSettings.from_preset("tiny")
            prepared = TRANSLATE.begin(settings, folder, "glasshead demo")
            carried_out(prepared, folder, _CPU, resume=False)
        else:
            carried_out(TRANSLATE.go_on(folder), folder, _CPU, resume=True)
    return TextTranslator.load(run)


def _wanted(folder: RunFolder) -> int:
    """How many steps its training has."""
    return TranslateSettings.from_run(folder).training.steps


def _steps(folder: RunFolder) -> int:
    """After how many steps it was validated last."""
    if not folder.metrics.exists():
        return 0
    return int(folder.read_metrics()["last"]["step"])
