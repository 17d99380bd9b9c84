"""Reductions, as what a pass is to take beside the context, and found again in its results."""

from collections.abc import Sequence

import torch
from torch import Tensor

from glasshead.engines.streaming import said
from glasshead.engines.streaming.results import Sums
from glasshead.engines.streaming.structure import Wanted
from glasshead.recipe.problem import Problem
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
    """Whether the kernels take it on their way."""
    return type(reduction) in _KNOWN


def wanted(problem: Problem, reductions: Sequence[Reduction]) -> Wanted:
    """What a pass is to take for these reductions, each of them known."""
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
        per_key=_side_by_side(problem, right),
        per_query=_side_by_side(problem, left),
    )


def found(
    problem: Problem, reductions: Sequence[Reduction], sums: Sums
) -> list[tuple[Tensor, ...]]:
    """The results of each reduction, `[*batch, heads, …]`."""
    batch = problem.scores_shape[:-3]
    places = {"by_key": 0, "by_query": 0, "maps": 0}
    results = []
    for reduction in reductions:
        parts = _found(reduction, sums, places)
        results.append(tuple(part.reshape(*batch, *part.shape[1:]) for part in parts))
    return results


# Where the number stands that is said of each row.
_SAID = {
    LogSum: said.LOG_SUM,
    EntropySum: said.ENTROPY,
    ScoreSum: said.SCORES,
    DistanceSum: said.DISTANCES,
}


def _found(  # noqa: PLR0911 - a result each
    reduction: Reduction, sums: Sums, places: dict[str, int]
) -> tuple[Tensor, ...]:
    """The results of one, `[batch, heads, …]`; `places` counts what those before it have taken."""

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
                sums.rows[:, :, said.KEY].long()
                + said.MANY * sums.rows[:, :, said.MANY_KEYS].long()
            )
            return sums.rows[:, :, said.MAX_WEIGHT], key, sums.rows[:, :, said.MAX_SCORE]
    return (sums.rows[:, :, _SAID[type(reduction)]],)


def _side_by_side(problem: Problem, parts: Sequence[Tensor]) -> Tensor | None:
    """Columns `[..., length, n]` of all parts as rows `[#batch, #heads, n, length]`."""
    if not parts:
        return None
    batch = problem.scores_shape[:-3]
    shaped = [part.to(problem.dtype).transpose(-1, -2) for part in parts]
    axes = max(len(batch) + 3 if x.ndim > 3 else 4 for x in shaped)
    flat: list[Tensor] = []
    for part in shaped:
        one = part[(None,) * (axes - part.ndim)]
        flat.append(one.expand(*batch, *one.shape[-3:]).flatten(0, -4) if one.ndim > 4 else one)
    # By hand, as torch.broadcast_shapes imports SymPy when it is first called.
    leading = [max(sizes) for sizes in zip(*(x.shape[:2] for x in flat), strict=True)]
    return torch.cat([x.expand(*leading, *x.shape[2:]) for x in flat], 2).contiguous()
