"""Embedding: tokens as vectors that know where they stand."""

from jaxtyping import Float, Int
from torch import Tensor, nn


class Embedding(nn.Module):
    """x_p = dropout(norm(scale · W_token + E(p))).

    Args:
        vocab_size: How many tokens there are.
        d_model: The width.
        positions: E, a module of positions; None: the attention knows them, or nobody.
        dropout: The probability that a number is dropped, in training only.
        scale: What multiplies the vector of a token; √d_model in the paper.
        norm: A norm of the width, as in BERT; None: there is none.

    Source: Vaswani et al. 2017, sections 3.4 and 3.5.

    >>> import torch
    >>> Embedding(11, 6)(torch.tensor([[3, 5]]), torch.tensor([0, 1])).shape
    torch.Size([1, 2, 6])
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        positions: nn.Module | None = None,
        *,
        dropout: float = 0.0,
        scale: float = 1.0,
        norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = positions
        self.dropout = nn.Dropout(dropout)
        self.scale = scale
        self.norm = norm

    def forward(
        self, tokens: Int[Tensor, "batch length"], where: Int[Tensor, "*#batch length"]
    ) -> Float[Tensor, "batch length d_model"]:
        """The vectors of tokens that stand at the positions `where`."""
        x = self.tokens(tokens)
        if self.scale != 1.0:
            x = x * self.scale
        if self.positions is not None:
            x = x + self.positions(where).to(x.dtype)
        if self.norm is not None:
            x = self.norm(x)
        return self.dropout(x)
