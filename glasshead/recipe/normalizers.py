"""Normalizers: softmax and its alternatives, which turn scores into attention weights."""

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from glasshead.recipe.part import HeadIndex, Part
from glasshead.recipe.scores import shown
from glasshead.recipe.validation import (
    UnfitError,
    check_per_head,
    number_or_tensor,
    per_head,
    register_value,
)


class Normalizer(Part, nn.Module):
    """Base class of normalizers: scores to weights; hidden pairs get 0, empty rows zeros only.

    A subclass implements `normalize`; hidden pairs are handled here, for all of them.

    Attributes:
        formula: The weight of a key as text.
        numbers_a_pair: Numbers per pair that are held at once in addition to scores and weights.
        exponential: Whether the weights are exp(s - logsumexp).
        is_softmax: Whether they are `Softmax` weights, which sum to 1.
    """

    formula: str
    numbers_a_pair: ClassVar[int] = 0
    exponential: ClassVar[bool] = False
    is_softmax: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "normalize" in vars(cls) and "exponential" not in vars(cls):
            cls.exponential = cls.is_softmax = False

    def forward(
        self,
        scores: Float[Tensor, "*leading queries keys"],
        visible: Bool[Tensor, "*#leading #queries #keys"] | None = None,
    ) -> Float[Tensor, "*leading queries keys"]:
        """Compute the weights of scores that are -inf where not visible.

        A row without a visible key would be 0/0 in most formulas. So it is normalized as a row of
        zeros and then cleared; its gradient is 0 for the same reason.
        """
        if scores.shape[-1] == 0:
            return scores
        if visible is None:
            return self.normalize(scores)
        empty = ~visible.any(-1, keepdim=True)
        return self.normalize(scores.masked_fill(empty, 0.0)).masked_fill(~visible, 0.0)

    @abstractmethod
    def normalize(
        self, scores: Float[Tensor, "*leading queries keys"]
    ) -> Float[Tensor, "*leading queries keys"]:
        """Compute the weights of rows that each have a score above -inf."""

    def logsumexp(
        self, scores: Float[Tensor, "*leading queries keys"]
    ) -> Float[Tensor, "*leading queries"]:
        """Return the logarithm of the denominator, if the weights are exponentials.

        Errors: an `UnfitError` if this normalizer has none.
        """
        raise UnfitError(
            "a logsumexp needs the normalizer Softmax() or SoftmaxOne(), got "
            f"{type(self).__name__}."
        )

    def sink_score(self) -> float | Tensor | None:
        """Return the score, or one per head, that takes weight and has no key; None: there is none.

        If the weights are exponentials, it is the only difference from the softmax.
        """

    def check(self, heads: int) -> None:
        """Raise a ValueError if this normalizer does not support `heads` heads."""

    def select_head(self, place: HeadIndex) -> "Normalizer | None":
        """Return the normalizer of one head, or None for one that may read across heads."""


class Softmax(Normalizer):
    """Softmax: p_j = exp s_j / Σ_k exp s_k.

    Source: Bridle 1990; Vaswani et al. 2017, equation 1.

    >>> Softmax()(torch.tensor([[0.0, 0.0, -torch.inf]]))
    tensor([[0.5000, 0.5000, 0.0000]])
    """

    formula = "exp s_j / Σ_k exp s_k"
    exponential = is_softmax = True
    saved = ()

    def select_head(self, place: HeadIndex) -> Normalizer | None:
        return None if self.is_custom else self

    def normalize(
        self, scores: Float[Tensor, "*leading queries keys"]
    ) -> Float[Tensor, "*leading queries keys"]:
        return scores.softmax(-1)

    def logsumexp(
        self, scores: Float[Tensor, "*leading queries keys"]
    ) -> Float[Tensor, "*leading queries"]:
        return scores.logsumexp(-1)


class SoftmaxOne(Normalizer):
    """Softmax with a sink: p_j = exp s_j / (exp sink + Σ_k exp s_k), so a row may sum to less.

    The sink is one more score that takes weight and gives no value, so that the weights sum to
    less than 1. At 0 it is the "+ 1" of the name; as a parameter per head it is what GPT-OSS
    learns.

    Args:
        sink: A number, or a tensor `[heads]`.

    Source: Miller 2023 (Attention is off by one); Xiao et al. 2024 (StreamingLLM), section 3.3,
    "zero sink"; OpenAI 2025 (gpt-oss model card), section 2.2, learned.

    >>> SoftmaxOne()(torch.tensor([[0.0, 0.0]]))
    tensor([[0.3333, 0.3333]])
    """

    formula = "exp s_j / (exp sink + Σ_k exp s_k)"
    numbers_a_pair = 1
    exponential = True
    saved = ("sink",)
    sink: float | Tensor

    def __init__(self, sink: float | Tensor = 0.0) -> None:
        super().__init__()
        register_value(self, "sink", number_or_tensor(sink, "sink"))

    def normalize(
        self, scores: Float[Tensor, "*leading queries keys"]
    ) -> Float[Tensor, "*leading queries keys"]:
        return self._with_sink(scores).softmax(-1)[..., :-1]

    def logsumexp(
        self, scores: Float[Tensor, "*leading queries keys"]
    ) -> Float[Tensor, "*leading queries"]:
        return self._with_sink(scores).logsumexp(-1)

    def _with_sink(self, scores: Tensor) -> Tensor:
        sink = torch.as_tensor(per_head(self.sink), dtype=scores.dtype, device=scores.device)
        return torch.cat([scores, sink.expand(*scores.shape[:-1], 1)], dim=-1)

    def sink_score(self) -> float | Tensor | None:
        return self.sink

    def check(self, heads: int) -> None:
        check_per_head("sink", self.sink, heads)

    def select_head(self, place: HeadIndex) -> Normalizer | None:
        if self.is_custom:
            return None
        sink = place.number(self.sink)
        return self if sink is self.sink else SoftmaxOne(sink)

    def extra_repr(self) -> str:
        return f"sink={shown(self.sink)}"


class HardMax(Normalizer):
    """Hard attention: p_j = 1 for the largest score (the first of equals), else 0.

    A step has no useful gradient, so the softmax's passes straight through.

    Source: Xu et al. 2015 (Show, attend and tell), section 4.1, hard attention; Bengio et al.
    2013, section 4, the straight-through estimator.

    >>> HardMax()(torch.tensor([[1.0, 3.0, 3.0]]))
    tensor([[0., 1., 0.]])
    """

    formula = "1 (s_j = max s), 0 (s_j < max s)"
    numbers_a_pair = 3

    def normalize(
        self, scores: Float[Tensor, "*leading queries keys"]
    ) -> Float[Tensor, "*leading queries keys"]:
        keys = torch.arange(scores.shape[-1], device=scores.device)
        hard = (keys == scores.argmax(-1, keepdim=True)).to(scores.dtype)
        soft = scores.softmax(-1)
        # The difference is exactly 0, so that the weights stay exactly 0 and 1.
        return hard + (soft - soft.detach())


class Sigmoid(Normalizer):
    """Sigmoid attention: p_j = 1 / (1 + exp(-s_j)); the weights need not sum to 1.

    The paper adds a bias of -ln(keys) to the scores; give it as `bias=`.

    Source: Ramapuram et al. 2025 (Theory, analysis, and best practices for sigmoid
    self-attention), section 3.

    >>> import torch
    >>> Sigmoid()(torch.tensor([[0.0, -torch.inf]]))
    tensor([[0.5000, 0.0000]])
    """

    formula = "1 / (1 + exp(-s_j))"

    def normalize(
        self, scores: Float[Tensor, "*leading queries keys"]
    ) -> Float[Tensor, "*leading queries keys"]:
        return scores.sigmoid()


# Below its row's largest score by 2 or more, no key gets weight from either of the two. What is
# farther is clamped to this, not to 2 itself, where rounding could count it in.
_REACH = 4.0


class Sparsemax(Normalizer):
    """Sparsemax: p = argmin |p - s|² over the simplex; p_j = max(s_j - τ, 0), Σ p = 1.

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
    """Entmax with α = 1.5: p_j = max(s_j/2 - τ, 0)², Σ p = 1; between softmax and sparsemax.

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
    """Subtract each row's largest score, and clamp what is too low to get weight, -inf too."""
    return (scores - scores.detach().amax(-1, keepdim=True)).clamp(min=-_REACH)


def _at_least_one(supported: Tensor) -> Tensor:
    """Return the size of the support, at least 1: NaN compares with nothing."""
    return supported.sum(-1, keepdim=True).clamp(min=1)


def _ranked(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Sort the scores in descending order, and return them with their ranks 1, 2, and so on."""
    rank = torch.arange(1, scores.shape[-1] + 1, device=scores.device, dtype=scores.dtype)
    return scores.sort(-1, descending=True).values, rank
