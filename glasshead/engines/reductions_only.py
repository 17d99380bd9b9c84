"""Reductions for a context that another engine computes, and the cost of observing."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from glasshead.engines.base import Engine, without_autocast
from glasshead.engines.reference import REFERENCE, by_rows, rows_at_once
from glasshead.engines.streaming import STREAMING
from glasshead.recipe.problem import Problem
from glasshead.statistics.reductions import (
    BlockSum,
    DiagonalSum,
    DistanceSum,
    Largest,
    LargestWeights,
    Reduction,
    TimesKeys,
    TimesQueries,
)

# With fewer scores than these, in all or per head, rows are faster than kernels, which would
# have to compile first.
_FEW, _FEW_A_HEAD = 2**16, 2**12


def reductions_of(problem: Problem, reductions: Sequence[Reduction]) -> list[tuple[Tensor, ...]]:
    """Compute each reduction of the weights before dropout, `[*batch, heads, …]`.

    The streaming kernels compute them where they can and there are many scores; else rows of
    weights are reduced.
    """
    bare = replace(problem, dropout=0.0)
    if not reductions:
        return []
    if not _few(problem) and STREAMING.refusal(bare) is None:
        return STREAMING.observe(bare, reductions, context=False).reduced
    with without_autocast(problem.query.device):
        return by_rows(bare, reductions)


def _few(problem: Problem) -> bool:
    if torch.compiler.is_compiling():
        return False
    queries, keys = problem.scores_shape[-2:]
    return math.prod(problem.scores_shape) < _FEW or queries * keys <= _FEW_A_HEAD


# Cost of the softmax of a pair, and of each reduction, in operations of a product: measured on
# a processor with AVX-512 (benchmarks/observe.py).
_SOFTMAX = 45
_EACH: dict[type[Reduction], int] = {
    Largest: 3,
    DistanceSum: 8,
    TimesKeys: 8,
    TimesQueries: 8,
    DiagonalSum: 15,
    LargestWeights: 30,
    BlockSum: 12,
}
# In full matrices each costs a few memory accesses instead.
_IN_FULL = 100


class Price(NamedTuple):
    """Additional cost of observing.

    Attributes:
        plain: Operations of the plain call beside its products.
        flops: Operations of further products.
        sums: Operations of the reductions.
        bytes: Peak memory, the results included.
        passes: The number of times the scores are computed in all.
    """

    plain: int
    flops: int
    sums: int
    bytes: int
    passes: int


def price(problem: Problem, engine: Engine, reductions: Sequence[Reduction]) -> Price:
    """Estimate what these reductions cost in addition to a call on this engine."""
    bare = replace(problem, dropout=0.0)
    *leading, queries, keys = problem.scores_shape
    heads, size = math.prod(leading), problem.dtype.itemsize
    width = problem.query.shape[-1]
    results = size * heads * sum(_numbers(reduction, queries, keys) for reduction in reductions)
    whole = heads * queries * keys
    if engine is REFERENCE:
        sums = _IN_FULL * len(reductions) * whole
        return Price(2 * _IN_FULL * whole, 0, sums, results + 2 * whole * size, 1)
    own = [r for r in reductions if not STREAMING.knows(r)]
    held = rows_at_once(bare) * math.prod(leading) * keys * size * 6
    if STREAMING.refusal(bare) is not None:
        sums = _IN_FULL * (2 + len(reductions)) * whole
        return Price(_SOFTMAX * whole, 2 * whole * width, sums, results + held, 2)
    cost = STREAMING.cost(bare)
    pairs = cost.flops // (2 * (width + problem.value.shape[-1]))
    each = sum(_EACH.get(type(r), 0) for r in reductions)
    own_flops = 2 * whole * width if own else 0
    own_sums = _IN_FULL * (2 + len(own)) * whole if own else 0
    if engine is STREAMING:
        sums = each * pairs + own_sums
        bytes_ = results + (held if own else 0)
        return Price(_SOFTMAX * pairs, own_flops, sums, bytes_, 1 + bool(own))
    return Price(
        _SOFTMAX * pairs,
        2 * pairs * width + own_flops,
        (_SOFTMAX + each) * pairs + own_sums,
        results + cost.bytes + (held if own else 0),
        2 + bool(own),
    )


def _numbers(reduction: Reduction, queries: int, keys: int) -> int:
    """Count the numbers of one head's result; float64 accumulators count twice."""
    match reduction:
        case TimesKeys(per_key):
            return queries * per_key.shape[-1]
        case TimesQueries(per_query):
            return 3 * keys * per_query.shape[-1]
        case DiagonalSum():
            return 3 * (queries + keys - 1)
        case LargestWeights(k):
            return 3 * queries * k
        case BlockSum(rows, columns):
            return 3 * rows * columns
    return queries
