"""Checkpoints as safetensors and JSON, written atomically and never unpickled."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.fabric.plugins import CheckpointIO
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from glasshead.attention import tensor_files as files
from glasshead.attention.tensor_files import from_json, to_json
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training.best import Interruption, check_finite
from glasshead.tasks.training.hardware import any_of, on_rank_zero, told_by_the_first
from glasshead.tasks.training.settings import Interrupted, TrainingSettings


def pack(tree: Any) -> tuple[Any, dict[str, Tensor]]:
    """Split a nested structure into JSON and tensors by name.

    Errors: a TypeError for a value that is no tensor, number, text, list, tuple or dict.

    >>> import torch
    >>> tree, tensors = pack({"step": 3, "weights": {0: torch.ones(2)}, "betas": (0.9, 0.95)})
    >>> sorted(tensors)
    ['weights.0']
    >>> unpack(tree, tensors)
    {'step': 3, 'weights': {0: tensor([1., 1.])}, 'betas': (0.9, 0.95)}
    """
    tensors: dict[str, Tensor] = {}
    return _pack(tree, "", tensors), tensors


def unpack(tree: Any, tensors: dict[str, Tensor]) -> Any:
    """Restore the structure that `pack` split."""
    if isinstance(tree, list):
        return [unpack(part, tensors) for part in tree]
    if not isinstance(tree, dict):
        return tree
    ((kind, value),) = tree.items()
    match kind:
        case "tensor":
            return tensors[value]
        case "float":
            return from_json(tree)
        case "tuple":
            return tuple(unpack(part, tensors) for part in value)
        case "dict":
            return {key: unpack(part, tensors) for key, part in value}
    raise ValueError(f"{kind!r} is nothing that is packed")


def _pack(tree: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(tree, Tensor):
        tensors[name] = tree
        return {"tensor": name}
    if tree is None or isinstance(tree, bool | int | float | str):
        return to_json(tree)
    if isinstance(tree, dict):
        # Optimizer states have integer keys, which JSON objects do not support.
        pairs = tree.items()
        return {"dict": [[key, _pack(part, _under(name, key), tensors)] for key, part in pairs]}
    if isinstance(tree, list | tuple):
        parts = [_pack(part, _under(name, place), tensors) for place, part in enumerate(tree)]
        return {"tuple": parts} if isinstance(tree, tuple) else parts
    raise TypeError(f"{name} is {type(tree).__name__}, which a checkpoint cannot hold.")


def _under(name: str, key: Any) -> str:
    return f"{name}.{key}" if name else str(key)


class RandomState(Callback):
    """Callback that seeds, saves and restores the random state of torch, numpy and Python.

    Each process has its own state. A checkpoint has that of rank 0; on resuming, the other ranks
    are seeded from the step.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._restored: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        return random_state()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._restored = state_dict

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        del pl_module
        # Not earlier, as building the loaders and the strategy draws random numbers.
        if self._restored is not None and trainer.global_rank == 0:
            restore(self._restored)
        else:
            _seed((self._seed, trainer.global_rank, trainer.global_step))
        self._restored = None


def random_state() -> dict[str, Any]:
    """Return the state of all random generators."""
    numpy: Any = np.random.get_state(legacy=True)  # noqa: NPY002 - the global generator
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": (numpy[0], numpy[1].tolist(), *numpy[2:]),
        "python": random.getstate(),
    }


def restore(state: dict[str, Any]) -> None:
    """Restore the state of all random generators."""
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
    np.random.set_state(state["numpy"])  # noqa: NPY002
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))


def _seed(entropy: tuple[int, ...]) -> None:
    torch_seed, numpy_seed, python_seed = np.random.SeedSequence(entropy).generate_state(3).tolist()
    torch.manual_seed(torch_seed)
    np.random.seed(numpy_seed)  # noqa: NPY002
    random.seed(python_seed)


_KIND = "checkpoint"


class SafeCheckpoints(CheckpointIO):
    """Lightning's checkpoint format, as safetensors.

    Lightning saves in rank 0 only, and then synchronizes: an error there would make the other ranks
    hang. It is stored, and raised by `check_saved`.
    """

    def __init__(self) -> None:
        self._error: OSError | ValueError | None = None
        self._read: tuple[Path, dict[str, Any]] | None = None

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None
    ) -> None:
        del storage_options
        step = checkpoint["global_step"]
        try:
            rate = checkpoint["optimizer_states"][0]["param_groups"][0]["lr"]
            check_finite(checkpoint["state_dict"], step, rate)
            tree, tensors = pack(checkpoint)
            files.write(path, _KIND, {"tree": tree}, tensors)
        except OSError as error:
            self._error = OSError(
                f"the checkpoint of step {step} cannot be written to {path} "
                f"({error.__cause__ or error}), and the one before is kept: make room there, then "
                f"go on by the same command with --resume."
            )
        except ValueError as error:
            self._error = error

    def check_saved(self) -> None:
        """Raise the error of the last save, if there was one."""
        if self._error is not None:
            raise self._error

    def read(self, path: Path) -> dict[str, Any]:
        """Read a checkpoint, and cache it until Lightning loads it.

        Errors: an OSError where it cannot be read; a ValueError where it is malformed.
        """
        description, tensors = files.read(path, _KIND)
        with files.understood(path, _KIND):
            tree = unpack(description["tree"], tensors)
        self._read = path, tree
        return tree

    def load_checkpoint(
        self, path: Any, map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        del map_location, weights_only
        cached, self._read = self._read, None
        return cached[1] if cached and cached[0] == Path(path) else self.read(Path(path))

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)


class Saving(Callback):
    """Callback that saves last.safetensors, after the other callbacks have updated their state.

    A step with a validation is saved after it, to include its result.
    """

    def __init__(
        self,
        folder: RunFolder,
        settings: TrainingSettings,
        checkpoints: SafeCheckpoints,
        interruption: Interruption,
        identity: dict[str, Any],
    ) -> None:
        self._folder, self._settings, self._checkpoints = folder, settings, checkpoints
        self._interruption, self._identity = interruption, identity

    def state_dict(self) -> dict[str, Any]:
        return self._identity

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        del trainer, pl_module
        # Lightning has just replaced the handler of SIGTERM.
        self._interruption.listen()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        del pl_module, outputs, batch
        step = trainer.global_step
        if (batch_idx + 1) % self._settings.accumulate or self._settings.validates_at(step):
            return
        interrupted = any_of(trainer, self._interruption.asked)
        if interrupted or step % self._settings.save_every == 0:
            self._save(trainer)
        if interrupted:
            raise self._interrupted(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        del pl_module
        interrupted = any_of(trainer, self._interruption.asked)
        self._save(trainer)
        if interrupted and not trainer.should_stop:
            raise self._interrupted(trainer)

    def _save(self, trainer: Trainer) -> None:
        trainer.save_checkpoint(self._folder.checkpoint)
        on_rank_zero(trainer, self._checkpoints.check_saved)

    def _interrupted(self, trainer: Trainer) -> BaseException:
        message = (
            f"training was interrupted after step {trainer.global_step} of "
            f"{self._settings.steps}, and is saved in {self._folder.path}: go on by the same "
            f"command with --resume."
        )
        return told_by_the_first(trainer, Interrupted(message))
