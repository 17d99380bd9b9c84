"""Positions as vectors that are learned."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from glasshead.recipe.validation import whole_number


class Learned(nn.Module):
    """E(p) = W_p, a row of a table that is learned.

    Args:
        context_length: How many positions there are.
        d_model: The width of the model.

    Source: Gehring et al. 2017 (Convolutional sequence to sequence learning), section 3.1.

    >>> import torch
    >>> Learned(5, 3)(torch.tensor([[0, 4]])).shape
    torch.Size([1, 2, 3])
    """

    def __init__(self, context_length: int, d_model: int) -> None:
        super().__init__()
        whole_number(context_length, "context_length", least=1)
        self.table = nn.Embedding(context_length, whole_number(d_model, "d_model", least=1))

    def forward(self, positions: Int[Tensor, "*where"]) -> Float[Tensor, "*where d_model"]:
        """The vector of each position; where there is none, PyTorch raises an IndexError."""
        return self.table(positions)
