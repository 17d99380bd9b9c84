"""Step 4: no word sees the words after it."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn


class CausalAttention(nn.Module):
    """Self-attention for a model that writes: each word sees itself and the words before it.

    **What is new:** a mask hides the words to come, dropout hides some weights at random while
    training, and several sentences go through at once, as a batch.

        M_ij = 0 if j ≤ i, −∞ if j > i
        context = dropout(softmax(Q Kᵀ / √d_out + M)) V

    exp(−∞) is 0, so a hidden word gets no weight and the rest still sum to 1. Dropout with
    probability p divides the weights that it keeps by 1 − p, so that their expected sum stays 1.

    Args:
        d_in: the width of a word.
        d_out: the width of a query, a key and a value.
        context_length: the most words that a sentence may have.
        dropout: the probability that a weight is dropped, in training only.
        qkv_bias: whether the three projections add a bias.

    Raises:
        ValueError: ``dropout`` is not a probability (from PyTorch), or ``forward`` got something
            other than ``[batch, tokens, d_in]`` with at most ``context_length`` tokens.

    Source: Raschka, *Build a Large Language Model (From Scratch)*, section 3.5; the mask is Vaswani
    et al. 2017, section 3.2.3.

    Example: what stands last cannot change what comes before it.

    >>> _ = torch.manual_seed(123)
    >>> attention = CausalAttention(d_in=3, d_out=2, context_length=6, dropout=0.0)
    >>> x = torch.rand(1, 6, 3)
    >>> longer, shorter = attention(x), attention(x[:, :5])
    >>> torch.allclose(longer[:, :5], shorter)
    True
    """

    mask: Bool[Tensor, "context_length context_length"]

    def __init__(
        self, d_in: int, d_out: int, context_length: int, dropout: float, qkv_bias: bool = False
    ) -> None:
        super().__init__()
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.dropout = nn.Dropout(dropout)
        # A buffer follows the module from device to device, as a plain attribute would not.
        hidden = torch.ones(context_length, context_length, dtype=torch.bool).triu(diagonal=1)
        self.register_buffer("mask", hidden)

    def forward(self, x: Float[Tensor, "batch tokens d_in"]) -> Float[Tensor, "batch tokens d_out"]:
        """Return the contexts of the words of each sentence of the batch."""
        d_in = self.W_query.in_features
        if x.ndim != 3 or x.shape[2] != d_in:
            raise ValueError(
                f"x must be [batch, tokens, {d_in}], got {list(x.shape)}. Pass one sentence as "
                "x[None], or build with d_in equal to its width."
            )
        tokens, context_length = x.shape[1], len(self.mask)
        if tokens > context_length:
            raise ValueError(
                f"x must have at most context_length={context_length} tokens, got {tokens}. "
                f"Shorten x, or build with context_length={tokens}."
            )
        queries = self.W_query(x)  # [batch, tokens, d_out]
        keys = self.W_key(x)  # [batch, tokens, d_out]
        values = self.W_value(x)  # [batch, tokens, d_out]

        scores = queries @ keys.transpose(1, 2)  # [batch, tokens, tokens]
        scores = scores.masked_fill(self.mask[:tokens, :tokens], -torch.inf)
        weights = torch.softmax(scores / keys.shape[-1] ** 0.5, dim=-1)
        return self.dropout(weights) @ values  # [batch, tokens, d_out]
