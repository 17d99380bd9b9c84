"""The logsumexp of each query: what its scores are measured against."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.recipe.normalizers.softmax import exponential
from glasshead.recipe.problem import Problem
from glasshead.recipe.trace import Trace
from glasshead.statistics.layout import headed, sees_nothing
from glasshead.statistics.reductions import LogSum, Reduction
from glasshead.statistics.statistic import PerQuery


@dataclass(frozen=True)
class LogSumExp(PerQuery):
    """ln Σ_j exp s_ij, `[..., queries]`, in nats; a sink of `SoftmaxOne` is one more s.

    With it in hand any weight is exact on its own: P_ij = exp(s_ij - lse_i). It is -inf where a
    query sees nothing.

    Errors: a ValueError where the normalizer is not one of exponentials, `Softmax` or `SoftmaxOne`.

    Source: Dao 2024 (FlashAttention-2), section 3.1, which keeps it for the backward pass.

    >>> import glasshead as gh
    >>> query, key = torch.zeros(2, 1), torch.zeros(2, 1)
    >>> trace = gh.Attention(mask=gh.causal()).trace(query, key, key)
    >>> LogSumExp().of(trace)                                               # ln 1, ln 2
    tensor([0.0000, 0.6931])
    """

    unit = "nats"
    axes = ("query",)
    differentiable = True

    def of(self, trace: Trace) -> Float[Tensor, "*leading queries"]:
        self.check(trace.problem)
        empty = sees_nothing(trace)
        # The gradient of a logsumexp over nothing would be 0/0.
        scores = trace.masked.masked_fill(empty[..., None], 0.0)
        scores = scores if headed(trace) else scores.unsqueeze(-3)
        lse = trace.problem.normalizer.logsumexp(scores)
        lse = lse if headed(trace) else lse.squeeze(-2)
        return lse.masked_fill(empty, -torch.inf)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        del problem
        return (LogSum(),)

    def finish(
        self, problem: Problem, *reduced: tuple[Tensor, ...]
    ) -> Float[Tensor, "*batch heads queries"]:
        del problem
        return reduced[0][0]

    def check(self, problem: Problem) -> None:
        if not exponential(problem.normalizer):
            raise ValueError(
                f"{self!r} takes weights that are exponentials, of Softmax() or SoftmaxOne(), and "
                f"got those of {problem.normalizer}: leave it out, or take another normalizer."
            )
