"""Scores by the inner product, plain and scaled."""

from torch import Tensor

from glasshead.recipe.scores.inner_product import InnerProduct


class Dot(InnerProduct):
    """score(q, k) = q · k, as in the worked examples of the texts.

    Args:
        beta: The inverse temperature, a number or a tensor `[heads]`.

    Source: Luong et al. 2015, section 3.1, "dot".

    >>> import torch
    >>> Dot()(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
    tensor([[11.,  2.]])
    """

    formula = "q·k"

    def features(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        return query, key


class ScaledDot(Dot):
    """score(q, k) = q · k with β = 1/√dim, so that wide vectors do not make the softmax hard.

    The inner product of two vectors of `dim` independent numbers of variance 1 has variance `dim`;
    divided by √dim it has variance 1, whatever the width.

    Args:
        beta: The inverse temperature, a number or a tensor `[heads]`; None is 1/√dim.

    Source: Vaswani et al. 2017, section 3.2.1, equation 1.

    >>> ScaledDot().scale(dim=64), ScaledDot(beta=0.5).scale(dim=64)
    (0.125, 0.5)
    """

    def __init__(self, beta: float | Tensor | None = None) -> None:
        super().__init__(beta)

    def default_beta(self, dim: int) -> float:
        # A width of 0 makes every score 0, whatever multiplies it.
        return dim**-0.5 if dim else 1.0
