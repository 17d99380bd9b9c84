"""Scores by nearness."""

from jaxtyping import Float
from torch import Tensor

from glasshead.recipe.scores.score import Score


class Gaussian(Score):
    """score(q, k) = -|q - k|²: with the softmax, a Gaussian kernel of variance 1/(2β).

    Args:
        beta: The inverse temperature, a number or a tensor `[heads]`.

    Source: Nadaraya 1964 and Watson 1964, kernel regression; Tsai et al. 2019, section 3.

    >>> import torch
    >>> Gaussian()(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 2.0], [4.0, 6.0]]))
    tensor([[ -0., -25.]])
    """

    formula = "-|q - k|²"

    def forward(
        self,
        query: Float[Tensor, "*leading queries dim"],
        key: Float[Tensor, "*leading keys dim"],
    ) -> Float[Tensor, "*leading queries keys"]:
        # |q|² + |k|² - 2 q·k would lose its digits where both vectors are far from the origin.
        return -(query.unsqueeze(-2) - key.unsqueeze(-3)).square().sum(-1)

    def numbers_a_pair(self, dim: int) -> int:
        return 2 * dim
