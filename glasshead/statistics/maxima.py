"""What is largest: the weight of each query, the key that has it, the score of each head."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glasshead.recipe.problem import Problem
from glasshead.recipe.trace import Trace
from glasshead.statistics.layout import sees_nothing
from glasshead.statistics.reductions import Largest, Reduction
from glasshead.statistics.statistic import PerQuery, Statistic


@dataclass(frozen=True)
class MaxWeight(PerQuery):
    """max_j P_ij, `[..., queries]`, a weight: how sure each query is; 0 where it sees nothing.

    Source: Voita et al. 2019 (Analyzing multi-head self-attention), section 4, whose mean over the
    queries is the confidence of a head.

    >>> import glasshead as gh
    >>> x = torch.tensor([[0.0], [1.0], [2.0]])
    >>> MaxWeight().of(gh.Attention(mask=gh.causal()).trace(x, x, x))
    tensor([1.0000, 0.7311, 0.8668])
    """

    unit = "weight"
    axes = ("query",)

    def of(self, trace: Trace) -> Float[Tensor, "*leading queries"]:
        return _largest(trace.weights, 0.0)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        del problem
        return (Largest(),)

    def finish(
        self, problem: Problem, *reduced: tuple[Tensor, ...]
    ) -> Float[Tensor, "*batch heads queries"]:
        del problem
        return reduced[0][0]


@dataclass(frozen=True)
class ArgMax(PerQuery):
    """argmax_j P_ij, `[..., queries]`, a key: where each query looks most; -1 if it sees nothing.

    Of weights that are equal the larger score decides, and of equal scores the lower key.

    Source: Voita et al. 2019 (Analyzing multi-head self-attention), section 5.1, which finds
    positional heads by it.

    >>> import glasshead as gh
    >>> x = torch.tensor([[0.0], [1.0], [2.0]])
    >>> ArgMax().of(gh.Attention(mask=gh.padding(2)).trace(x, x, x))
    tensor([0, 1, 1])
    """

    unit = "key"
    axes = ("query",)

    def of(self, trace: Trace) -> Int[Tensor, "*leading queries"]:
        empty = sees_nothing(trace)
        if trace.weights.shape[-1] == 0:
            return torch.full_like(empty, -1, dtype=torch.long)
        smaller = trace.weights < trace.weights.amax(-1, keepdim=True)
        return trace.masked.masked_fill(smaller, -torch.inf).argmax(-1).masked_fill(empty, -1)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        del problem
        return (Largest(),)

    def finish(
        self, problem: Problem, *reduced: tuple[Tensor, ...]
    ) -> Int[Tensor, "*batch heads queries"]:
        del problem
        return reduced[0][1]


@dataclass(frozen=True)
class MaxScore(Statistic):
    """max_ij s_ij of each head, `[...]`, a score; -inf for a head that sees nothing.

    s is what the normalizer is given: after β, softcap, bias and mask. Scores that grow without
    bound tell of a training that is about to diverge.

    Source: Kimi Team 2025 (Kimi K2), section 2.1, "max logit".

    >>> import glasshead as gh
    >>> x = torch.tensor([[0.0], [1.0], [2.0]])
    >>> MaxScore().of(gh.Attention().trace(x, x, x))
    tensor(4.)
    """

    unit = "score"
    axes = ()

    def of(self, trace: Trace) -> Float[Tensor, "*leading"]:
        return _largest(_largest(trace.masked, -torch.inf), -torch.inf)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        del problem
        return (Largest(),)

    def finish(
        self, problem: Problem, *reduced: tuple[Tensor, ...]
    ) -> Float[Tensor, "*batch heads"]:
        del problem
        return _largest(reduced[0][2], -torch.inf)

    def joined(self, first: Tensor, second: Tensor) -> Tensor:
        return torch.maximum(first, second)


def _largest(
    values: Float[Tensor, "*leading length"], of_nothing: float
) -> Float[Tensor, "*leading"]:
    """The largest along the last axis, which may be of length 0."""
    if values.shape[-1] == 0:
        return values.new_full(values.shape[:-1], of_nothing)
    return values.amax(-1)
