"""The engine protocol, and what engines share: autocast, layouts and features of the inputs."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.private_names import private, runs_code_of
from glasshead.recipe.problem import Problem
from glasshead.recipe.scores import Dot, InnerProduct
from glasshead.recipe.tile import three_axes
from glasshead.statistics.reductions import Reduction


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


# Devices that always have autocast: PyTorch 2.8 cannot compile the question.
_AUTOCASTING = ("cpu", "cuda")


def _is_on(device: torch.device) -> bool:
    # Querying a device without autocast, such as meta, is an error.
    kind = device.type
    available = kind in _AUTOCASTING or torch.amp.is_autocast_available(kind)
    return available and torch.is_autocast_enabled(kind)


def _is_cast(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point() and x.dtype != torch.float64


# Looked up once, as every call asks.
_innermost_transform = private("torch._C._functorch.peek_interpreter_stack")


def is_transformed() -> bool:
    """Return whether a transform of torch.func, such as vmap, wraps the tensors of this call."""
    if _innermost_transform is not None:
        return _innermost_transform() is not None
    transforms = torch.func.vmap, torch.func.vjp, torch.autograd.functional.jacobian
    return runs_code_of(*(function.__code__.co_filename for function in transforms))


def four_axes(tensor: Tensor, batch: tuple[int, ...]) -> Tensor:
    """Reshape what broadcasts to `[*batch, heads, rows, columns]` to exactly four axes.

    Several batch axes are flattened to one, in full unless none of them is there.
    """
    if tensor.ndim == 4 and len(batch) <= 1:
        return tensor
    tensor = three_axes(tensor)
    if tensor.ndim == 3:
        return tensor[None]
    if len(batch) > 1:
        tensor = tensor.expand(*batch, *tensor.shape[-3:])
    return tensor.flatten(0, -4)


def scaled_features(
    problem: Problem, query: Tensor, key: Tensor, *, positive: bool = False
) -> tuple[Tensor, Tensor, float]:
    """Compute vectors whose inner product times a number, the last result, is the score.

    Args:
        problem: A problem whose score is an inner product of features.
        query, key: Its inputs, maybe cut or cleared.
        positive: Whether the number must be above 0.
    """
    score, scale = cast("InnerProduct", problem.score), problem.scale
    folded = isinstance(scale, Tensor) or (positive and scale <= 0)
    if folded or not isinstance(score, Dot):
        # Features computed from the inputs are not rounded to half precision again.
        query, key = (x.to(problem.dtype) for x in (query, key))
    query, key = score.features(query, key)
    if not folded:
        return query, key, float(scale)
    return query * (scale.to(query) if isinstance(scale, Tensor) else scale), key, 1.0


def clear_unseen(
    query: Tensor, key: Tensor, value: Tensor, sees: Tensor, seen: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the inputs, with 0 in queries that see no key and in keys that no query sees.

    Such rows may hold anything, NaN included, which a product would spread.
    """
    return (
        torch.where(sees, query, 0.0),
        torch.where(seen, key, 0.0),
        torch.where(seen, value, 0.0),
    )
