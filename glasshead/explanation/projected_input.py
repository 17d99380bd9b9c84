"""Read how a class makes queries, keys and values: by matrices, a factor, and heads."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from glasshead.engines import REFERENCE
from glasshead.explanation.embeddings import Projection
from glasshead.layers.torch_weights import AttentionWeights, known_weights, readings
from glasshead.recipe.problem import STEPS, Trace
from glasshead.recipe.scores import Dot, ScaledDot
from glasshead.watching.interception.explicit_trace import score_of


@dataclass(frozen=True, eq=False)
class ProjectedInput:
    """The matrices of a class, its input, and how its trace follows from them.

    Attributes:
        trace: The trace, of queries and keys before any factor that the class multiplies them by.
        projection: The input and the matrices, for one row of the batch; None where they do not
            fit.
        factors: What the class multiplies its queries and its keys by before the product.
        mixed: Whether it cuts its vectors into heads so that a head mixes words.
    """

    trace: Trace
    projection: Projection | None = None
    factors: tuple[float, float] = (1.0, 1.0)
    mixed: bool = False

    @classmethod
    def of(
        cls, module: nn.Module, inputs: Sequence[Any], trace: Trace, index: Any
    ) -> "ProjectedInput":
        """Find how a trace follows from a module's matrices and its input.

        Args:
            module: The module that attends.
            inputs: What it was called with.
            trace: The trace of its attention.
            index: The explained index of the leading axes.
        """
        x = inputs[0] if inputs else None
        if not isinstance(x, Tensor) or x.ndim not in (2, 3):
            return cls(trace)
        if isinstance(module, nn.MultiheadAttention) and x.ndim == 3 and not module.batch_first:
            x = x.transpose(0, 1)
        found = [_Made.of(read, x, trace) for read in _read(module)]
        best = max(found, key=lambda one: one.fits, default=None)
        if best is None:
            return cls(trace)
        row = _row(x, index)
        projection = None if row is None else _projection(best.read, row, trace)
        unscaled = best.unscaled(trace)
        factors = (1.0, 1.0) if unscaled is trace else best.known
        return cls(unscaled, projection, factors, best.mixed)


def _read(module: nn.Module) -> Iterator[AttentionWeights]:
    # Of a setting that has no counterpart here, no projection is shown.
    with suppress(ValueError):
        known = known_weights(module)
        if known is not None:
            yield known
            return
        yield from readings(module)


@dataclass(frozen=True, eq=False)
class _Made:
    """The queries and keys of a trace, compared with a reading of the matrices.

    Attributes:
        read: The reading.
        factors: What the class multiplies its queries and its keys by; None where they do not
            follow from the matrices.
        mixed: Whether its heads are cut so that each mixes words.
    """

    read: AttentionWeights
    factors: tuple[float | None, float | None]
    mixed: bool = False

    @classmethod
    def of(cls, read: AttentionWeights, x: Tensor, trace: Trace) -> "_Made":
        x = x if x.ndim == 3 else x[None]
        factors, mixed = [], False
        for (weight, bias), made in zip(
            read.maps[:2], (trace.problem.query, trace.problem.key), strict=True
        ):
            whole = None
            if weight.shape[-1] == x.shape[-1]:
                whole = F.linear(x.to(weight), weight, bias).detach()
            factor, cut = _compared(whole, made)
            factors.append(factor)
            mixed = mixed or cut
        return cls(read, (factors[0], factors[1]), mixed)

    @property
    def fits(self) -> int:
        """Return how much of the trace follows from the matrices."""
        return sum(factor is not None for factor in self.factors)

    @property
    def known(self) -> tuple[float, float]:
        """Return the factors, 1 where vectors do not follow from the matrices."""
        query, key = (1.0 if factor is None else factor for factor in self.factors)
        return query, key

    def unscaled(self, trace: Trace) -> Trace:
        """Return the trace of queries and keys before the factors, with these as a part of β."""
        query, key = self.known
        problem = trace.problem
        if query == key == 1 or type(problem.score) not in (Dot, ScaledDot):
            return trace
        scale = problem.scale
        if isinstance(scale, Tensor):
            return trace
        problem = replace(
            problem,
            query=problem.query / query,
            key=problem.key / key,
            score=score_of(float(scale) * query * key, problem.query.shape[-1]),
        )
        whole = REFERENCE.trace(problem)
        steps = {name: problem.as_given(step) for name, step in whole.steps()}
        made = Trace(*(steps[name] for name in STEPS), problem=problem)
        same = torch.allclose(made.weights, trace.weights, rtol=1e-3, atol=1e-5)
        return made if same else trace


def _compared(
    whole: Float[Tensor, "batch words columns"] | None,
    made: Float[Tensor, "*batch heads words dim"],
) -> tuple[float | None, bool]:
    """Compare vectors with those of a trace, up to one factor.

    Returns: the factor, None where they differ, and whether heads are cut without a transpose.
    """
    heads, words, dim = made.shape[-3:]
    if whole is None or whole.numel() != made.numel() or not whole.numel():
        return None, False
    if whole.shape[1] != words:
        return None, False
    heads = whole.shape[-1] // dim
    made = made.detach().reshape(len(whole), heads, words, dim).to(whole)
    right = whole.unflatten(-1, (heads, dim)).transpose(1, 2)
    factor = _factor(right, made)
    if factor is not None:
        return factor, False
    factor = _factor(whole.reshape(made.shape), made)
    return factor, factor is not None


def _factor(vectors: Tensor, made: Tensor) -> float | None:
    """Return the number that vectors are multiplied by; None where there is no such number."""
    square = float(vectors.double().square().sum())
    if not square:
        return None
    factor = float((vectors.double() * made.double()).sum()) / square
    largest = float(made.abs().amax())
    if not torch.allclose(factor * vectors, made, rtol=1e-3, atol=1e-4 * largest):
        return None
    return 1.0 if abs(factor - 1) < 1e-3 else factor


def _row(x: Tensor, index: Any) -> Tensor | None:
    """Return the explained row of a batch."""
    if x.ndim == 2:
        return x
    row = index[0] if isinstance(index, tuple) and index else 0
    return x[row] if isinstance(row, int) and -len(x) <= row < len(x) else None


def _projection(read: AttentionWeights, x: Tensor, trace: Trace) -> Projection | None:
    """Return the projection of a module's input by its matrices; None where they do not fit."""

    def of_trace(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.detach().to(trace.queries)

    parts: dict[str, Any] = {"inputs": of_trace(x)}
    for role, (weight, bias) in zip(("query", "key", "value"), read.maps, strict=True):
        parts |= {f"W_{role}": of_trace(weight.T), f"b_{role}": of_trace(bias)}
    # Matrices are of another width where words stand in columns.
    with suppress(ValueError, TypeError):
        return Projection(**parts)
    return None
