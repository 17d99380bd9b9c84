"""How training ends before its time: signals, failures, and numbers that are not finite.

What ends it in one rank ends it in all of them at the same step, so that none waits for the others.
"""

import atexit
import math
import os
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, distributed

if TYPE_CHECKING:
    from lightning.fabric import Fabric

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Handles Ctrl-C and SIGTERM while its block runs: one asks to stop, a second ends at once.

    Attributes:
        asked: Whether this process received a signal.
    """

    def __init__(self) -> None:
        self.asked = False
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
            os.write(2, b"\nEnding after this step, and saving; once more ends at once.\n")


def on_rank_zero(fabric: "Fabric", work: Callable[..., object], *arguments: Any) -> None:
    """Call a function in rank 0; where it fails, training ends in all ranks.

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


def told_by_the_first(fabric: "Fabric", error: Exception) -> BaseException:
    """Return the exception for an error in all ranks: rank 0 raises it, the others exit."""
    return error if fabric.is_global_zero else SystemExit(0)


def not_finite(what: str, step: int, rate: float) -> ValueError:
    """Return the error for a loss, a gradient, a weight or a metric that is NaN or infinite."""
    return ValueError(
        f"step {step}, with learning rate {rate:.3g}, has a {what} that is NaN or infinite: train "
        f"anew with a lower learning rate or a longer warmup, in another folder if this one has a "
        f"checkpoint."
    )


def check_numbers(fabric: "Fabric", step: int, rate: float, numbers: Mapping[str, float]) -> None:
    """Check numbers, the same in all ranks, by what they are of a step.

    Errors: a ValueError where one is NaN or infinite; SystemExit in all ranks but the first.
    """
    for what, number in numbers.items():
        if not math.isfinite(number):
            raise told_by_the_first(fabric, not_finite(what, step, rate))


def check_weights(weights: Mapping[str, Tensor], step: int, rate: float) -> None:
    """Check that weights are finite before they are saved.

    Errors: a ValueError where one is NaN or infinite.
    """
    for tensor in weights.values():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise not_finite("weight", step, rate)


def leave_at_exit() -> None:
    """Destroy the process group at exit, without which PyTorch sometimes aborts."""
    atexit.unregister(_leave)
    atexit.register(_leave)


def _leave() -> None:
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
