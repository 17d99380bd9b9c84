"""Reductions of complete rows of weights, a few queries at a time: any recipe, any device."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from glasshead.engines.reference import REFERENCE
from glasshead.recipe.problem import Problem
from glasshead.recipe.tile import Span
from glasshead.statistics.reductions import Reduction

# The numbers of one step that are held at a time.
_NUMBERS = 2**22


def by_rows(problem: Problem, reductions: Sequence[Reduction]) -> list[tuple[Tensor, ...]]:
    """The results of each reduction, `[*batch, heads, …]`."""
    if not reductions:
        return []
    queries = problem.scores_shape[-2]
    height = rows_at_once(problem)
    parts = []
    for first in range(0, max(queries, 1), height):
        span = Span(first, min(first + height, queries))
        rows = REFERENCE.part(problem, replace(problem.tile(), queries=span))
        parts.append([reduction.of(rows) for reduction in reductions])
    merged = []
    for reduction, *blocks in zip(reductions, *parts, strict=True):
        merged.append(tuple(_merged(reduction, part) for part in zip(*blocks, strict=True)))
    return merged


def rows_at_once(problem: Problem) -> int:
    """How many queries have so few scores that these may be held."""
    pairs = 1
    for size in (*problem.scores_shape[:-2], problem.scores_shape[-1]):
        pairs *= max(size, 1)
    return max(1, _NUMBERS // pairs)


def _merged(reduction: Reduction, parts: Sequence[Tensor]) -> Tensor:
    if reduction.query_axis is None:
        return torch.stack(tuple(parts)).sum(0)
    return torch.cat(tuple(parts), reduction.query_axis)
