"""Statistics over keys and distances: received weight, distance histograms, pooled maps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from glasshead.recipe.problem import Problem
from glasshead.recipe.tile import per_batch
from glasshead.recipe.validation import finite, in_float64, whole_number
from glasshead.statistics.base import Statistic
from glasshead.statistics.reductions import (
    BlockSum,
    DiagonalSum,
    Largest,
    Reduction,
    TimesQueries,
)


@dataclass(frozen=True)
class Received(Statistic):
    """Received attention per key: Σ_i P_ij, `[..., keys]`, a weight.

    1 is all of the attention of one query. Caches keep the keys that receive most.

    Args:
        last: The number of last queries that count; None: all.

    Errors: a TypeError or ValueError if `last` is not a whole number of at least 1, and a
    ValueError if there are fewer queries.

    Source: Zhang et al. 2023 (H2O), section 3.2, accumulated attention scores; Li et al. 2024
    (SnapKV), whose observation window is `last`.

    >>> import glasshead as gh
    >>> query, key = torch.zeros(3, 1), torch.zeros(3, 1)
    >>> trace = gh.Attention(mask=gh.causal()).trace(query, key, key)
    >>> Received().of(trace)                                # 1 + 1/2 + 1/3, 1/2 + 1/3, 1/3
    tensor([1.8333, 0.8333, 0.3333])
    >>> Received(last=1).of(trace)
    tensor([0.3333, 0.3333, 0.3333])
    """

    last: int | None = None
    unit = "weight"
    axes = ("key",)

    def __post_init__(self) -> None:
        if self.last is not None:
            last = whole_number(self.last, "Received(last=…)", least=1)
            object.__setattr__(self, "last", last)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        queries = torch.arange(problem.scores_shape[-2], device=problem.query.device)
        counted = queries >= self._first(problem)
        return (TimesQueries(counted[:, None].to(problem.dtype)),)

    def finish(
        self, problem: Problem, *reduced: tuple[Tensor, ...]
    ) -> Float[Tensor, "*batch heads keys"]:
        return reduced[0][0][..., 0]

    def check(self, problem: Problem) -> None:
        if self._first(problem) < 0:
            raise ValueError(
                f"{self!r} needs at least {self.last} queries, got {problem.scores_shape[-2]}. "
                "Use a smaller last."
            )

    def joined(self, first: Tensor, second: Tensor) -> Tensor:
        """Add both; keys that only one of the chunks has received nothing from the other.

        Errors: a ValueError with `last`, as the last queries may lie in both chunks.
        """
        if self.last is not None:
            return super().joined(first, second)
        keys = max(first.shape[-1], second.shape[-1])
        first, second = (F.pad(mass, (0, keys - mass.shape[-1])) for mass in (first, second))
        return first + second

    def _first(self, problem: Problem) -> int:
        """Return the first query that counts."""
        return 0 if self.last is None else problem.scores_shape[-2] - self.last


@dataclass(frozen=True)
class DistanceHistogram(Statistic):
    """Distance histogram: mean_i Σ_j P_ij [edge_b ≤ |i + offset - j| < edge_b+1], `[..., bins]`.

    The mean is over the queries that see a key, and 0 if none does.

    Args:
        edges: The rising starts of the bins, then the end of the last bin, which may be `math.inf`.

    Errors: a TypeError or ValueError if the edges are fewer than two, do not rise, or are not
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
    reads_positions = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", _rising(self.edges))

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
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
        """Return, for each bin, which distances lie in it."""
        # Whole numbers and edges are compared in float64, which holds both.
        places, device = in_float64(distance), distance.device
        return [
            ((low <= places) & (places < high)).to(device) for low, high in pairwise(self.edges)
        ]


def _distance_of_diagonals(problem: Problem, diagonals: int) -> Int[Tensor, "*leading diagonals"]:
    """Compute |i + offset - j| of each diagonal, indexed by queries - 1 - i + j."""
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
            f"{name} must be a list of numbers such as [0, 1, 8], got {edges!r}."
        ) from None
    *begins, end = given or (0.0,)
    unbounded = isinstance(end, float) and end == math.inf
    numbers = (
        *(finite(edge, f"{name} without the last one") for edge in begins),
        math.inf if unbounded else finite(end, name),
    )
    if len(given) < 2 or any(low >= high for low, high in pairwise(numbers)):
        raise ValueError(f"{name} must have at least two numbers in increasing order, got {given}.")
    return numbers


@dataclass(frozen=True)
class PooledMap(Statistic):
    """Pooled map: mean_{i in block r} Σ_{j in block c} P_ij, `[..., rows, columns]`, a weight.

    A row that sums to 1 still does. Of n queries, row r begins with query r · n // rows; of keys
    likewise.

    Args:
        rows: The number of blocks of queries.
        columns: The number of blocks of keys.

    Errors: a TypeError or ValueError if they are not whole numbers of at least 1, and a
    ValueError if there are fewer queries than rows or fewer keys than columns.

    Source: a sum is what a part of a distribution weighs, a mean what a query of the block gives
    to it.

    >>> import glasshead as gh
    >>> query, key = torch.zeros(4, 1), torch.zeros(4, 1)
    >>> PooledMap(2, 2).of(gh.Attention(mask=gh.causal()).trace(query, key, key))
    tensor([[1.0000, 0.0000],
            [0.5833, 0.4167]])
    """

    rows: int
    columns: int
    unit = "weight"
    axes = ("row", "column")

    def __post_init__(self) -> None:
        for name in ("rows", "columns"):
            number = whole_number(getattr(self, name), f"PooledMap({name})", least=1)
            object.__setattr__(self, name, number)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        return (BlockSum(self.rows, self.columns),)

    def finish(
        self, problem: Problem, *reduced: tuple[Tensor, ...]
    ) -> Float[Tensor, "*batch heads rows columns"]:
        return reduced[0][0]

    def check(self, problem: Problem) -> None:
        queries, keys = problem.scores_shape[-2:]
        if self.rows > queries or self.columns > keys:
            raise ValueError(
                f"{self!r} needs at least as many queries and keys, got {queries} and {keys}. Ask "
                "for a smaller map."
            )
