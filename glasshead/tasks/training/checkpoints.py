"""Checkpoints: what resuming needs, as safetensors and JSON, written atomically, never unpickled.

Beside the weights and the optimizer that is the position in the examples, the random state, and the
identity of the run: the settings, examples and tensor shapes that resuming must not change.
"""

import dataclasses
import hashlib
import json
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from glasshead.attention import io as files
from glasshead.attention.io import from_json, to_json
from glasshead.message import Message
from glasshead.recipe.validation import whole_number
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training.processes import check_weights, on_rank_zero
from glasshead.tasks.training.settings import TrainingSettings
from glasshead.tasks.training.task import ExampleSource

if TYPE_CHECKING:
    from lightning.fabric import Fabric

_KIND, _SUM = "checkpoint", "sha256"
# The examples of a run, and what was done with them.
_EXAMPLES = {"examples": "trained on", "held_out": "validated with"}


class Stateful(Protocol):
    """A part of a run whose state is saved."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any], /) -> object: ...


class Checkpoints:
    """The checkpoint of a run, last.safetensors, which is replaced as training goes on.

    The one before is kept as previous.safetensors.

    Args:
        fabric: The Fabric that the model and the optimizer were set up by.
        folder: The run folder.
        identity: As of `identity`.
        model: The module whose `model` is the task's.
        optimizer: The optimizer.
        parts: All else that has a state, by name.
    """

    def __init__(
        self,
        fabric: "Fabric",
        folder: RunFolder,
        identity: dict[str, Any],
        model: nn.Module,
        optimizer: Optimizer,
        **parts: Stateful,
    ) -> None:
        self._fabric, self._folder, self._identity = fabric, folder, identity
        self._model, self._optimizer, self._parts = model, optimizer, parts

    def restore(self, checkpoint: dict[str, Any] | None) -> int:
        """Restore all but the weights from a checkpoint, and return its step; None: 0.

        Each process has its own random state. A checkpoint has that of rank 0; the other ranks are
        seeded from the step. Call it last, as setting up models draws random numbers.

        Errors: a ValueError if a part is malformed.
        """
        rank, step = self._fabric.global_rank, 0
        if checkpoint is not None:
            step = checkpoint["step"]
            with files.understood(self._folder.checkpoint, _KIND):
                self._optimizer.load_state_dict(checkpoint["optimizer"])
                _check_shapes(self._optimizer)
                for name, part in self._parts.items():
                    part.load_state_dict(checkpoint[name])
        if checkpoint is not None and rank == 0:
            with files.understood(self._folder.checkpoint, _KIND):
                _restore_random(checkpoint["random"])
        else:
            _seed((self._identity["settings"]["seed"], rank, step))
        return step

    def save(self, step: int, rate: float) -> None:
        """Write the checkpoint of a step, in place of the one before.

        Errors: an OSError if it cannot be written; a ValueError if a weight is not finite.
        """
        with self._whole() as model:
            checkpoint = {
                "step": step,
                "model": _weights(model.state_dict()),
                "optimizer": self._optimizer_state(model),
                "random": _random_state(),
                "identity": self._identity,
                **{name: part.state_dict() for name, part in self._parts.items()},
            }
        on_rank_zero(self._fabric, self._write, checkpoint, rate)

    def weights(self) -> dict[str, Tensor]:
        """Return the full weights of the task's model; of a sharded one, in rank 0 alone."""
        with self._whole() as model:
            return _weights(model.state_dict())

    def _write(self, checkpoint: dict[str, Any], rate: float) -> None:
        path, step = self._folder.checkpoint, checkpoint["step"]
        check_weights(checkpoint["model"], step, rate)
        tree, tensors = pack(checkpoint)
        try:
            self._folder.keep_checkpoint()
            files.write(path, _KIND, {"tree": tree, _SUM: digest(tree, tensors)}, tensors)
        except OSError as error:
            raise OSError(
                f"the checkpoint of step {step} cannot be written to {path} "
                f"({error.__cause__ or error}); the earlier one is kept. Make room there, then "
                "use the same command with --resume."
            ) from error

    @contextmanager
    def _whole(self) -> Iterator[nn.Module]:
        """The model whose state has whole tensors: with FSDP they are gathered in rank 0."""
        from lightning.fabric.strategies.fsdp import FSDPStrategy

        if not isinstance(self._fabric.strategy, FSDPStrategy):
            yield self._model
            return
        from torch.distributed import fsdp

        (model,) = fsdp.FullyShardedDataParallel.fsdp_modules(self._model, root_only=True)
        with fsdp.FullyShardedDataParallel.state_dict_type(
            model,
            fsdp.StateDictType.FULL_STATE_DICT,
            fsdp.FullStateDictConfig(offload_to_cpu=True, rank0_only=True),
            fsdp.FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),
        ):
            yield model

    def _optimizer_state(self, model: nn.Module) -> dict[str, Any]:
        if model is self._model:
            return self._optimizer.state_dict()
        from torch.distributed.fsdp import FullyShardedDataParallel

        return FullyShardedDataParallel.optim_state_dict(model, self._optimizer)


def _check_shapes(optimizer: Optimizer) -> None:
    """Check that the state of each parameter fits it, as fused kernels read beyond smaller ones.

    Errors: a ValueError if it does not.
    """
    for parameter, state in optimizer.state.items():
        for name, own in state.items():
            if isinstance(own, Tensor) and own.ndim and own.shape != parameter.shape:
                raise ValueError(
                    f"{name} of {list(parameter.shape)} parameters is {list(own.shape)}"
                )


def _weights(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a module whose `model` is the task's, by the names in that."""
    return {name.removeprefix("model."): tensor for name, tensor in state.items()}


def digest(tree: Any, tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of a packed checkpoint: its structure, and the bits of its tensors."""
    found = hashlib.sha256(json.dumps(tree).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        found.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def read_last(folder: RunFolder) -> dict[str, Any]:
    """Read the checkpoint of a run.

    Errors: as of `read`, with the way to the checkpoint before it, if that one can be read.
    """
    try:
        return read(folder.checkpoint)
    except (OSError, ValueError) as error:
        before = folder.previous_checkpoint
        try:
            step = read(before)["step"]
        except (OSError, ValueError):
            raise error from None
        reason = str(error).removesuffix(".")
        raise type(error)(
            f"{reason}. {before} has step {step}: rename it to {folder.checkpoint.name} to resume "
            "from there."
        ) from error


def read(path: Path) -> dict[str, Any]:
    """Read a checkpoint.

    Errors: an OSError if it cannot be read; a ValueError if it is malformed or damaged.
    """
    description, tensors = files.read(path, _KIND)
    # Checkpoints of 0.1.0 have no sum.
    if description.get(_SUM, expected := digest(description.get("tree"), tensors)) != expected:
        raise ValueError(f"{path} is damaged: its checksum does not match its contents.")
    with files.understood(path, _KIND):
        checkpoint = unpack(description["tree"], tensors)
        if "global_step" in checkpoint:
            checkpoint = _of_trainer(checkpoint)
        _check_parts(checkpoint)
        return checkpoint


def _check_parts(checkpoint: dict[str, Any]) -> None:
    """Check the parts of a checkpoint that are used before a module or an optimizer takes them.

    Errors: any, if one is missing or of another kind.
    """
    whole_number(checkpoint["step"], "step", least=1)
    whole_number(checkpoint["best"]["worse"], "worse")
    for name in ("epoch", "position"):
        whole_number(checkpoint["batches"][name], name)
    parts = (checkpoint[name] for name in ("model", "optimizer", "random", "identity", "log"))
    identity = checkpoint["identity"]
    for part in (*parts, identity["settings"], {name: identity[name] for name in _EXAMPLES}):
        if not isinstance(part, dict):
            raise TypeError(f"{type(part).__name__} is not a part of it")
    for name, tensor in checkpoint["model"].items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} is not a tensor")


def _of_trainer(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Convert a checkpoint that Lightning's Trainer wrote, as glasshead did up to 0.1."""
    parts = checkpoint["callbacks"]
    return {
        "step": checkpoint["global_step"],
        "model": _weights(checkpoint["state_dict"]),
        "optimizer": checkpoint["optimizer_states"][0],
        "random": parts["RandomState"],
        "identity": parts["Saving"],
        "batches": checkpoint["loops"]["fit_loop"]["state_dict"]["combined_loader"][0],
        "best": parts["Best"],
        "log": parts["Journal"],
    }


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
    raise ValueError(f"{kind!r} is not a kind of packed value")


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


def _random_state() -> dict[str, Any]:
    """Return the state of all random generators."""
    numpy: Any = np.random.get_state(legacy=True)  # noqa: NPY002 - the global generator
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": (numpy[0], numpy[1].tolist(), *numpy[2:]),
        "python": random.getstate(),
    }


def _restore_random(state: dict[str, Any]) -> None:
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


# The length of training and the intervals of validating, saving and logging. With more steps, the
# learning rate continues on the longer schedule, or by `cosine` and `after`.
MAY_CHANGE = {"steps", "cosine", "after", "patience", "validate_every", "save_every", "log_every"}


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
    checkpoint: dict[str, Any], own: dict[str, Any], model: nn.Module, folder: RunFolder
) -> None:
    """Check that a checkpoint is of the same settings, examples and model.

    Errors: a ValueError that names the first difference.
    """
    found = checkpoint["identity"]
    for name, value in own["settings"].items():
        if found["settings"].get(name) != value:
            raise changed_setting(folder, name, found["settings"].get(name), value)
    for name, what in _EXAMPLES.items():
        if found[name] != own[name]:
            raise ValueError(
                f"the run in {folder.path} was {what} other examples. Use those, or train in "
                "another folder."
            )
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if shapes != {name: tensor.shape for name, tensor in checkpoint["model"].items()}:
        raise ValueError(
            f"the run in {folder.path} is of another model, with tensors of other names or "
            "shapes. Use that model, or train in another folder."
        )


def changed_setting(folder: RunFolder, name: str, own: Any, requested: Any) -> ValueError:
    """Return the error for resuming a run with a setting that cannot change."""
    return ValueError(
        f"{name} must be {own!r}, got {requested!r}, to resume the run in {folder.path}. Use "
        "the former, or train in another folder."
    )


def check_unfinished(
    checkpoint: dict[str, Any], settings: TrainingSettings, folder: RunFolder
) -> None:
    """Check that there are steps left to train.

    Errors: a ValueError if the run has finished, by its steps or its patience.
    """
    done, worse = checkpoint["step"], checkpoint["best"]["worse"]
    if done >= settings.steps:
        raise ValueError(
            Message(
                "steps must be above {done}, the last step of the run in {path}, got {steps}. To "
                "continue, ask for more, as in --set steps={more}.",
                path=folder.path,
                done=done,
                steps=settings.steps,
                more=2 * done,
            )
        )
    if settings.patience is not None and worse >= settings.patience:
        raise ValueError(
            f"the run in {folder.path} has finished after {done} steps, as {worse} validations "
            "were no better. To continue, ask for more, as in --set "
            f"patience={2 * settings.patience}."
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
