"""Step 2: three matrices to learn."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class SelfAttentionV1(nn.Module):
    """Self-attention that learns what to ask, what to be found by, and what to answer.

    **What is new:** each word is first turned into a query, a key and a value by three learned
    matrices, and the scores are divided by √d_out.

        Q = x W_query,  K = x W_key,  V = x W_value
        context = softmax(Q Kᵀ / √d_out) V

    A dot product of d_out numbers grows like √d_out, and softmax of large numbers puts nearly all
    the weight on one word, where hardly any gradient is left to learn from: hence the division.

    Args:
        d_in: the width of a word.
        d_out: the width of a query, a key and a value.

    Raises:
        ValueError: ``forward`` got something other than ``[tokens, d_in]``.

    Source: Raschka, *Build a Large Language Model (From Scratch)*, section 3.4, where it is
    ``SelfAttention_v1``, a name that works here too; the scaled dot product is Vaswani et al. 2017,
    section 3.2.1.

    >>> _ = torch.manual_seed(123)
    >>> attention = SelfAttentionV1(d_in=3, d_out=2)
    >>> attention(torch.rand(6, 3)).shape
    torch.Size([6, 2])
    """

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.W_query = nn.Parameter(torch.rand(d_in, d_out))
        self.W_key = nn.Parameter(torch.rand(d_in, d_out))
        self.W_value = nn.Parameter(torch.rand(d_in, d_out))

    def forward(self, x: Float[Tensor, "tokens d_in"]) -> Float[Tensor, "tokens d_out"]:
        """Return the contexts of the words of one sentence."""
        d_in, d_out = self.W_query.shape
        if x.ndim != 2 or x.shape[1] != d_in:
            raise ValueError(
                f"x must be [tokens, {d_in}], got {list(x.shape)}. Pass one sentence, or build "
                "with d_in equal to its width."
            )
        queries = x @ self.W_query  # [tokens, d_out]
        keys = x @ self.W_key  # [tokens, d_out]
        values = x @ self.W_value  # [tokens, d_out]

        scores = queries @ keys.T  # [tokens, tokens]
        weights = torch.softmax(scores / d_out**0.5, dim=-1)
        return weights @ values  # [tokens, d_out]


SelfAttention_v1 = SelfAttentionV1
"""The name that the texts give it."""
