"""The choices of an attention by the names used in options and URLs.

Nothing heavy is imported here, so that a name can be checked without torch.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from glasshead.drawing.printable import nearest
from glasshead.ladder.worked_example import WorkedExample
from glasshead.message import Message
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
        beta: A number or "auto" for 1/√d, and None where it is the score's own.
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
        mask = "causal" if example.causal else "none"
        return self == RecipeOptions(score=example.score, mask=mask)

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


def listed(names: Iterable[str], most: int = 12) -> str:
    """Join names with commas; of many, the first few and the number of the rest.

    >>> listed(["a", "b", "c", "d"], most=2)
    'a, b and 2 more'
    """
    names = list(names)
    first, more = Message.joined(", ", names[:most]), len(names) - most
    return first if more <= 0 else Message("{words} and {more:,} more", words=first, more=more)


def quoted(value: object, most: int = 60) -> str:
    """Return the repr of a value; a long one is elided in the middle.

    >>> quoted("sun"), quoted("s" * 99, most=9)
    ("'sun'", "'sss…sss'")
    """
    written = repr(value)
    if len(written) <= most:
        return written
    half = (most - 1) // 2
    return f"{written[:half]}…{written[-half:]}"


def one_of(value: str, choices: Iterable[str], option: str) -> str:
    """Return `value` if it is one of the choices.

    Errors: a ValueError that lists the choices and suggests the nearest.

    >>> one_of("dott", ["dot", "cosine"], "--score")
    Traceback (most recent call last):
    ValueError: --score must be one of dot, cosine, got 'dott'. Did you mean 'dot'?
    """
    choices = list(choices)
    if value in choices:
        return value
    wrong = Message(
        "{option} must be one of {choices}, got {value}",
        option=option,
        choices=Message.joined(", ", choices),
        value=quoted(value),
    )
    alike = nearest(value, choices)
    if alike:
        raise ValueError(Message("{wrong}. Did you mean {name}?", wrong=wrong, name=repr(alike)))
    raise ValueError(Message("{wrong}.", wrong=wrong))
