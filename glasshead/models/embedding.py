"""Embedding: tokens as vectors that know where they stand."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from glasshead.layers.dropout import Dropout


class Embedding(nn.Module):
    """x_p = dropout(norm(scale · W_token + E(p) + S_segment)).

    Args:
        vocab_size: How many tokens there are.
        d_model: The width.
        positions: E, a module of positions; None: the attention knows them, or nobody.
        dropout: The probability that a number is dropped, in training only.
        scale: What multiplies the vector of a token; √d_model in the paper.
        norm: A norm of the width, as in BERT; None: there is none.
        segments: S, the vectors of the texts that stand side by side, as in BERT; None: none.

    Source: Vaswani et al. 2017, sections 3.4 and 3.5; segments: Devlin et al. 2019, section 3.

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
        segments: nn.Embedding | None = None,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = positions
        self.dropout = Dropout(dropout)
        self.scale = scale
        self.norm = norm
        self.segments = segments

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        where: Int[Tensor, "*#batch length"],
        segment: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch length d_model"]:
        """The vectors of tokens at the positions `where`, of the first segment if none is told."""
        x = self.tokens(tokens)
        if self.scale != 1.0:
            x = x * self.scale
        if self.positions is not None:
            x = x + self.positions(where).to(x.dtype)
        if self.segments is not None:
            x = x + (self.segments.weight[0] if segment is None else self.segments(segment))
        if self.norm is not None:
            x = self.norm(x)
        return self.dropout(x)
