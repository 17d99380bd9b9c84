"""Residuals: how what a sublayer finds is added to what was there."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from glasshead.layers.dropout import Dropout

Sublayer = Callable[[Tensor], Tensor]


class PostNorm(nn.Module):
    """y = norm(x + dropout(sublayer(x))), as in the texts.

    Args:
        norm: `nn.LayerNorm`, `nn.RMSNorm` or another of the model's width.
        dropout: The probability that a number of the sublayer's result is dropped, in training.

    Source: Vaswani et al. 2017, section 3.1.

    >>> import torch
    >>> around = PostNorm(nn.LayerNorm(3, elementwise_affine=False))
    >>> around(torch.tensor([1.0, 2.0, 3.0]), lambda x: 0 * x)
    tensor([-1.2247,  0.0000,  1.2247])
    """

    def __init__(self, norm: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "*batch d_model"], sublayer: Sublayer
    ) -> Float[Tensor, "*batch d_model"]:
        """`x`, and what the sublayer makes of it."""
        return self.norm(x + self.dropout(sublayer(x)))


class PreNorm(PostNorm):
    """y = x + dropout(sublayer(norm(x))), which trains deep models without a warm-up.

    A model made of these has one more norm at its end.

    Args: as of `PostNorm`.

    Source: Xiong et al. 2020 (On layer normalization in the transformer architecture), section 3.

    >>> import torch
    >>> around = PreNorm(nn.LayerNorm(3, elementwise_affine=False))
    >>> around(torch.tensor([1.0, 2.0, 3.0]), lambda x: 0 * x)
    tensor([1., 2., 3.])
    """

    def forward(
        self, x: Float[Tensor, "*batch d_model"], sublayer: Sublayer
    ) -> Float[Tensor, "*batch d_model"]:
        """`x`, and what the sublayer makes of it."""
        return x + self.dropout(sublayer(self.norm(x)))
