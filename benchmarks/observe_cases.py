"""What `benchmarks/observe.py` measures: inputs, statistics, and the same made by plain torch."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
from pairs import Pair, judged, paired
from torch import Tensor
from torch.nn import functional as F

import glasshead as gh
from glasshead.statistics import Statistic

HEADS, DIM = 8, 64
SIX: list[Statistic] = [
    gh.LogSumExp(),
    gh.MaxWeight(),
    gh.Entropy(),
    gh.Received(),
    gh.MeanDistance(),
    gh.MassOn([0]),
]
EIGHT: list[Statistic] = [*SIX, gh.TopK(8), gh.PooledMap(64, 64)]
SEVEN: list[Statistic] = [*SIX, gh.TopK(8)]

Inputs = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Options:
    """What was asked on the command line.

    Attributes:
        lengths: Of the causal problems.
        quick: Whether fewer pairs and shorter texts will do.
    """

    lengths: list[int]
    quick: bool

    def pairs(self, length: int) -> int:
        """An odd number of pairs, of which long texts get fewer."""
        many = next(
            (n for longest, n in ((1024, 41), (2048, 31), (4096, 15)) if length <= longest), 7
        )
        return max(3, many // 4 | 1) if self.quick else many


def inputs(length: int) -> Inputs:
    """Query, key and value of one batch row."""
    query, key, value = torch.randn(3, 1, HEADS, length, DIM)
    return query, key, value


def progress(what: str) -> None:
    """Say on stderr what takes its time now."""
    print(f"  {what} …", file=sys.stderr, flush=True)


def compared(
    name: str,
    ours: Callable[[], object],
    theirs: Callable[[], object],
    pairs: int,
    *,
    ratio: float | None = None,
    speedup: float | None = None,
) -> Pair:
    """A row of a table."""
    progress(f"{name}, {pairs} pairs")
    return judged(name, paired(ours, theirs, pairs=pairs), ratio=ratio, speedup=speedup)


def sdpa(of: Inputs, mask: Tensor | None = None) -> Callable[[], Tensor]:
    """PyTorch's fused kernel, causal unless a mask is given."""
    return lambda: F.scaled_dot_product_attention(*of, attn_mask=mask, is_causal=mask is None)


def observing(of: Inputs, statistics: list[Statistic], engine: str) -> Callable[[], object]:
    """Causal attention with statistics."""
    attention = gh.Attention(mask=gh.causal(), engine=engine)
    return lambda: attention.observe(*of, statistics)


class Eager:
    """Causal attention that keeps the matrix, in plain torch; masks are made beforehand."""

    def __init__(self, of: Inputs) -> None:
        self.query, self.key, self.value = of
        length = self.query.shape[-2]
        self.positions = torch.arange(length, dtype=torch.float32)
        self.hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        least = torch.finfo(torch.float32).min
        self.bias = torch.zeros(length, length).masked_fill_(self.hidden, least)

    def alone(self) -> tuple[Tensor, Tensor, Tensor]:
        """Context, weights, and the scores that made them."""
        scores = self.query * DIM**-0.5 @ self.key.mT
        scores = scores.masked_fill_(self.hidden, -torch.inf)
        weights = scores.softmax(-1)
        return weights @ self.value, weights, scores

    def with_statistics(self) -> tuple[Tensor, ...]:
        """SIX, each by the function of torch that is for it.

        Weights of causal rows add up to 1, so that mean distances are one product with positions.
        """
        context, weights, scores = self.alone()
        return (
            context,
            scores.logsumexp(-1),
            weights.amax(-1),
            torch.special.entr(weights).sum(-1),
            weights.sum(-2),
            self.positions - weights @ self.positions,
            weights[..., 0].clone(),
        )

    def with_tricks(self) -> tuple[Tensor, ...]:
        """SIX, with the definitions rearranged by hand so that the matrix is read least.

        The logsumexp comes of the two maxima, and the entropy, lse - Σ p·s, of products of rows;
        a finite bias hides, so that p·s is never 0·inf.
        """
        scores = (self.query * DIM**-0.5 @ self.key.mT).add_(self.bias)
        weights = scores.softmax(-1)
        largest = weights.amax(-1)
        logsumexp = scores.amax(-1) - largest.log()
        return (
            weights @ self.value,
            logsumexp,
            largest,
            logsumexp - torch.einsum("bhij,bhij->bhi", weights, scores),
            weights.sum(-2),
            self.positions - weights @ self.positions,
            weights[..., 0].clone(),
        )
