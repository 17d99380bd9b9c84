"""Each key on its own."""

from jaxtyping import Float
from torch import Tensor

from glasshead.recipe.normalizers.normalizer import Normalizer


class Sigmoid(Normalizer):
    """p_j = 1 / (1 + exp(-s_j)): keys do not compete, and the weights need not sum to 1.

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
