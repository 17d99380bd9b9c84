"""Devices, precision and ranks, and work that only rank 0 does."""

import atexit
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import distributed

from glasshead.recipe.validation import shown

if TYPE_CHECKING:
    from lightning.pytorch import Trainer


def on_rank_zero(trainer: "Trainer", work: Callable[[], object]) -> None:
    """Run work in rank 0; where it fails, training ends in all ranks.

    Errors: an OSError or ValueError of the work in rank 0, SystemExit in the others.
    """
    error: OSError | ValueError | None = None
    if trainer.is_global_zero:
        try:
            work()
        except (OSError, ValueError) as raised:
            error = raised
    if any_of(trainer, error is not None):
        raise ending(error)


def any_of(trainer: "Trainer", own: bool) -> bool:
    """Return whether a flag is set in any rank; a collective operation."""
    if trainer.world_size == 1:
        return own
    flag = torch.tensor(float(own), device=trainer.strategy.root_device)
    return bool(trainer.strategy.reduce(flag, reduce_op="sum").item())


def ending(error: Exception | None) -> BaseException:
    """Return the exception that ends this rank: the error, or SystemExit where it has none."""
    return SystemExit(0) if error is None else error


def told_by_the_first(trainer: "Trainer", error: Exception) -> BaseException:
    """Return the exception for an error in all ranks: rank 0 raises it, the others exit."""
    return ending(error if trainer.is_global_zero else None)


def leave_at_exit() -> None:
    """Destroy the process group at exit, without which PyTorch sometimes aborts."""
    atexit.unregister(_leave)
    atexit.register(_leave)


def _leave() -> None:
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


STRATEGIES = ("auto", "ddp", "fsdp")
PRECISIONS = ("auto", "32-true", "bf16-mixed")
ACCELERATORS = ("auto", "cpu", "gpu", "cuda", "mps")
# Maximum number of devices per machine, and of machines.
_MOST = 1024


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """Devices and precision, passed to Lightning.

    Attributes:
        devices: Processes per machine; on a CPU at most one per core, or two.
        strategy: `auto`, `ddp` (a replica per device) or `fsdp` (sharded parameters).
        nodes: Number of machines, at most 1024.
        accelerator: `auto`, `cpu`, `gpu`, `cuda` or `mps`.
        precision: `32-true`, `bf16-mixed`, or `auto`: bfloat16 on CUDA devices that support it.

    Errors: a ValueError that names the invalid setting.

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
    """Check that the machine has the requested hardware.

    Args:
        hardware: The requested hardware.
        optimizer: As in `TrainingSettings`.
        resume: Whether training resumes from a checkpoint.

    Errors: a ValueError where it is not available, or does not support the optimizer or resuming.
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
        # For FSDP Lightning reads checkpoints itself, and only pickled ones.
        raise ValueError(
            "strategy fsdp cannot go on from a checkpoint, as Lightning would unpickle it: train "
            "anew in another folder, or take ddp for a run that began with it."
        )
