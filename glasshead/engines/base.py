"""The engine protocol: run a problem, observe its weights, and estimate the cost beforehand."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.recipe.problem import Problem
from glasshead.statistics.reductions import Reduction


def cast_inputs(*inputs: Any) -> tuple[Any, ...]:
    """Cast inputs to the autocast dtype where autocast is on; float64 is left alone."""
    first = inputs[0]
    if not isinstance(first, Tensor) or not _is_on(first.device):
        return inputs
    dtype = torch.get_autocast_dtype(first.device.type)
    return tuple(x.to(dtype) if _is_cast(x) else x for x in inputs)


def without_autocast(device: torch.device) -> AbstractContextManager:
    """Return a context with autocast off, so that inputs cast already lose no precision."""
    return torch.autocast(device.type, enabled=False) if _is_on(device) else nullcontext()


def _is_on(device: torch.device) -> bool:
    # Asking about a device without autocast, such as meta, is an error.
    kind = device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def _is_cast(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point() and x.dtype != torch.float64


@dataclass(frozen=True)
class Cost:
    """Estimated cost of one forward pass.

    Attributes:
        flops: Floating-point operations of the two matrix products, a multiply-add counting two.
        bytes: Peak memory beyond the inputs, the context included.
    """

    flops: int
    bytes: int


class Observed(NamedTuple):
    """Context and the results of each requested reduction, `[*batch, heads, …]`."""

    context: Float[Tensor, "*batch heads queries value_dim"]
    reduced: list[tuple[Tensor, ...]]


@runtime_checkable
class Engine(Protocol):
    """Protocol of an engine. The reference engine defines what is right; the others agree."""

    name: str
    about: str

    def refusal(self, problem: Problem) -> str | None:
        """Return why this engine cannot compute the problem, or None if it can."""
        ...

    def cost(self, problem: Problem) -> Cost:
        """Estimate the cost from shapes and masks; the values of the inputs are not read."""
        ...

    def run(self, problem: Problem) -> Float[Tensor, "*batch heads queries value_dim"]:
        """Compute the context, differentiably."""
        ...

    def observe(self, problem: Problem, reductions: Sequence[Reduction]) -> Observed:
        """Compute the context of `run`, bit for bit, and reductions of the undropped weights."""
        ...
