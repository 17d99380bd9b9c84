"""A run of `write` as training leaves it, without the training."""

from pathlib import Path

import torch

from glasshead.models.saving import write_weights
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.write import WRITE, WriteSettings

SMALL = ("d_model=12", "num_heads=3", "num_layers=2", "context_length=13", "positions=alibi")


def written(
    path: Path, *assignments: str, files: tuple[str, ...] = (), held_out: tuple[str, ...] = ()
) -> RunFolder:
    """A run folder with the weights that training would begin with."""
    folder = RunFolder(path)
    settings = WriteSettings.from_preset(
        "nano", ["stories=211", *SMALL, *assignments], files, held_out
    )
    prepared = WRITE.begin(settings, folder, "glasshead train write")
    with torch.no_grad():
        # Sharper than at the beginning, so that texts differ.
        for parameter in prepared.task.model.parameters():
            parameter.mul_(5)
    write_weights(prepared.task.model, folder.weights)
    return folder
