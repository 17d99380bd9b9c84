"""Gathering: what every attention of a model does, as means over all pieces of a text."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.cli.observing.pooled import MAP, pooled_map
from glasshead.cli.observing.runs.pieces import Pieces
from glasshead.cli.observing.statistics import Asked
from glasshead.models import LanguageModel
from glasshead.models.observing import Seen, observing
from glasshead.recipe.problem import Problem
from glasshead.statistics import MassOn, MaxScore, Statistic
from glasshead.statistics.reductions import Reduction


@dataclass(frozen=True, eq=False)
class Gathered:
    """What was seen of each layer and head.

    Attributes:
        layers: The names of the attentions.
        statistics: What was asked, by name; the map is one more.
        values: Of each a tensor `[layers, heads, …]` in float64: of what is a number a query the
            mean over all tokens, of the largest score the largest, of what is told by position
            the mean over all pieces of full length.
    """

    layers: tuple[str, ...]
    statistics: dict[str, Statistic]
    values: dict[str, Float[Tensor, "layers heads *rest"]]


def gather(
    model: LanguageModel,
    pieces: Pieces,
    asked: tuple[Asked, ...],
    progress: Callable[[int, int], None],
) -> Gathered:
    """Let a model read pieces, and observe it.

    Args:
        model: What reads.
        pieces: What it reads, each from its own beginning.
        asked: What is to be known.
        progress: Is told how many batches are done, and of how many.

    Errors: a ValueError where a statistic does not fit, or numbers overflow.
    """
    statistics: dict[str, Statistic] = {one.name: one.build() for one in asked}
    statistics[MAP] = pooled_map(pieces.length, pieces.length)
    sums = {name: _sum_of(one) for name, one in statistics.items()}
    layers: tuple[str, ...] = ()
    with torch.inference_mode():
        for done, batch in enumerate(pieces, 1):
            length = batch.shape[1]
            of_these = statistics if length == pieces.length else _of_shorter(statistics)
            with observing(model, of_these) as seen:
                model.hidden(batch)
            for name in of_these:
                sums[name].add(_stacked(seen, name), length)
            layers = tuple(seen)
            progress(done, pieces.batches)
    values = {name: one.value for name, one in sums.items()}
    if not all(value.isfinite().all() for value in values.values()):
        raise ValueError("the scores grow beyond all numbers: train the model again.")
    return Gathered(layers, statistics, values)


class _Mean:
    """The mean over pieces of what is a mean over the tokens of each, or told by position."""

    def __init__(self) -> None:
        self.total: Tensor | float = 0.0
        self.tokens = 0

    def add(self, value: Float[Tensor, "layers pieces heads *rest"], length: int) -> None:
        """Add pieces of so many tokens."""
        self.total = self.total + length * value.sum(1)
        self.tokens += length * value.shape[1]

    @property
    def value(self) -> Float[Tensor, "layers heads *rest"]:
        """The mean."""
        return torch.as_tensor(self.total) / self.tokens


class _MeanOfTokens(_Mean):
    """The mean over all tokens of what is a number for each."""

    def add(self, value: Float[Tensor, "layers pieces heads queries"], length: int) -> None:
        """Add pieces of so many tokens."""
        super().add(value.mean(-1), length)


class _Largest:
    """The largest over all pieces."""

    def __init__(self) -> None:
        self.value = torch.tensor(-torch.inf)

    def add(self, value: Float[Tensor, "layers pieces heads"], length: int) -> None:
        """Add pieces."""
        del length
        self.value = torch.maximum(self.value, value.amax(1))


def _sum_of(statistic: Statistic) -> _Mean | _Largest:
    if isinstance(statistic, MaxScore):
        return _Largest()
    return _MeanOfTokens() if statistic.axes == ("query",) else _Mean()


def _of_shorter(statistics: dict[str, Statistic]) -> dict[str, Statistic]:
    """The statistics of a shorter piece, which has but some of the positions."""
    return {
        name: _MassOnPresent(one.keys) if isinstance(one, MassOn) else one
        for name, one in statistics.items()
        if one.axes not in (("key",), ("row", "column"))
    }


class _MassOnPresent(MassOn):
    """The mass on those of the keys that are there; the others take none."""

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        keys = problem.scores_shape[-1]
        return MassOn([key for key in self.keys if key < keys]).reductions(problem)

    def check(self, problem: Problem) -> None:
        del problem


def _stacked(seen: Seen, name: str) -> Float[Tensor, "layers pieces heads *rest"]:
    return torch.stack([observation[name] for observation in seen.values()]).double()
