"""All weight on the best key."""

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.recipe.normalizers.normalizer import Normalizer


class HardMax(Normalizer):
    """p_j = 1 for the largest score (the first of equals), else 0.

    A step has no useful gradient, so the softmax's passes straight through.

    Source: Xu et al. 2015 (Show, attend and tell), section 4.1, hard attention; Bengio et al.
    2013, section 4, the straight-through estimator.

    >>> HardMax()(torch.tensor([[1.0, 3.0, 3.0]]))
    tensor([[0., 1., 0.]])
    """

    formula = "1 for the largest s_j, else 0"
    numbers_a_pair = 3

    def normalize(
        self, scores: Float[Tensor, "*leading queries keys"]
    ) -> Float[Tensor, "*leading queries keys"]:
        keys = torch.arange(scores.shape[-1], device=scores.device)
        hard = (keys == scores.argmax(-1, keepdim=True)).to(scores.dtype)
        soft = scores.softmax(-1)
        # The difference is exactly 0, so that the weights stay exactly 0 and 1.
        return hard + (soft - soft.detach())
