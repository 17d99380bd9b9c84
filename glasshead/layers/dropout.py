"""Dropout that costs nothing where nothing is dropped."""

from jaxtyping import Float
from torch import Tensor, nn


class Dropout(nn.Dropout):
    """`nn.Dropout`, which gives its input back at once outside training.

    A token of generation passes it several times a layer, and each counts.

    >>> import torch
    >>> x = torch.rand(3)
    >>> Dropout(0.5).eval()(x) is x
    True
    """

    def forward(self, input: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:  # noqa: A002 - as PyTorch names it
        return super().forward(input) if self.training and self.p else input
