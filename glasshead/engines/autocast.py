"""How `torch.autocast` is honoured: on the inputs, as a matrix product would, and no deeper."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def cast_inputs(*inputs: Any) -> tuple[Any, ...]:
    """The inputs as autocast wants them where it is on; float64 it leaves alone."""
    first = inputs[0]
    if not isinstance(first, Tensor) or not _is_on(first.device):
        return inputs
    dtype = torch.get_autocast_dtype(first.device.type)
    return tuple(x.to(dtype) if _is_cast(x) else x for x in inputs)


def without_autocast(device: torch.device) -> AbstractContextManager:
    """No autocast inside, where it would take precision away from what was cast already."""
    return torch.autocast(device.type, enabled=False) if _is_on(device) else nullcontext()


def _is_on(device: torch.device) -> bool:
    # Asking about a device without autocast, such as meta, is an error.
    kind = device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def _is_cast(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point() and x.dtype != torch.float64
