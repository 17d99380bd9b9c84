"""Prices: what observing costs in addition to a call, in operations and in memory."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from glasshead.engines import REFERENCE, STREAMING, TRITON, Cost, Engine
from glasshead.engines.reference import rows_at_once
from glasshead.engines.streaming.engine import seen_pairs
from glasshead.engines.streaming.operands import bytes_of, knows, operations_of
from glasshead.recipe.problem import Problem
from glasshead.statistics.reductions import Reduction

# Cost of the softmax of a pair, in operations of a product: measured on a processor with AVX-512
# (benchmarks/observe.py). In full matrices it, and each reduction, costs a few memory accesses.
_SOFTMAX, _IN_FULL = 45, 100


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


def memory_of(problem: Problem, engine: Engine, reductions: Sequence[Reduction]) -> int:
    """Estimate the peak memory of observing beyond the inputs, in bytes."""
    cost = engine.cost(problem)
    return cost.bytes + price(problem, engine, cost, reductions).bytes


def price(problem: Problem, engine: Engine, cost: Cost, reductions: Sequence[Reduction]) -> Price:
    """Estimate what these reductions cost in addition to a call of this cost on this engine."""
    bare = problem.without_dropout()
    *leading, queries, keys = problem.scores_shape
    heads, size = math.prod(leading), problem.dtype.itemsize
    width = problem.query.shape[-1]
    results = heads * sum(bytes_of(one, queries, keys, size) for one in reductions)
    whole = heads * queries * keys
    if engine is REFERENCE:
        sums = _IN_FULL * len(reductions) * whole
        return Price(2 * _IN_FULL * whole, 0, sums, results + 2 * whole * size, 1)
    own = [r for r in reductions if not knows(r)]
    if problem.query.device.type == "cuda" and TRITON.refusal(bare) is None:
        return _beside_on_gpu(bare, reductions, results)
    if STREAMING.refusal(bare) is not None:
        sums = _IN_FULL * (2 + len(reductions)) * whole
        return Price(_SOFTMAX * whole, 2 * whole * width, sums, results + _row_bytes(bare), 2)
    streamed = cost if engine is STREAMING else STREAMING.cost(bare)
    pairs = streamed.flops // (2 * (width + problem.value.shape[-1]))
    each, flops, sums = sum(map(operations_of, reductions)), 0, 0
    if own:
        results += _row_bytes(bare)
        flops, sums = 2 * whole * width, _IN_FULL * (2 + len(own)) * whole
    plain, passes = _SOFTMAX * pairs, 1 + bool(own)
    if engine is STREAMING:
        return Price(plain, flops, sums + each * pairs, results, passes)
    return Price(
        plain,
        flops + 2 * pairs * width,
        sums + (_SOFTMAX + each) * pairs,
        results + streamed.bytes,
        passes + 1,
    )


def _beside_on_gpu(problem: Problem, reductions: Sequence[Reduction], results: int) -> Price:
    """Estimate one pass over q·kᵀ, and blocks of rows for reductions that its kernel lacks."""
    whole, width = math.prod(problem.scores_shape), problem.query.shape[-1]
    pairs = seen_pairs(problem)
    flops = 2 * (whole if pairs is None else pairs) * width
    others = not all(TRITON.knows(one) for one in reductions)
    flops += 2 * whole * width if others else 0
    extra = results + (_row_bytes(problem) if others else 0)
    return Price(0, flops, 0, extra, 2 + others)


def _row_bytes(problem: Problem) -> int:
    """Estimate the memory of the steps of complete rows, as many as are computed at a time."""
    *leading, _, keys = problem.scores_shape
    return rows_at_once(problem) * math.prod(leading) * keys * problem.dtype.itemsize * 6
