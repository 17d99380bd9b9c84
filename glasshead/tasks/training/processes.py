"""Devices and processes: what is asked for, how they start, agree and end together."""

import atexit
import logging
import math
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import torch
from pydantic import Field
from torch import Tensor, distributed

from glasshead.explanation.translations import Say
from glasshead.message import Message
from glasshead.tasks.validated import Whole, validated

if TYPE_CHECKING:
    from lightning.fabric import Fabric

# Maximum number of devices per machine, and of machines.
_Count = Annotated[Whole, Field(ge=1, le=1024)]


@validated
class Hardware:
    """Devices and precision, passed to Lightning.

    Attributes:
        devices: Processes per machine; on a CPU at most one per core, or two.
        strategy: `auto`, `ddp` (a replica per device) or `fsdp` (sharded parameters).
        nodes: Number of machines, at most 1024.
        accelerator: `auto`, `cpu`, `gpu`, `cuda` or `mps`.
        precision: `32-true`, `bf16-mixed`, or `auto`: bfloat16 on CUDA devices that support it.

    Errors: a ValueError or TypeError that names the invalid setting.

    >>> Hardware(devices=2, strategy="ddp").nodes
    1
    """

    devices: _Count = 1
    strategy: Literal["auto", "ddp", "fsdp"] = "auto"
    nodes: _Count = 1
    accelerator: Literal["auto", "cpu", "gpu", "cuda", "mps"] = "auto"
    precision: Literal["auto", "32-true", "bf16-mixed"] = "auto"


def check_hardware(hardware: Hardware, optimizer: str, *, resume: bool) -> None:
    """Check that the machine has the requested hardware.

    Args:
        hardware: The requested hardware.
        optimizer: As in `TrainingSettings`.
        resume: Whether training resumes from a checkpoint.

    Errors: a ValueError if it is not available, or does not support the optimizer or resuming.
    """
    there = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    there["gpu"] = any(there.values())
    if not there.get(hardware.accelerator, True):
        raise ValueError(
            Message(
                "accelerator {name} is not available here. Use auto, or cpu.",
                name=hardware.accelerator,
            )
        )
    cores = max(2, os.cpu_count() or 1)
    if hardware.devices > cores and (hardware.accelerator == "cpu" or not there["gpu"]):
        raise ValueError(
            f"devices must be at most {cores} on this CPU, a process for each core, got "
            f"{hardware.devices}."
        )
    if hardware.strategy == "fsdp":
        _check_sharding(there["cuda"] and hardware.accelerator != "cpu", optimizer, resume=resume)


def _check_sharding(gpu: bool, optimizer: str, *, resume: bool) -> None:
    if not gpu:
        raise ValueError("strategy fsdp needs a GPU, and none is available. Use ddp.")
    if optimizer == "muon":
        raise ValueError(
            "strategy fsdp needs the optimizer adamw or sgd, as muon needs whole matrices. Set "
            "optimizer=adamw."
        )
    if resume:
        # For FSDP Lightning reads checkpoints itself, and only pickled ones.
        raise ValueError(
            "strategy fsdp cannot resume from a checkpoint, as Lightning would unpickle it. Train "
            "in another folder, or use ddp for a run that began with it."
        )


def launch(
    hardware: Hardware, loggers: list[Any], function: Callable[..., Any], *arguments: Any
) -> Any:
    """Call a function with a Fabric in each process, and return what it returns in this one.

    Processes that were not launched already, as by torchrun, run the command of this one.

    Errors: a ValueError if the hardware is not available, and what the function raises.
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
                f"{hardware} is not available here ({error}). Use what the machine has."
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


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Handles Ctrl-C and SIGTERM while its block runs: one asks to stop, a second ends at once.

    Args:
        say: The language in which the first one is answered.

    Attributes:
        asked: Whether this process received a signal.
    """

    def __init__(self, say: Say) -> None:
        self.asked = False
        said = say("Ending after this step, and saving. Press Ctrl-C again to end at once.")
        self._answer = f"\n{said}\n".encode()
        self._older: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._older = {number: signal.signal(number, self._heard) for number in _SIGNALS}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._older.items():
            signal.signal(number, handler)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        # The signal may have interrupted a print, so write to the descriptor.
        with suppress(OSError):
            os.write(2, self._answer)


def on_rank_zero(fabric: "Fabric", work: Callable[..., object], *arguments: Any) -> None:
    """Call a function in rank 0; if it fails, training ends in all ranks.

    Errors: an OSError or ValueError of the function in rank 0, SystemExit in the others.
    """
    error: OSError | ValueError | None = None
    if fabric.is_global_zero:
        try:
            work(*arguments)
        except (OSError, ValueError) as raised:
            error = raised
    if any_of(fabric, error is not None):
        raise SystemExit(0) if error is None else error


def any_of(fabric: "Fabric", own: bool) -> bool:
    """Return whether a flag is set in any rank; a collective operation."""
    if fabric.world_size == 1:
        return own
    return bool(summed(fabric, torch.tensor(float(own), device=fabric.device)).item())


def summed(fabric: "Fabric", own: Tensor) -> Tensor:
    """Return the sum of a tensor over the ranks; a collective operation."""
    if fabric.world_size == 1:
        return own
    return fabric.strategy.all_reduce(own.clone(), reduce_op="sum")


def raised_by_first_rank(fabric: "Fabric", error: Exception) -> BaseException:
    """Return the exception for an error in all ranks: rank 0 raises it, the others exit."""
    return error if fabric.is_global_zero else SystemExit(0)


class Diverged(ValueError):  # noqa: N818 - the cause
    """A loss, a gradient, a weight or a metric of a step is NaN or infinite.

    Attributes:
        step: The step.
    """

    def __init__(self, what: str, step: int, rate: float) -> None:
        super().__init__(
            f"step {step}, with learning rate {rate:.3g}, has a {what} that is NaN or infinite. "
            "Train again with a lower learning rate or a longer warmup, in another folder; the "
            "logs are kept."
        )
        self.step = step


def check_numbers(fabric: "Fabric", step: int, rate: float, numbers: Mapping[str, float]) -> None:
    """Check numbers, the same in all ranks, by what they are of a step.

    Errors: a ValueError if one is NaN or infinite; SystemExit in all ranks but the first.
    """
    for what, number in numbers.items():
        if not math.isfinite(number):
            raise raised_by_first_rank(fabric, Diverged(what, step, rate))


def check_weights(weights: Mapping[str, Tensor], step: int, rate: float) -> None:
    """Check that weights are finite before they are saved.

    Errors: a ValueError if one is NaN or infinite.
    """
    for tensor in weights.values():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise Diverged("weight", step, rate)


def leave_at_exit() -> None:
    """Destroy the process group at exit, without which PyTorch sometimes aborts."""
    atexit.unregister(_leave)
    atexit.register(_leave)


def _leave() -> None:
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
