"""What is multiplied with the matrix of weights from either side, without the matrix."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from jaxtyping import Float
from torch import Tensor

from glasshead.engines import STREAMING, reductions_of
from glasshead.recipe.problem import Problem
from glasshead.statistics.reductions import TimesKeys, TimesQueries

# The sums beside a context go through the weights once a column; from here on, a context of its
# own is faster. Scores of as few queries are rounded otherwise there.
_FEW, _FEW_QUERIES = 8, 4


def factor_of(
    problem: Problem, factor: Any, shape: Sequence[int], name: str
) -> Float[Tensor, "... length n"]:
    """What is multiplied with a matrix of some shape, with a heads axis where it has a batch.

    Args:
        problem: What the weights are computed from.
        factor: As it was given, in the layout of the caller's inputs.
        shape: Of the matrix, in that layout.
        name: Of the product, for errors.

    Errors: a TypeError where it is not a floating-point tensor, a ValueError where its shape or its
    device are not those of the matrix.
    """
    if not isinstance(factor, Tensor) or not factor.is_floating_point():
        got = factor.dtype if isinstance(factor, Tensor) else type(factor).__name__
        raise TypeError(f"{name} takes a floating-point tensor, and got {got}.")
    *leading, _, length = shape
    fits = 2 <= factor.ndim <= len(shape) and factor.shape[-2] == length
    if fits:
        aligned = leading[len(leading) - (factor.ndim - 2) :]
        fits = all(a in (1, b) for a, b in zip(factor.shape[:-2], aligned, strict=True))
    if not fits:
        raise ValueError(
            f"{name} takes [..., {length}, n] that broadcasts to {leading}, "
            f"and got {list(factor.shape)}."
        )
    device = problem.query.device
    if factor.device != device:
        raise ValueError(f"{name} takes a tensor on {device}, and got one on {factor.device}.")
    if problem.axes < 4 and factor.ndim > 2:
        factor = factor.unsqueeze(-3)
    return factor.detach().to(problem.dtype)


def times_keys(
    problem: Problem, right: Float[Tensor, "... keys r"]
) -> Float[Tensor, "*batch heads queries r"]:
    """P·R for R `[*#batch, #heads, keys, r]` or `[keys, r]`: few columns are sums, many values."""
    queries = problem.scores_shape[-2]
    wide = right.shape[-1] > _FEW and queries > _FEW_QUERIES
    if wide and STREAMING.refusal(problem) is None and _finite(right):
        return STREAMING.run(_with_values(problem, right))
    ((result,),) = reductions_of(problem, [TimesKeys(right)])
    return result


def times_queries(
    problem: Problem, left: Float[Tensor, "... queries n"]
) -> Float[Tensor, "*batch heads keys n"]:
    """Pᵀ·L for L `[*#batch, #heads, queries, n]` or `[queries, n]`."""
    ((result,),) = reductions_of(problem, [TimesQueries(left)])
    return result


def _finite(right: Tensor) -> bool:
    """Whether R can be values, of which a hidden one may be NaN; 0 · NaN of a matrix is NaN."""
    return bool(right.isfinite().all())


def _with_values(problem: Problem, right: Tensor) -> Problem:
    """The problem whose context is P·R, with keys of each head where R has columns for each."""
    # What is returned is as exact as the sums are, not as coarse as the inputs may be.
    query, key = (x.to(problem.dtype) for x in (problem.query, problem.key))
    if right.ndim > 2 and right.shape[-3] > 1:
        key = key.repeat_interleave(problem.group, -3)
    value = right.expand(*key.shape[:-1], right.shape[-1])
    return replace(problem, query=query, key=key, value=value)
