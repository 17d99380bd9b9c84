"""The softmax of a part of a row, whose whole is known by its logsumexp."""

from jaxtyping import Float
from torch import Tensor

from glasshead.recipe.normalizers import Normalizer


class Known(Normalizer):
    """p_j = exp(s_j - lse), for scores that are some of a row's, and the logsumexp of all of it.

    Args:
        logsumexp: Of each row, `[..., queries, 1]`.

    >>> import torch
    >>> row = torch.tensor([[0.0, 1.0, 2.0]])
    >>> Known(row.logsumexp(-1, keepdim=True))(row[:, 1:]).allclose(row.softmax(-1)[:, 1:])
    True
    """

    formula = "exp(s_j - lse)"

    def __init__(self, logsumexp: Float[Tensor, "*leading queries 1"]) -> None:
        super().__init__()
        self._logsumexp = logsumexp

    def normalize(
        self, scores: Float[Tensor, "*leading queries keys"]
    ) -> Float[Tensor, "*leading queries keys"]:
        # A row that sees nothing has no logsumexp; it is cleared afterwards.
        return (scores - self._logsumexp.masked_fill(self._logsumexp.isneginf(), 0.0)).exp()
