"""Step 6: all the heads in one multiplication."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn


class MultiHeadAttention(nn.Module):
    """The attention of a GPT: causal, many heads, each a slice of one projection.

    **What is new:** the heads are cut out of one wide projection instead of having one each, run
    together on an axis of their own, and `out_proj` mixes what they found.

        head_h = dropout(softmax(Q_h K_hᵀ / √head_dim + M)) V_h,  head_dim = d_out / num_heads
        context = [head_1, head_2, …] W_outᵀ + b_out

    Q_h is columns ``h · head_dim`` to ``(h + 1) · head_dim`` of Q, and so for K_h and V_h; M is the
    mask of step 4. If the matrices of step 5's heads are stacked and `out_proj` changes nothing,
    the two steps agree.

    Args:
        d_in: the width of a word.
        d_out: the width of all heads together, and of the result.
        context_length: the most words that a sentence may have.
        dropout: the probability that a weight is dropped, in training only.
        num_heads: how many heads; it divides ``d_out``.
        qkv_bias: whether the projections of queries, keys and values add a bias.

    Raises:
        ValueError: ``d_out`` cannot be cut into ``num_heads`` equal heads, ``dropout`` is not a
            probability (from PyTorch), or ``forward`` got something other than ``[batch, tokens,
            d_in]`` with at most ``context_length`` tokens.

    Source: Raschka, *Build a Large Language Model (From Scratch)*, section 3.6.2; Vaswani et al.
    2017, section 3.2.2, where `out_proj` is W^O.

    >>> _ = torch.manual_seed(123)
    >>> attention = MultiHeadAttention(
    ...     d_in=3, d_out=4, context_length=6, dropout=0.0, num_heads=2)
    >>> attention(torch.rand(1, 6, 3)).shape
    torch.Size([1, 6, 4])
    """

    mask: Bool[Tensor, "context_length context_length"]

    def __init__(
        self,
        d_in: int,
        d_out: int,
        context_length: int,
        dropout: float,
        num_heads: int,
        qkv_bias: bool = False,
    ) -> None:
        super().__init__()
        if num_heads < 1 or d_out % num_heads:
            raise ValueError(
                f"d_out must be a multiple of num_heads, got d_out={d_out} and "
                f"num_heads={num_heads}. Choose a num_heads that divides {d_out}."
            )
        self.num_heads = num_heads
        self.head_dim = d_out // num_heads
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
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
        queries = self.split_heads(self.W_query(x))  # [batch, heads, tokens, head_dim]
        keys = self.split_heads(self.W_key(x))  # [batch, heads, tokens, head_dim]
        values = self.split_heads(self.W_value(x))  # [batch, heads, tokens, head_dim]

        scores = queries @ keys.transpose(2, 3)  # [batch, heads, tokens, tokens]
        scores = scores.masked_fill(self.mask[:tokens, :tokens], -torch.inf)
        weights = torch.softmax(scores / self.head_dim**0.5, dim=-1)
        contexts = self.dropout(weights) @ values  # [batch, heads, tokens, head_dim]
        return self.out_proj(contexts.transpose(1, 2).flatten(2))  # [batch, tokens, d_out]

    def split_heads(
        self, projected: Float[Tensor, "batch tokens d_out"]
    ) -> Float[Tensor, "batch heads tokens head_dim"]:
        """Cut the width into heads, and put the axis of heads before that of tokens."""
        return projected.unflatten(2, (self.num_heads, self.head_dim)).transpose(1, 2)
