"""Visible keys: over how many keys a query could spread its weight."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from glasshead.recipe.masks.base import split
from glasshead.recipe.problem import Problem
from glasshead.recipe.tile import Span, Tile
from glasshead.recipe.trace import Trace
from glasshead.statistics import Statistic
from glasshead.statistics.reductions import Reduction

# Queries whose pairs are asked one by one at once, where a mask is no range of keys.
_ROWS = 256


@dataclass(frozen=True)
class VisibleKeys(Statistic):
    """n_i = Σ_j [key j is visible to query i], `[..., queries]`, a number of keys.

    ln n_i is the largest entropy that query i can have. Neither weights nor scores are read: of a
    mask that shows each query one range of keys it is two numbers a query.

    >>> import glasshead as gh
    >>> x = torch.zeros(3, 1)
    >>> VisibleKeys().of(gh.Attention(mask=gh.causal()).trace(x, x, x))
    tensor([1, 2, 3])
    """

    unit = "keys"
    axes = ("query",)

    def of(self, trace: Trace) -> Int[Tensor, "*leading queries"]:
        return (trace.masked != -torch.inf).sum(-1)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        del problem
        return ()

    def finish(
        self, problem: Problem, *reduced: tuple[Tensor, ...]
    ) -> Int[Tensor, "*batch heads queries"]:
        del reduced
        queries = problem.scores_shape[-2]
        counts = [
            _count(
                problem, replace(problem.tile(), queries=Span(start, min(start + _ROWS, queries)))
            )
            for start in range(0, max(1, queries), _ROWS)
        ]
        return torch.cat(counts, -1)

    def joined(self, first: Tensor, second: Tensor) -> Tensor:
        return torch.cat([first, second], -1)


def _count(problem: Problem, tile: Tile) -> Int[Tensor, "*batch heads queries"]:
    """How many keys each query of a tile sees."""
    rows, keys = tile.shape
    shape = (*problem.scores_shape[:-2], rows)
    intervals, rest = split(problem.mask, tile)
    if rest is None and not problem.biases:
        if intervals is None:
            return torch.full(shape, keys, device=tile.device)
        return (intervals.stops - intervals.starts)[..., 0].expand(shape)
    _, visible = problem.bias_and_visible(problem.mask, tile)
    if visible is None:
        return torch.full(shape, keys, device=tile.device)
    return visible.expand(*shape, keys).sum(-1)
