"""What an engine is: one way to compute a problem, with its cost told before it runs."""

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


@dataclass(frozen=True)
class Cost:
    """The price of one forward pass.

    Attributes:
        flops: Floating-point operations of the two matrix products, a multiply-add counting two.
        bytes: Peak memory beyond the inputs, the context included.
    """

    flops: int
    bytes: int


class Observed(NamedTuple):
    """The context, and the results of each reduction that was asked, `[*batch, heads, …]`."""

    context: Float[Tensor, "*batch heads queries value_dim"]
    reduced: list[tuple[Tensor, ...]]


@runtime_checkable
class Engine(Protocol):
    """One way to compute a problem. The reference defines what is right; the others agree."""

    name: str
    about: str

    def refusal(self, problem: Problem) -> str | None:
        """Why this engine does not serve the problem; None where it does."""
        ...

    def cost(self, problem: Problem) -> Cost:
        """What the problem costs here, by shapes and masks; the inputs' numbers are not read."""
        ...

    def run(self, problem: Problem) -> Float[Tensor, "*batch heads queries value_dim"]:
        """The context, with a gradient."""
        ...

    def observe(self, problem: Problem, reductions: Sequence[Reduction]) -> Observed:
        """The same context, bit for bit, and reductions of the weights before dropout."""
        ...
