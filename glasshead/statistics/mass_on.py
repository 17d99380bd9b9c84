"""The mass that each query puts on some keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.recipe.numbers import whole_number
from glasshead.recipe.problem import Problem
from glasshead.recipe.trace import Trace
from glasshead.statistics.reductions import Reduction, TimesKeys
from glasshead.statistics.statistic import PerQuery


@dataclass(frozen=True)
class MassOn(PerQuery):
    """Σ_{j in keys} P_ij, `[..., queries]`, a weight: how much each query gives to some keys.

    `MassOn([0])` is what the first key takes, the sink of many language models.

    Args:
        keys: The keys j, counted from 0.

    Errors: a TypeError or ValueError where the keys are not distinct whole numbers of at least 0,
    and a ValueError where there is no such key.

    Source: Xiao et al. 2024 (StreamingLLM), section 3.1, attention sinks.

    >>> import glasshead as gh
    >>> query, key = torch.zeros(3, 1), torch.zeros(3, 1)
    >>> MassOn([0, 2]).of(gh.Attention(mask=gh.causal()).trace(query, key, key))
    tensor([1.0000, 0.5000, 0.6667])
    """

    keys: Sequence[int]
    unit = "weight"
    axes = ("query",)
    differentiable = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", _distinct(self.keys))

    def of(self, trace: Trace) -> Float[Tensor, "*leading queries"]:
        self.check(trace.problem)
        return trace.weights[..., list(self.keys)].sum(-1)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        keys = problem.scores_shape[-1]
        counted = torch.zeros(keys, 1, dtype=problem.dtype, device=problem.query.device)
        # Where they need not all be there, as on the way through a growing text, those that are
        # not take nothing.
        counted[[key for key in self.keys if key < keys]] = 1.0
        return (TimesKeys(counted),)

    def finish(
        self, problem: Problem, *reduced: tuple[Tensor, ...]
    ) -> Float[Tensor, "*batch heads queries"]:
        del problem
        return reduced[0][0][..., 0]

    def check(self, problem: Problem) -> None:
        keys = problem.scores_shape[-1]
        if self.keys and max(self.keys) >= keys:
            raise ValueError(
                f"MassOn(keys) takes keys below the number of them, {keys}, and got "
                f"{max(self.keys)}: keys are counted from 0."
            )


def _distinct(keys: Any) -> tuple[int, ...]:
    try:
        given = list(keys)
    except TypeError:
        raise TypeError(
            f"MassOn(keys) takes the keys in a list, and got {keys!r}: write MassOn([{keys!r}])."
        ) from None
    numbers = tuple(whole_number(key, "MassOn(keys)") for key in given)
    twice = sorted({key for key in numbers if numbers.count(key) > 1})
    if twice:
        raise ValueError(f"MassOn(keys) takes each key once, and got {twice[0]} twice or more.")
    return numbers
