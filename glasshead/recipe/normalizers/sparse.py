"""Softmax's sparse relatives: weights that can be exactly 0."""

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.recipe.normalizers.normalizer import Normalizer

# Below its row's largest score by 2 or more, no key gets weight from either of the two. What is
# farther is drawn in, not to the boundary itself: there it would be counted in by rounding.
_REACH = 4.0


class Sparsemax(Normalizer):
    """p = argmin |p - s|² over the simplex: p_j = max(s_j - τ, 0), with τ such that Σ p = 1.

    Source: Martins and Astudillo 2016, algorithm 1.

    >>> Sparsemax()(torch.tensor([[1.0, 0.5, -2.0]]))
    tensor([[0.7500, 0.2500, 0.0000]])
    """

    formula = "max(s_j - τ, 0), Σ = 1"
    numbers_a_pair = 5

    def normalize(
        self, scores: Float[Tensor, "*leading queries keys"]
    ) -> Float[Tensor, "*leading queries keys"]:
        scores = _within_reach(scores)
        ranked, rank = _ranked(scores)
        total = ranked.cumsum(-1)
        support = _at_least_one(1 + rank * ranked > total)
        threshold = (total.gather(-1, support - 1) - 1) / support
        return (scores - threshold).clamp(min=0)


class Entmax15(Normalizer):
    """p_j = max(s_j/2 - τ, 0)², with τ such that Σ p = 1: halfway from softmax to sparsemax.

    Source: Peters et al. 2019, section 3 and algorithm 2 (α = 1.5).

    >>> Entmax15()(torch.tensor([[1.0, 1.0, -2.0]]))
    tensor([[0.5000, 0.5000, 0.0000]])
    """

    formula = "max(s_j/2 - τ, 0)², Σ = 1"
    numbers_a_pair = 7

    def normalize(
        self, scores: Float[Tensor, "*leading queries keys"]
    ) -> Float[Tensor, "*leading queries keys"]:
        scores = _within_reach(scores) / 2
        ranked, rank = _ranked(scores)
        mean = ranked.cumsum(-1) / rank
        spread = ranked.square().cumsum(-1) - rank * mean.square()
        # The number of keys in the support is the largest for which its smallest key is above τ.
        thresholds = mean - ((1 - spread) / rank).clamp(min=0).sqrt()
        support = _at_least_one(thresholds.detach() <= ranked)
        mean, spread = mean.gather(-1, support - 1), spread.gather(-1, support - 1)
        threshold = mean - ((1 - spread) / support).sqrt()
        return (scores - threshold).clamp(min=0).square()


def _within_reach(scores: Tensor) -> Tensor:
    """Scores relative to their row's largest; all out of reach alike, -inf too."""
    return (scores - scores.detach().amax(-1, keepdim=True)).clamp(min=-_REACH)


def _at_least_one(supported: Tensor) -> Tensor:
    """How many keys have weight: one at least, but NaN compares with nothing."""
    return supported.sum(-1, keepdim=True).clamp(min=1)


def _ranked(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The scores from the largest on, and their ranks 1, 2, and so on."""
    rank = torch.arange(1, scores.shape[-1] + 1, device=scores.device, dtype=scores.dtype)
    return scores.sort(-1, descending=True).values, rank
