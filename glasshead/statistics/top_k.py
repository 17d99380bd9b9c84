"""The keys that each query looks at most."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glasshead.recipe.numbers import whole_number
from glasshead.recipe.problem import Problem
from glasshead.recipe.trace import Trace
from glasshead.statistics.reductions import LargestWeights, Reduction
from glasshead.statistics.statistic import Statistic


class TopKeys(NamedTuple):
    """The largest weights of each query, from the largest on, and whose they are.

    Attributes:
        weights: The weights; 0 where fewer keys have any.
        keys: The keys; -1 there.
    """

    weights: Float[Tensor, "... queries k"]
    keys: Int[Tensor, "... queries k"]


@dataclass(frozen=True)
class TopK(Statistic):
    """The k largest P_ij of each query and their keys j, twice `[..., queries, k]`, as `TopKeys`.

    Of equal weights the lower key comes first. A weight of 0 takes no place: what is missing is
    weight 0 and key -1.

    Args:
        k: How many.

    Errors: a TypeError or ValueError where k is not a whole number of at least 1, and a ValueError
    where there are fewer keys.

    Source: Gupta et al. 2021 (Memory-efficient transformers via top-k attention), section 2.

    >>> import glasshead as gh
    >>> x = torch.tensor([[0.0], [1.0], [2.0]])
    >>> top = TopK(2).of(gh.Attention(mask=gh.causal()).trace(x, x, x))
    >>> top.weights
    tensor([[1.0000, 0.0000],
            [0.7311, 0.2689],
            [0.8668, 0.1173]])
    >>> top.keys
    tensor([[ 0, -1],
            [ 1,  0],
            [ 2,  1]])
    """

    k: int
    unit = "weight"
    axes = ("query", "rank")

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", whole_number(self.k, "TopK(k)", least=1))

    def of(self, trace: Trace) -> TopKeys:
        self.check(trace.problem)
        weights, keys = trace.weights.sort(dim=-1, descending=True, stable=True)
        weights, keys = weights[..., : self.k], keys[..., : self.k]
        return TopKeys(weights, torch.where(weights == 0, -1, keys))

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        del problem
        return (LargestWeights(self.k),)

    def finish(self, problem: Problem, *reduced: tuple[Tensor, ...]) -> TopKeys:
        del problem
        weights, keys = reduced[0]
        return TopKeys(weights, keys)

    def check(self, problem: Problem) -> None:
        keys = problem.scores_shape[-1]
        if self.k > keys:
            raise ValueError(
                f"{self!r} takes at least {self.k} keys, and got {keys}: ask for a smaller k."
            )

    def joined(self, first: TopKeys, second: TopKeys) -> TopKeys:
        weights, keys = (torch.cat(both, -2) for both in zip(first, second, strict=True))
        return TopKeys(weights, keys)
