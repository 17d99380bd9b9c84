"""Statistics with one value per query: entropy, logsumexp, maxima, mass, distance, top keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glasshead.recipe.problem import Problem
from glasshead.recipe.validation import whole_number
from glasshead.statistics.base import Statistic
from glasshead.statistics.reductions import (
    DistanceSum,
    EntropySum,
    Largest,
    LargestWeights,
    LogSum,
    Reduction,
    TimesKeys,
)


class PerQuery(Statistic):
    """Base class of statistics with one number per query, `[..., queries]`; chunks concatenate."""

    def finish(self, problem: Problem, *reduced: tuple[Tensor, ...]) -> Any:
        """Return the result of the only reduction."""
        return reduced[0][0]

    def joined(self, first: Tensor, second: Tensor) -> Tensor:
        return torch.cat([first, second], -1)


@dataclass(frozen=True)
class Entropy(PerQuery):
    """Entropy of each query's weights: -Σ_j P_ij ln P_ij, `[..., queries]`, in nats.

    From 0, all weight on one key, to ln(keys), the same weight on each. 0 ln 0 is 0, and so is the
    entropy of a query that sees nothing. If weights do not sum to 1 (`SoftmaxOne`, `Sigmoid`), it
    is the same sum.

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

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        return (EntropySum(),)


@dataclass(frozen=True)
class LogSumExp(PerQuery):
    """Logsumexp of each query's scores: ln Σ_j exp s_ij, `[..., queries]`, sink included.

    It makes any weight exact on its own: P_ij = exp(s_ij - lse_i). It is -inf if a query sees
    nothing.

    Errors: a ValueError if the normalizer is not one of exponentials, `Softmax` or `SoftmaxOne`.

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

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        return (LogSum(),)

    def check(self, problem: Problem) -> None:
        if not problem.normalizer.exponential:
            raise ValueError(
                f"{self!r} needs the weights of Softmax() or SoftmaxOne(), got the weights of "
                f"{problem.normalizer}."
            )


@dataclass(frozen=True)
class MaxWeight(PerQuery):
    """Largest weight of each query: max_j P_ij, `[..., queries]`; 0 if it sees nothing.

    Source: Voita et al. 2019 (Analyzing multi-head self-attention), section 4, whose mean over the
    queries is the confidence of a head.

    >>> import glasshead as gh
    >>> x = torch.tensor([[0.0], [1.0], [2.0]])
    >>> MaxWeight().of(gh.Attention(mask=gh.causal()).trace(x, x, x))
    tensor([1.0000, 0.7311, 0.8668])
    """

    unit = "weight"
    axes = ("query",)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        return (Largest(keyed=False),)


@dataclass(frozen=True)
class ArgMax(PerQuery):
    """Key with the largest weight: argmax_j P_ij, `[..., queries]`; -1 where none is visible.

    Among equal weights the larger score decides, and among equal scores the lower key.

    Source: Voita et al. 2019 (Analyzing multi-head self-attention), section 5.1, which finds
    positional heads by it.

    >>> import glasshead as gh
    >>> x = torch.tensor([[0.0], [1.0], [2.0]])
    >>> ArgMax().of(gh.Attention(mask=gh.padding(2)).trace(x, x, x))
    tensor([0, 1, 1])
    """

    unit = "key"
    gives_keys = True
    axes = ("query",)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        return (Largest(),)

    def finish(
        self, problem: Problem, *reduced: tuple[Tensor, ...]
    ) -> Int[Tensor, "*batch heads queries"]:
        return reduced[0][1]


@dataclass(frozen=True)
class MaxScore(Statistic):
    """Largest score of each head: max_ij s_ij, `[...]`; -inf for a head that sees nothing.

    s is the normalizer's input: after β, softcap, bias and mask. Scores that grow without
    bound announce a training that is about to diverge.

    Source: Kimi Team 2025 (Kimi K2), section 2.1, "max logit".

    >>> import glasshead as gh
    >>> x = torch.tensor([[0.0], [1.0], [2.0]])
    >>> MaxScore().of(gh.Attention().trace(x, x, x))
    tensor(4.)
    """

    unit = "score"
    axes = ()

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        return (Largest(keyed=False),)

    def finish(
        self, problem: Problem, *reduced: tuple[Tensor, ...]
    ) -> Float[Tensor, "*batch heads"]:
        scores = reduced[0][2]
        if not scores.shape[-1]:
            return scores.new_full(scores.shape[:-1], -torch.inf)
        return scores.amax(-1)

    def joined(self, first: Tensor, second: Tensor) -> Tensor:
        return torch.maximum(first, second)


@dataclass(frozen=True)
class MassOn(PerQuery):
    """Weight on given keys: Σ_{j in keys} P_ij, `[..., queries]`.

    `MassOn([0])` is what the first key takes, the sink of many language models.

    Args:
        keys: The keys j, counted from 0.

    Errors: a TypeError or ValueError if the keys are not distinct whole numbers of at least 0,
    and a ValueError if there is no such key.

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
    reads_positions = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", _distinct(self.keys))

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        keys = problem.scores_shape[-1]
        counted = torch.zeros(keys, 1, dtype=problem.dtype, device=problem.query.device)
        # Keys that are not there yet, as while a text is generated, receive
        # nothing.
        counted[[key for key in self.keys if key < keys]] = 1.0
        return (TimesKeys(counted),)

    def finish(
        self, problem: Problem, *reduced: tuple[Tensor, ...]
    ) -> Float[Tensor, "*batch heads queries"]:
        return reduced[0][0][..., 0]

    def check(self, problem: Problem) -> None:
        keys = problem.scores_shape[-1]
        if self.keys and max(self.keys) >= keys:
            raise ValueError(
                f"MassOn(keys) must be keys from 0 to {keys - 1}, got {max(self.keys)}."
            )


def _distinct(keys: Any) -> tuple[int, ...]:
    try:
        given = list(keys)
    except TypeError:
        raise TypeError(
            f"MassOn(keys) must be a list of keys, got {keys!r}. Write MassOn([{keys!r}])."
        ) from None
    numbers = tuple(whole_number(key, "MassOn(keys)") for key in given)
    twice = sorted({key for key in numbers if numbers.count(key) > 1})
    if twice:
        raise ValueError(f"MassOn(keys) must have each key once, got {twice[0]} twice or more.")
    return numbers


@dataclass(frozen=True)
class MeanDistance(PerQuery):
    """Mean attention distance: Σ_j P_ij |i + offset - j|, `[..., queries]`, in positions.

    0 if a query sees nothing. Weights that sum to less than 1 are not scaled up.

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
    reads_positions = True

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        return (DistanceSum(),)


class TopKeys(NamedTuple):
    """Largest weights of each query, in descending order, and their keys.

    Attributes:
        weights: The weights; 0 if fewer keys have any.
        keys: The keys; -1 there.
    """

    weights: Float[Tensor, "... queries k"]
    keys: Int[Tensor, "... queries k"]


@dataclass(frozen=True)
class TopK(Statistic):
    """The k largest weights P_ij of each query and their keys j, twice `[..., queries, k]`.

    Among equal weights the lower key comes first. A weight of 0 is not listed: missing entries are
    weight 0 and key -1.

    Args:
        k: The number of weights.

    Errors: a TypeError or ValueError if k is not a whole number of at least 1, and a ValueError
    if there are fewer keys.

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

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        return (LargestWeights(self.k),)

    def finish(self, problem: Problem, *reduced: tuple[Tensor, ...]) -> TopKeys:
        weights, keys = reduced[0]
        return TopKeys(weights, keys)

    def check(self, problem: Problem) -> None:
        keys = problem.scores_shape[-1]
        if self.k > keys:
            raise ValueError(f"{self!r} needs at least {self.k} keys, got {keys}. Use a smaller k.")

    def joined(self, first: TopKeys, second: TopKeys) -> TopKeys:
        weights, keys = (torch.cat(both, -2) for both in zip(first, second, strict=True))
        return TopKeys(weights, keys)
