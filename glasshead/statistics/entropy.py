"""The entropy of each query's weights: over how many keys it spreads."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from glasshead.recipe.problem import Problem
from glasshead.recipe.trace import Trace
from glasshead.statistics.reductions import EntropySum, Reduction
from glasshead.statistics.statistic import PerQuery


@dataclass(frozen=True)
class Entropy(PerQuery):
    """-Σ_j P_ij ln P_ij, `[..., queries]`, in nats; exp of it is a number of keys.

    From 0, all weight on one key, to ln(keys), the same weight on each. 0 ln 0 is 0, and so is the
    entropy where a query sees nothing. Of weights that do not sum to 1 (`SoftmaxOne`, `Sigmoid`)
    it is the same sum.

    Source: Shannon 1948 (A mathematical theory of communication), section 6; Zhai et al. 2023
    (Stabilizing transformer training by preventing attention entropy collapse), of attention.

    >>> import torch
    >>> import glasshead as gh
    >>> query, key = torch.zeros(3, 1), torch.zeros(3, 1)
    >>> Entropy().of(gh.Attention(mask=gh.causal()).trace(query, key, key))       # ln 1, ln 2, ln 3
    tensor([0.0000, 0.6931, 1.0986])
    """

    unit = "nats"
    axes = ("query",)
    differentiable = True

    def of(self, trace: Trace) -> Float[Tensor, "*leading queries"]:
        weights = trace.weights
        # ln 0 would have no gradient: 0 ln 1 is as much.
        logarithms = weights.masked_fill(weights == 0, 1.0).log()
        return (weights * -logarithms).sum(-1)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        del problem
        return (EntropySum(),)

    def finish(
        self, problem: Problem, *reduced: tuple[Tensor, ...]
    ) -> Float[Tensor, "*batch heads queries"]:
        del problem
        return reduced[0][0]
