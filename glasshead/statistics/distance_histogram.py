"""How much weight lies how far away."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glasshead.recipe.numbers import finite
from glasshead.recipe.problem import Problem
from glasshead.recipe.tile import per_batch
from glasshead.recipe.trace import Trace
from glasshead.statistics.layout import distances, sees_nothing
from glasshead.statistics.reductions import DiagonalSum, Largest, Reduction
from glasshead.statistics.statistic import Statistic


@dataclass(frozen=True)
class DistanceHistogram(Statistic):
    """mean_i Σ_j P_ij [edge_b ≤ |i + offset - j| < edge_b+1], `[..., bins]`, a weight.

    The mean is over the queries that see a key, and 0 where none does.

    Args:
        edges: Where each bin begins, rising, and after them where the last one ends, which may be
            `math.inf`.

    Errors: a TypeError or ValueError where the edges are fewer than two, do not rise, or are no
    numbers.

    Source: Clark et al. 2019 (What does BERT look at?), section 3.1, weight by relative position;
    here summed over both directions and over each bin.

    >>> import glasshead as gh
    >>> query, key = torch.zeros(3, 1), torch.zeros(3, 1)
    >>> trace = gh.Attention(mask=gh.causal()).trace(query, key, key)
    >>> DistanceHistogram([0, 1, math.inf]).of(trace)       # (1 + 1/2 + 1/3) / 3, and the rest
    tensor([0.6111, 0.3889])
    """

    edges: Sequence[int | float]
    unit = "weight"
    axes = ("bin",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", _rising(self.edges))

    def of(self, trace: Trace) -> Float[Tensor, "*leading bins"]:
        distance = distances(trace)
        bins = [(trace.weights * inside).sum((-2, -1)) for inside in self._bins(distance)]
        count = (~sees_nothing(trace)).sum(-1, keepdim=True)
        return torch.stack(bins, -1) / count.clamp(min=1)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        del problem
        return DiagonalSum(), Largest()

    def finish(
        self, problem: Problem, *reduced: tuple[Tensor, ...]
    ) -> Float[Tensor, "*batch heads bins"]:
        (mass,), (_, largest_key, _) = reduced
        distance = _distance_of_diagonals(problem, mass.shape[-1])
        bins = [(mass * inside).sum(-1) for inside in self._bins(distance)]
        count = (largest_key >= 0).sum(-1, keepdim=True)
        return torch.stack(bins, -1) / count.clamp(min=1)

    def _bins(self, distance: Int[Tensor, "..."]) -> list[Tensor]:
        """For each bin, which distances lie in it."""
        # Whole numbers and edges are compared in float64, which holds both.
        places = distance.double()
        return [(low <= places) & (places < high) for low, high in pairwise(self.edges)]


def _distance_of_diagonals(problem: Problem, diagonals: int) -> Int[Tensor, "*leading diagonals"]:
    """|i + offset - j| along each diagonal, where queries - 1 - i + j is its place."""
    offset, device = problem.offset, problem.query.device
    if isinstance(offset, Tensor):
        offset = per_batch(offset, device).flatten(-2) if offset.ndim else offset.to(device)
    place = torch.arange(diagonals, device=device)
    return (problem.scores_shape[-2] - 1 + offset - place).abs()


def _rising(edges: Any) -> tuple[float, ...]:
    name = "DistanceHistogram(edges)"
    try:
        given = list(edges)
    except TypeError:
        raise TypeError(
            f"{name} takes a list of numbers such as [0, 1, 8], and got {edges!r}."
        ) from None
    *begins, end = given or (0.0,)
    unbounded = isinstance(end, float) and end == math.inf
    numbers = (
        *(finite(edge, f"{name}, its last one aside,") for edge in begins),
        math.inf if unbounded else finite(end, name),
    )
    if len(given) < 2 or any(low >= high for low, high in pairwise(numbers)):
        raise ValueError(f"{name} takes two numbers or more, each above the last, and got {given}.")
    return numbers
