"""A run of `translate` as training leaves it, without the training."""

from pathlib import Path

import torch

from glasshead.models.saving import write_weights
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.translate import TRANSLATE, TranslateSettings

SMALL = ("d_model=12", "num_heads=3", "num_layers=1", "num_decoder_layers=1", "vocabulary=300")


def translated(
    path: Path, *assignments: str, files: tuple[str, ...] = (), held_out: tuple[str, ...] = ()
) -> RunFolder:
    """A run folder with the weights that training would begin with."""
    folder = RunFolder(path)
    settings = TranslateSettings.from_preset(
        "tiny", ["made_up=211", *SMALL, *assignments], files, held_out
    )
    prepared = TRANSLATE.begin(settings, folder, "glasshead train translate")
    with torch.no_grad():
        # Sharper than at the beginning, so that texts differ.
        for parameter in prepared.task.model.parameters():
            parameter.mul_(3)
    write_weights(prepared.task.model, folder.weights)
    return folder
