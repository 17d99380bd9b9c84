"""Scores by the angle alone."""

import torch
from torch import Tensor
from torch.nn import functional as F

from glasshead.recipe.scores.inner_product import InnerProduct


class Cosine(InnerProduct):
    """score(q, k) = q · k / (|q| |k|): the cosine of the angle, whatever the lengths.

    It lies in [-1, 1], so a β above 1 (often learned) is what makes the weights differ. A vector
    of zeros scores 0.

    Args:
        beta: The inverse temperature, a number or a tensor `[heads]`.

    Source: Graves et al. 2014 (Neural Turing Machines), section 3.3.1; Henry et al. 2020 (QKNorm).

    >>> query, key = torch.tensor([[3.0, 4.0]]), torch.tensor([[4.0, 3.0], [-30.0, -40.0]])
    >>> Cosine()(query, key)
    tensor([[ 0.9600, -1.0000]])
    """

    formula = "q·k / (|q|·|k|)"

    def features(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        return _unit(query), _unit(key)


def _unit(vectors: Tensor) -> Tensor:
    """Vectors of length 1; the floor under the length is 0 in half precision, so not there."""
    exact = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
    return F.normalize(exact, dim=-1).to(vectors.dtype)
