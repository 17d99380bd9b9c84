"""The choices of an attention by the names used in options and URLs.

Nothing heavy is imported here, so that a name can be checked without torch.
"""

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from glasshead.ladder.worked_example import WorkedExample
from glasshead.recipe.mask_text import parse_mask

if TYPE_CHECKING:
    from glasshead.attention import Attention
    from glasshead.recipe.scores import Score

SCORES = MappingProxyType(
    {
        "scaled-dot": "ScaledDot",
        "dot": "Dot",
        "cosine": "Cosine",
        "gaussian": "Gaussian",
        "additive": "Additive",
    }
)
NORMALIZERS = MappingProxyType(
    {
        "softmax": "Softmax",
        "softmax-one": "SoftmaxOne",
        "hardmax": "HardMax",
        "sparsemax": "Sparsemax",
        "entmax15": "Entmax15",
        "sigmoid": "Sigmoid",
    }
)
HARDENING = ("softmax", "hardmax", "sparsemax", "entmax15")
"""These give all weight to the largest score as β grows; the others do not."""


@dataclass(frozen=True, kw_only=True)
class RecipeOptions:
    """The choices of an attention; building it takes torch.

    Attributes:
        score, normalizer: Names of `SCORES` and `NORMALIZERS`; "hardmax" where β is infinite.
        beta: A number, "auto" for 1/√d, or None for the score's own.
        mask: The text of a mask, as of `parse_mask`.
        heads: In how many heads the vectors are split.
        dropout: The probability with which a weight is set to 0, as in training.
    """

    score: str = "scaled-dot"
    beta: float | str | None = None
    normalizer: str = "softmax"
    mask: str = "none"
    heads: int = 1
    dropout: float = 0.0

    def is_that_of(self, example: WorkedExample) -> bool:
        """Whether this is the attention of a worked example, whose numbers are printed."""
        own = 1.0 if example.score == "dot" else "auto"
        mask = "causal" if example.causal else "none"
        return self.beta in (None, own) and replace(self, beta=None) == RecipeOptions(
            score=example.score, mask=mask
        )

    def attention(self, dim: int, seed: int) -> "Attention":
        """Build the attention for queries of width `dim`; the seed draws learned parameters."""
        from glasshead.attention import Attention
        from glasshead.recipe import normalizers

        return Attention(
            score=self._score(dim, seed),
            mask=parse_mask(self.mask),
            normalizer=getattr(normalizers, NORMALIZERS[self.normalizer])(),
            dropout=self.dropout,
        ).train(mode=self.dropout > 0)

    def _score(self, dim: int, seed: int) -> "Score":
        import torch

        from glasshead.recipe import scores

        if self.score == "additive":
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                score = scores.Additive(dim).double().requires_grad_(requires_grad=False)
        else:
            score = getattr(scores, SCORES[self.score])()
        if self.beta is not None:
            score.beta = dim**-0.5 if isinstance(self.beta, str) else self.beta
        return score
