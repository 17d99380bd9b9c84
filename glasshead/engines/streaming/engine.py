"""The streaming engine: one pass over blocks of scores, never the full matrix."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.engines.base import Cost, Observed, four_axes, is_transformed, without_autocast
from glasshead.engines.reference import by_rows
from glasshead.engines.streaming.arrays import PassResults
from glasshead.engines.streaming.kernels import arguments
from glasshead.engines.streaming.lower import Wanted, lower, seen_pairs
from glasshead.engines.streaming.operator import run
from glasshead.recipe.biases import Bias
from glasshead.recipe.masks.kinds import Band
from glasshead.recipe.normalizers import exponential
from glasshead.recipe.problem import Problem
from glasshead.recipe.scores import is_inner_product
from glasshead.statistics.reductions import (
    BlockSum,
    DiagonalSum,
    DistanceSum,
    EntropySum,
    Largest,
    LargestWeights,
    LogSum,
    Reduction,
    ScoreSum,
    TimesKeys,
    TimesQueries,
)

_KNOWN = (
    BlockSum,
    DiagonalSum,
    DistanceSum,
    EntropySum,
    Largest,
    LargestWeights,
    LogSum,
    ScoreSum,
    TimesKeys,
    TimesQueries,
)


def known(reduction: Reduction) -> bool:
    """Return whether the kernels compute this reduction within their pass."""
    return type(reduction) in _KNOWN


def wanted(problem: Problem, reductions: Sequence[Reduction]) -> Wanted:
    """Return the output specification of a pass that computes these built-in reductions."""
    kinds = {type(reduction) for reduction in reductions}
    right = [r.per_key for r in reductions if isinstance(r, TimesKeys)]
    left = [r.per_query for r in reductions if isinstance(r, TimesQueries)]
    return Wanted(
        keyed=Largest in kinds,
        far=DistanceSum in kinds,
        diagonal=DiagonalSum in kinds,
        top=max([0, *(r.k for r in reductions if isinstance(r, LargestWeights))]),
        maps=tuple(
            size for r in reductions if isinstance(r, BlockSum) for size in (r.rows, r.columns)
        ),
        per_key=_stack_rows(problem, right),
        per_query=_stack_rows(problem, left),
    )


def found(
    problem: Problem, reductions: Sequence[Reduction], sums: PassResults
) -> list[tuple[Tensor, ...]]:
    """Extract the results of each reduction from those of a pass, `[*batch, heads, …]`."""
    batch = problem.scores_shape[:-3]
    places = {"by_key": 0, "by_query": 0, "maps": 0}
    results = []
    for reduction in reductions:
        parts = _extract(reduction, sums, places)
        results.append(tuple(part.reshape(*batch, *part.shape[1:]) for part in parts))
    return results


# The row statistic that answers each reduction.
_ROW_STATS = {
    LogSum: arguments.LOG_SUM,
    EntropySum: arguments.ENTROPY,
    ScoreSum: arguments.SCORES,
    DistanceSum: arguments.DISTANCES,
}


def _extract(  # noqa: PLR0911 - a result each
    reduction: Reduction, sums: PassResults, places: dict[str, int]
) -> tuple[Tensor, ...]:
    """Extract one reduction, `[batch, heads, …]`; `places` counts what earlier ones have used."""

    def next_of(name: str, width: int) -> slice:
        first = places[name]
        places[name] += width
        return slice(first, first + width)

    match reduction:
        case TimesKeys(per_key):
            part = sums.by_key[:, :, next_of("by_key", per_key.shape[-1])]
            return (part.transpose(-1, -2),)
        case TimesQueries(per_query):
            part = sums.by_query[:, :, next_of("by_query", per_query.shape[-1])]
            return (part.transpose(-1, -2),)
        case DiagonalSum():
            return (sums.diagonals,)
        case LargestWeights(k):
            return sums.top[..., :k], sums.keys[..., :k]
        case BlockSum(rows, columns):
            part = sums.maps[..., next_of("maps", rows * columns)]
            return (part.unflatten(-1, (rows, columns)),)
        case Largest():
            key = (
                sums.rows[:, :, arguments.KEY].long()
                + arguments.MANY * sums.rows[:, :, arguments.MANY_KEYS].long()
            )
            return sums.rows[:, :, arguments.MAX_WEIGHT], key, sums.rows[:, :, arguments.MAX_SCORE]
    return (sums.rows[:, :, _ROW_STATS[type(reduction)]],)


def _stack_rows(problem: Problem, parts: Sequence[Tensor]) -> Tensor | None:
    """Stack columns `[..., length, n]` of all parts as rows `[#batch, #heads, n, length]`."""
    if not parts:
        return None
    batch = problem.scores_shape[:-3]
    flat = [four_axes(part.to(problem.dtype).transpose(-1, -2), batch) for part in parts]
    # Computed by hand, as torch.broadcast_shapes imports SymPy on its first call.
    leading = [max(sizes) for sizes in zip(*(x.shape[:2] for x in flat), strict=True)]
    return torch.cat([x.expand(*leading, *x.shape[2:]) for x in flat], 2).contiguous()


class Streaming:
    """Engine that computes blocks of queries, each with the keys between its mask's bounds only.

    The products, the softmax and every sum over the weights happen while a block is near the core.
    What the mask hides at either end of a row is not computed.

    Source: Dao et al. 2022 (FlashAttention), section 3.1: blocks, and weights recomputed
    from each row's normalizer in the backward pass.
    """

    name = "streaming"
    about = "compiled blocks of queries on every core, only the keys that they see"

    def refusal(self, problem: Problem) -> str | None:  # noqa: PLR0911 - a reason each
        """Return why the kernels cannot compute it: they need inner products, exp and a CPU."""
        if not is_inner_product(problem.score):
            return f"the score {type(problem.score).__name__} is not an inner product"
        if not exponential(problem.normalizer):
            return f"the weights of {type(problem.normalizer).__name__} are no exponentials"
        if problem.dropout:
            return "it keeps no weights that could be dropped"
        if problem.query.device.type not in ("cpu", "meta"):
            return f"it runs on the CPU, and the inputs are on {problem.query.device.type}"
        if _is_differentiated_otherwise():
            return "it has no derivative forwards, nor under the transforms of torch.func"
        if 0 in problem.query.shape or 0 in problem.key.shape or 0 in problem.value.shape:
            return "an axis is empty"
        return None

    def cost(self, problem: Problem) -> Cost:
        """Estimate the cost from the pairs within the mask's bounds, and a few blocks of memory."""
        pairs = seen_pairs(problem)
        pairs = math.prod(problem.scores_shape) if pairs is None else pairs
        keys = problem.scores_shape[-1]
        width, value_width = problem.query.shape[-1], problem.value.shape[-1]
        size = problem.dtype.itemsize
        rows = math.prod(problem.query.shape[:-1])
        # Each thread holds the packed keys of a head, and a block of scores.
        block = min(2**21, 64 * (keys + 64))
        threads = torch.get_num_threads()
        extra = rows * (value_width + 8) * size + threads * (keys * width + block) * size
        return Cost(2 * pairs * (width + value_width), extra + _bias_bytes(problem))

    def run(self, problem: Problem) -> Float[Tensor, "*batch heads queries value_dim"]:
        """Compute the context, differentiably."""
        return self.observe(problem, ()).context

    def observe(
        self, problem: Problem, reductions: Sequence[Reduction], *, context: bool = True
    ) -> Observed:
        """Compute context and built-in reductions in one pass; custom reductions take a second."""
        with without_autocast(problem.query.device):
            taken = [reduction for reduction in reductions if known(reduction)]
            query, key, value, structure = lower(problem)
            sums = run(query, key, value if context else None, structure, wanted(problem, taken))
            results = dict(zip(map(id, taken), found(problem, taken, sums), strict=True))
            others = [reduction for reduction in reductions if not known(reduction)]
            results |= dict(zip(map(id, others), by_rows(problem, others), strict=True))
        shape = (*problem.query.shape[:-1], sums.context.shape[-1])
        made = sums.context.reshape(shape).to(problem.query.dtype)
        return Observed(made, [results[id(reduction)] for reduction in reductions])

    def knows(self, reduction: Reduction) -> bool:
        """Return whether the kernels compute it; a custom reduction takes complete rows."""
        return known(reduction)

    def skips(self, problem: Problem) -> bool:
        """Return whether the mask hides so much at either end of the rows that this is the fastest.

        Of a tensor's numbers nothing is known while a call is compiled.
        """
        if problem.mask is None or torch.compiler.is_compiling():
            return False
        tile = problem.tile()
        mask = problem.mask.simplified(tile)
        half = isinstance(mask, Band) and mask.is_top_left_causal(tile)
        # SDPA skips what is above the diagonal by itself, but nothing by a mask tensor.
        if mask is None or (half and not problem.biases) or self.refusal(problem) is not None:
            return False
        pairs = seen_pairs(problem)
        return pairs is not None and pairs < 0.45 * math.prod(problem.scores_shape)


STREAMING = Streaming()


def _is_differentiated_otherwise() -> bool:
    """Return whether forward-mode autodiff or a transform of torch.func is active."""
    if torch.compiler.is_compiling():
        return False
    forwards = torch.autograd.forward_ad._current_level >= 0  # noqa: SLF001 - it has no other name
    return forwards or is_transformed()


def _bias_bytes(problem: Problem) -> int:
    """Estimate the bytes of biases that the recipe expands pair by pair."""
    total = 0
    for bias in problem.biases:
        if isinstance(bias, Bias) and not bias.by_distance:
            tile = replace(problem.tile(), device=torch.device("meta"))
            total += bias(tile).numel() * problem.dtype.itemsize
    return total
