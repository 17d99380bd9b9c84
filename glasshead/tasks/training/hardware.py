"""Devices, precision and ranks of a training, and what rank 0 alone does."""

import atexit
import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
from lightning.pytorch import Trainer
from torch import distributed

from glasshead.recipe.validation import shown


def on_rank_zero(trainer: Trainer, work: Callable[[], object]) -> None:
    """Let the first process do it; where that fails training ends in each of them.

    Errors: what the work raised, an OSError or a ValueError, in the first process.
    """
    error: OSError | ValueError | None = None
    if trainer.is_global_zero:
        try:
            work()
        except (OSError, ValueError) as raised:
            error = raised
    if any_of(trainer, error is not None):
        raise ending(error)


def any_of(trainer: Trainer, own: bool) -> bool:
    """Whether it holds in one of the processes; each of them asks at the same time."""
    if trainer.world_size == 1:
        return own
    flag = torch.tensor(float(own), device=trainer.strategy.root_device)
    return bool(trainer.strategy.reduce(flag, reduce_op="sum").item())


def ending(error: Exception | None) -> BaseException:
    """How this process ends: the first one tells why, and the others, which know as much, not."""
    return SystemExit(0) if error is None else error


def told_by_the_first(trainer: Trainer, error: Exception) -> BaseException:
    """How this process ends where all of them end by the same error."""
    return ending(error if trainer.is_global_zero else None)


def leave_at_exit() -> None:
    """Leave the other processes before this one ends: else PyTorch now and then aborts it."""
    atexit.unregister(_leave)
    atexit.register(_leave)


def _leave() -> None:
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


STRATEGIES = ("auto", "ddp", "fsdp")
PRECISIONS = ("auto", "32-true", "bf16-mixed")
ACCELERATORS = ("auto", "cpu", "gpu", "cuda", "mps")
# Of devices on each machine, and of machines.
_MOST = 1024


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """Where to train, as Lightning is told.

    Attributes:
        devices: Processes on each machine; on a CPU, as many as it has cores at most, or two.
        strategy: `auto`, `ddp` (a whole model on each device) or `fsdp` (a share of it).
        nodes: Machines, 1024 at most.
        accelerator: `auto`, `cpu`, `gpu`, `cuda` or `mps`.
        precision: `32-true`, `bf16-mixed`, or `auto`: bfloat16 on a CUDA device that has it.

    Errors: a ValueError that names what is wrong.

    >>> Hardware(devices=2, strategy="ddp").nodes
    1
    """

    devices: int = 1
    strategy: str = "auto"
    nodes: int = 1
    accelerator: str = "auto"
    precision: str = "auto"

    def __post_init__(self) -> None:
        for name in ("devices", "nodes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} takes a whole number from 1, and got {value!r}.")
            if value > _MOST:
                raise ValueError(
                    f"{name} takes a whole number of at most {_MOST}, and got {shown(value)}."
                )
        for name, known in (
            ("strategy", STRATEGIES),
            ("accelerator", ACCELERATORS),
            ("precision", PRECISIONS),
        ):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} takes one of {', '.join(known)}, and got {getattr(self, name)!r}."
                )


def check_hardware(hardware: Hardware, optimizer: str, *, resume: bool) -> None:
    """Raise a ValueError where the machine has not what is asked for, as far as can be told now.

    Args:
        hardware: What is asked for.
        optimizer: As of `TrainingSettings`.
        resume: Whether to go on from a checkpoint.
    """
    import torch

    there = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    there["gpu"] = any(there.values())
    if not there.get(hardware.accelerator, True):
        raise ValueError(
            f"accelerator {hardware.accelerator} is not to be had here: take auto, or cpu."
        )
    cores = max(2, os.cpu_count() or 1)
    if hardware.devices > cores and (hardware.accelerator == "cpu" or not there["gpu"]):
        raise ValueError(
            f"devices takes at most {cores} on this CPU, a process for each core, and got "
            f"{hardware.devices}: ask for fewer."
        )
    if hardware.strategy == "fsdp":
        _check_sharding(there["cuda"] and hardware.accelerator != "cpu", optimizer, resume=resume)


def _check_sharding(gpu: bool, optimizer: str, *, resume: bool) -> None:
    if not gpu:
        raise ValueError(
            "strategy fsdp takes a GPU, as Lightning has it for nothing else, and there is none to "
            "be used: take ddp."
        )
    if optimizer == "muon":
        raise ValueError(
            "strategy fsdp takes the optimizer adamw or sgd, as muon needs whole matrices: set "
            "optimizer=adamw."
        )
    if resume:
        # Lightning reads a checkpoint for FSDP by itself, and only one that is pickled.
        raise ValueError(
            "strategy fsdp cannot go on from a checkpoint, as Lightning would unpickle it: train "
            "anew in another folder, or take ddp for a run that began with it."
        )
