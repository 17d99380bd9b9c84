"""Identity of a run: the settings, examples and tensor shapes that resuming must not change."""

import dataclasses
import hashlib
from typing import Any

import torch
from torch import Tensor

from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training.loader import ExampleSource, Task
from glasshead.tasks.training.settings import TrainingSettings

# The length of training and the intervals of validating, saving and logging. With more steps, the
# learning rate continues on the longer schedule.
MAY_CHANGE = {"steps", "patience", "validate_every", "save_every", "log_every"}


def identity(
    settings: TrainingSettings, source: ExampleSource, held_out: ExampleSource
) -> dict[str, Any]:
    """Return the settings and fingerprints that have to be equal when resuming."""
    values = dataclasses.asdict(settings)
    return {
        "settings": {name: values[name] for name in values if name not in MAY_CHANGE},
        "examples": fingerprint(source),
        "held_out": fingerprint(held_out),
    }


def check_resumable(
    checkpoint: dict[str, Any], own: dict[str, Any], task: Task, folder: RunFolder
) -> None:
    """Check that a checkpoint is of the same settings, examples and model.

    Errors: a ValueError that names the first difference.
    """
    found = checkpoint["callbacks"]["Saving"]
    for name, value in own["settings"].items():
        if found["settings"].get(name) != value:
            raise changed_setting(folder, name, found["settings"].get(name), value)
    for name, what in (("examples", "trained on"), ("held_out", "validated with")):
        if found[name] != own[name]:
            raise ValueError(
                f"the run in {folder.path} was {what} other examples: go on with those, or train "
                f"anew in another folder."
            )
    shapes = {f"model.{name}": x.shape for name, x in task.model.state_dict().items()}
    if shapes != {name: tensor.shape for name, tensor in checkpoint["state_dict"].items()}:
        raise ValueError(
            f"the run in {folder.path} is of another model, with tensors of other names or shapes: "
            f"go on with that, or train anew in another folder."
        )


def changed_setting(folder: RunFolder, name: str, own: Any, requested: Any) -> ValueError:
    """Return the error for resuming a run with a setting that cannot change."""
    return ValueError(
        f"the run in {folder.path} has {name} {own!r}, and {requested!r} was asked for: go on with "
        f"the former, or train anew in another folder."
    )


def check_unfinished(
    checkpoint: dict[str, Any], settings: TrainingSettings, folder: RunFolder
) -> None:
    """Check that there are steps left to train.

    Errors: a ValueError where the run has finished, by its steps or its patience.
    """
    done, worse = checkpoint["global_step"], checkpoint["callbacks"]["Best"]["worse"]
    if done >= settings.steps:
        raise ValueError(
            f"the run in {folder.path} has finished, with {done} steps of {settings.steps}: to go "
            f"on, ask for more, as by --set steps={2 * settings.steps}."
        )
    if settings.patience is not None and worse >= settings.patience:
        raise ValueError(
            f"the run in {folder.path} has finished after {done} steps, as {worse} validations "
            f"were no better: to go on, ask for more, as by --set patience="
            f"{2 * settings.patience}."
        )


def fingerprint(source: ExampleSource) -> str:
    """Hash the number of batches, and the first, the middle and the last batch.

    >>> class Numbers:
    ...     def batches(self, epoch): return [[0, 1], [2]]
    ...     def collate(self, indices): return {"x": torch.tensor(indices)}
    ...     def count(self, indices): return len(indices)
    >>> fingerprint(Numbers())[:8]
    '37cf36b8'
    """
    digest = hashlib.sha256()
    batches = source.batches(0)
    places = sorted({0, len(batches) // 2, len(batches) - 1})
    digest.update(repr((len(batches), places)).encode())
    for place in places:
        batch = batches[place]
        digest.update(repr([int(index) for index in batch]).encode())
        for name, tensor in sorted(source.collate(batch).items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(_bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
