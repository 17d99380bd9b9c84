"""Step 5: several heads, side by side."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glasshead.ladder.rung4_causal_attention import CausalAttention


class MultiHeadAttentionWrapper(nn.Module):
    """Several causal attentions on the same words, their answers laid side by side.

    **What is new:** `num_heads` copies of step 4, each with weights of its own, so that one word
    can look for several things at once.

        head_h = CausalAttention_h(x)
        context = [head_1, head_2, …]

    Args:
        d_in: the width of a word.
        d_out: the width of **each** head: the result is ``num_heads · d_out`` wide.
        context_length: the most words that a sentence may have.
        dropout: the probability that a weight is dropped, in training only.
        num_heads: how many heads.
        qkv_bias: whether the projections add a bias.

    Raises:
        ValueError: ``num_heads`` is less than 1; the rest as `CausalAttention` does.

    Source: Raschka, *Build a Large Language Model (From Scratch)*, section 3.6.1; Vaswani et al.
    2017, section 3.2.2, as yet without the matrix W^O.

    >>> _ = torch.manual_seed(123)
    >>> heads = MultiHeadAttentionWrapper(
    ...     d_in=3, d_out=2, context_length=6, dropout=0.0, num_heads=2)
    >>> x = torch.rand(1, 6, 3)
    >>> heads(x).shape
    torch.Size([1, 6, 4])
    >>> torch.equal(heads(x)[..., :2], heads.heads[0](x))
    True
    """

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
        if num_heads < 1:
            raise ValueError(f"num_heads must be at least 1, got {num_heads}. One head is step 4.")
        self.heads = nn.ModuleList(
            CausalAttention(d_in, d_out, context_length, dropout, qkv_bias)
            for _ in range(num_heads)
        )

    def forward(self, x: Float[Tensor, "batch tokens d_in"]) -> Float[Tensor, "batch tokens width"]:
        """Return the contexts of every head, side by side."""
        return torch.cat([head(x) for head in self.heads], dim=-1)  # [batch, tokens, heads * d_out]
