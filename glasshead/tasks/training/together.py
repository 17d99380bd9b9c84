"""What only the first of several processes does, and how all learn whether it went well."""

import atexit
from collections.abc import Callable

import torch
from lightning.pytorch import Trainer
from torch import distributed


def by_the_first(trainer: Trainer, work: Callable[[], object]) -> None:
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
