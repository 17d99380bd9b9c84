"""Softmax, with and without a place to look away to."""

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.recipe.checks import check_per_head
from glasshead.recipe.holding import hold, per_head
from glasshead.recipe.normalizers.normalizer import Normalizer
from glasshead.recipe.numbers import number_or_tensor
from glasshead.recipe.scores.score import shown


class Softmax(Normalizer):
    """p_j = exp s_j / Σ_k exp s_k.

    Source: Bridle 1990; Vaswani et al. 2017, equation 1.

    >>> Softmax()(torch.tensor([[0.0, 0.0, -torch.inf]]))
    tensor([[0.5000, 0.5000, 0.0000]])
    """

    formula = "exp s_j / Σ_k exp s_k"

    def normalize(
        self, scores: Float[Tensor, "*leading queries keys"]
    ) -> Float[Tensor, "*leading queries keys"]:
        return scores.softmax(-1)

    def logsumexp(
        self, scores: Float[Tensor, "*leading queries keys"]
    ) -> Float[Tensor, "*leading queries"]:
        return scores.logsumexp(-1)


class SoftmaxOne(Normalizer):
    """p_j = exp s_j / (exp sink + Σ_k exp s_k): a query may look at nothing.

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
    sink: float | Tensor

    def __init__(self, sink: float | Tensor = 0.0) -> None:
        super().__init__()
        hold(self, "sink", number_or_tensor(sink, "sink"))

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

    def check(self, heads: int) -> None:
        check_per_head("sink", self.sink, heads)

    def extra_repr(self) -> str:
        return f"sink={shown(self.sink)}"


def exponential(normalizer: Normalizer) -> bool:
    """Whether the weights are exp(s - logsumexp), as a subclass may have made them otherwise."""
    own = type(normalizer).normalize
    return own in (Softmax.normalize, SoftmaxOne.normalize)
