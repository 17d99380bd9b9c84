"""How far each query looks, on average."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from glasshead.recipe.problem import Problem
from glasshead.recipe.trace import Trace
from glasshead.statistics.layout import distances
from glasshead.statistics.reductions import DistanceSum, Reduction
from glasshead.statistics.statistic import PerQuery


@dataclass(frozen=True)
class MeanDistance(PerQuery):
    """Σ_j P_ij |i + offset - j|, `[..., queries]`, in places: how far each query looks.

    0 where a query sees nothing. Weights that sum to less than 1 are not scaled up.

    Source: Vig and Belinkov 2019 (Analyzing the structure of attention in a transformer language
    model), attention distance; Dosovitskiy et al. 2021 (ViT), appendix D.7.

    >>> import torch
    >>> import glasshead as gh
    >>> query, key = torch.zeros(3, 1), torch.zeros(3, 1)
    >>> MeanDistance().of(gh.Attention(mask=gh.causal()).trace(query, key, key))
    tensor([0.0000, 0.5000, 1.0000])
    """

    unit = "places"
    axes = ("query",)

    def of(self, trace: Trace) -> Float[Tensor, "*leading queries"]:
        return (trace.weights * distances(trace)).sum(-1)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        del problem
        return (DistanceSum(),)

    def finish(
        self, problem: Problem, *reduced: tuple[Tensor, ...]
    ) -> Float[Tensor, "*batch heads queries"]:
        del problem
        return reduced[0][0]
