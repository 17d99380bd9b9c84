"""Real: statistics of the real tokens of a padded batch, where padding would count otherwise."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glasshead.recipe.problem import Problem
from glasshead.statistics import DistanceHistogram, MassOn, MaxScore, Received
from glasshead.statistics.reductions import (
    DiagonalSum,
    Largest,
    Reduction,
    Rows,
    TimesKeys,
    TimesQueries,
)
from glasshead.watching.corpus.text import Padding


class HistogramSums(NamedTuple):
    """What a mean over queries is made of.

    Attributes:
        mass: By distance, summed over the queries.
        queries: How many see a key.
    """

    mass: Float[Tensor, "... bins"]
    queries: Int[Tensor, "..."]


@dataclass(frozen=True)
class SummedHistogram(DistanceHistogram):
    """A `DistanceHistogram` before its mean is taken, as documents have unlike many queries."""

    def finish(self, problem: Problem, *reduced: tuple[Tensor, ...]) -> HistogramSums:  # type: ignore[override]
        diagonals, (weight, key, score) = reduced
        # The mean over one query is a sum.
        mass = super().finish(problem, diagonals, (weight, key[..., :1].clamp(min=0), score))
        return HistogramSums(mass, self._counted(key >= 0).sum(-1))

    def joined(self, first: HistogramSums, second: HistogramSums) -> HistogramSums:  # type: ignore[override]
        return HistogramSums(first.mass + second.mass, first.queries + second.queries)

    def _counted(self, seeing: Bool[Tensor, "... queries"]) -> Bool[Tensor, "... queries"]:
        """Which of the queries that see a key count."""
        return seeing


@dataclass(frozen=True)
class RealHistogram(SummedHistogram):
    """The same of the real queries."""

    padding: Padding = field(kw_only=True)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        _check(problem, self.padding)
        return _RealDiagonalSum(self.padding), Largest()

    def _counted(self, seeing: Bool[Tensor, "... queries"]) -> Bool[Tensor, "... queries"]:
        return seeing & self.padding.real[:, None].to(seeing.device)


@dataclass(frozen=True)
class _RealDiagonalSum(DiagonalSum):
    """Sums over each diagonal, of the real queries."""

    padding: Padding

    def of(self, rows: Rows) -> tuple[Tensor]:
        queries = rows.tile.queries
        real = self.padding.real[:, None, queries.start : queries.stop, None].to(rows.weights)
        return super().of(replace(rows, weights=rows.weights * real))


@dataclass(frozen=True)
class RealReceived(Received):
    """The mass that each key receives from the real queries, or from the last of these."""

    padding: Padding = field(kw_only=True)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        _check(problem, self.padding)
        real = self.padding.real
        counted = real if self.last is None else real & (_left(real) <= self.last)
        return (TimesQueries(counted[:, None, :, None].to(problem.query)),)


@dataclass(frozen=True)
class RealMaxScore(MaxScore):
    """The largest score of the real queries."""

    padding: Padding = field(kw_only=True)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        _check(problem, self.padding)
        return super().reductions(problem)

    def finish(self, problem: Problem, *reduced: tuple[Tensor, ...]) -> Tensor:
        weight, key, score = reduced[0]
        real = self.padding.real[:, None].to(score.device)
        return super().finish(problem, (weight, key, score.masked_fill(~real, -torch.inf)))


@dataclass(frozen=True)
class RealMassOn(MassOn):
    """The mass on some tokens of each document, counted from its first real one."""

    padding: Padding = field(kw_only=True)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        _check(problem, self.padding)
        real = self.padding.real
        number = real.cumsum(-1) - 1
        counted = sum((number == key) & real for key in self.keys) + torch.zeros_like(number)
        return (TimesKeys(counted[:, None, :, None].to(problem.query)),)


def _left(real: Tensor) -> Tensor:
    """How many real tokens there are from each on, itself included."""
    return real.flip(-1).cumsum(-1).flip(-1)


def _check(problem: Problem, padding: Padding) -> None:
    """Raise where the mask does not tell of both the queries and the keys."""
    batch, (queries, keys) = problem.scores_shape[:-3], problem.scores_shape[-2:]
    documents, length = padding.real.shape
    if batch != (documents,) or not queries == keys == length:
        raise ValueError(
            f"statistics_of takes the attention_mask of what the model attends to, and it is "
            f"{[documents, length]} where an attention has batch {list(batch)}, {queries} queries "
            f"and {keys} keys: name by layers= those that it fits, or give documents one by one."
        )
