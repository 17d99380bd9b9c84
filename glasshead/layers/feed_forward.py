"""Feed-forward layers, and their dropout."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from glasshead.layers.multi_head_attention import Projections


class Dropout(nn.Dropout):
    """`nn.Dropout` that returns its input at once outside training.

    A token of generation passes it several times a layer, and each counts.

    >>> import torch
    >>> x = torch.rand(3)
    >>> Dropout(0.5).eval()(x) is x
    True
    """

    def forward(self, input: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:  # noqa: A002 - as PyTorch names it
        return super().forward(input) if self.training and self.p else input


Activation = Callable[[Tensor], Tensor]


class FeedForward(nn.Module):
    """Feed-forward layer: y = W_2 activation(W_1 x + b_1) + b_2, per position.

    It is the "1-D convolution" of some texts: a convolution whose kernel is one position wide
    multiplies each position by one and the same matrix, which is this.

    Args:
        d_model: The width of the model.
        d_hidden: The width between.
        activation: `F.relu`, as in the paper, `F.gelu`, as in GPT-2 and BERT, or another.
        dropout: The probability that a hidden number is dropped, in training only.
        bias: Whether b_1 and b_2 are there.

    Source: Vaswani et al. 2017, section 3.3; Hendrycks and Gimpel 2016 (GELU), section 2.

    >>> import torch
    >>> FeedForward(6, 24)(torch.rand(2, 5, 6)).shape
    torch.Size([2, 5, 6])
    """

    def __init__(
        self,
        d_model: int,
        d_hidden: int,
        *,
        activation: Activation = F.relu,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.hidden = nn.Linear(d_model, d_hidden, bias=bias)
        self.output = nn.Linear(d_hidden, d_model, bias=bias)
        self.activation = activation
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Compute the output of each position."""
        return self.output(self.dropout(self.activation(self.hidden(x))))


class GatedFeedForward(nn.Module):
    """Gated feed-forward: y = W_2 (activation(W_g x + b_g) ⊙ (W_1 x + b_1)) + b_2, as SwiGLU.

    One half of the hidden layer gates the other.

    Args:
        d_model: The width of the model.
        d_hidden: The width between; two thirds of a `FeedForward`'s for as many parameters.
        activation: Of the gate: `F.silu` (SwiGLU), `F.gelu` (GEGLU), or another.
        dropout: The probability that a hidden number is dropped, in training only.
        bias: Whether the biases are there.

    Source: Shazeer 2020 (GLU variants improve transformer), section 2.

    >>> import torch
    >>> GatedFeedForward(6, 16)(torch.rand(2, 5, 6)).shape
    torch.Size([2, 5, 6])
    """

    def __init__(
        self,
        d_model: int,
        d_hidden: int,
        *,
        activation: Activation = F.silu,
        dropout: float = 0.0,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.hidden = Projections((d_model, d_model), (d_hidden, d_hidden), bias=bias)
        self.output = nn.Linear(d_hidden, d_model, bias=bias)
        self.activation = activation
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Compute the output of each position."""
        gate, hidden = self.hidden.together(x).chunk(2, dim=-1)
        return self.output(self.dropout(self.activation(gate) * hidden))
