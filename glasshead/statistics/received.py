"""The mass that each key receives."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from glasshead.recipe.numbers import whole_number
from glasshead.recipe.problem import Problem
from glasshead.recipe.trace import Trace
from glasshead.statistics.reductions import Reduction, TimesQueries
from glasshead.statistics.statistic import Statistic


@dataclass(frozen=True)
class Received(Statistic):
    """Σ_i P_ij, `[..., keys]`, a weight: the mass that each key receives from the queries.

    1 is all of the attention of one query. Caches keep the keys that receive most.

    Args:
        last: From so many of the last queries; None: from all.

    Errors: a TypeError or ValueError where `last` is not a whole number of at least 1, and a
    ValueError where there are fewer queries.

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

    def of(self, trace: Trace) -> Float[Tensor, "*leading keys"]:
        self.check(trace.problem)
        return trace.weights[..., self._first(trace.problem) :, :].sum(-2)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        queries = torch.arange(problem.scores_shape[-2], device=problem.query.device)
        counted = queries >= self._first(problem)
        return (TimesQueries(counted[:, None].to(problem.dtype)),)

    def finish(
        self, problem: Problem, *reduced: tuple[Tensor, ...]
    ) -> Float[Tensor, "*batch heads keys"]:
        del problem
        return reduced[0][0][..., 0]

    def check(self, problem: Problem) -> None:
        if self._first(problem) < 0:
            raise ValueError(
                f"{self!r} takes at least {self.last} queries, and got "
                f"{problem.scores_shape[-2]}: ask for a smaller last."
            )

    def joined(self, first: Tensor, second: Tensor) -> Tensor:
        """The sum; keys that only one of the chunks has received nothing from the other.

        Errors: a ValueError with `last`, as the last queries may lie in both chunks.
        """
        if self.last is not None:
            return super().joined(first, second)
        keys = max(first.shape[-1], second.shape[-1])
        first, second = (F.pad(mass, (0, keys - mass.shape[-1])) for mass in (first, second))
        return first + second

    def _first(self, problem: Problem) -> int:
        """The first query that counts."""
        return 0 if self.last is None else problem.scores_shape[-2] - self.last
