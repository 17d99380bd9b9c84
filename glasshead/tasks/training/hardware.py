"""Devices and precision: what is asked for, whether it is there, and the processes that use it."""

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from glasshead.recipe.validation import shown
from glasshead.tasks.training.stopping import leave_at_exit

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


def launch(
    hardware: Hardware, loggers: list[Any], function: Callable[..., Any], *arguments: Any
) -> Any:
    """Call a function with a Fabric in each process, and return what it returns in this one.

    Processes that were not launched already, as by torchrun, run the command of this one.

    Errors: a ValueError where the hardware is not available, and what the function raises.
    """
    from lightning.fabric import Fabric
    from lightning.fabric.utilities.exceptions import MisconfigurationException

    with _quiet():
        try:
            fabric = Fabric(
                accelerator=hardware.accelerator,
                devices=hardware.devices,
                num_nodes=hardware.nodes,
                strategy=hardware.strategy,
                precision=_precision(hardware),
                loggers=loggers,
            )
        except (MisconfigurationException, RuntimeError, ValueError) as error:
            raise ValueError(
                f"{hardware} is not to be had here ({error}): ask for what the machine has."
            ) from error
        leave_at_exit()
        status = "failed"
        try:
            result = fabric.launch(function, *arguments)
            status = "success"
        except KeyboardInterrupt:
            # The others would wait for this one.
            for process in getattr(fabric.strategy.launcher, "procs", ()):
                process.kill()
            raise
        finally:
            for logger in loggers:
                logger.finalize(status)
        return result


def _precision(hardware: Hardware) -> Any:
    if hardware.precision != "auto":
        return hardware.precision
    cuda = hardware.accelerator in {"auto", "gpu", "cuda"} and torch.cuda.is_available()
    return "bf16-mixed" if cuda and torch.cuda.is_bf16_supported() else "32-true"


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Lightning's hints and warnings while the block runs."""
    # Where Lightning's Trainer was imported too, Fabric speaks by its logger.
    loggers = [logging.getLogger(name) for name in ("lightning.fabric", "lightning.pytorch")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"lightning\.")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
