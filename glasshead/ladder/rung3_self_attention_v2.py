"""Step 3: the same matrices, kept in `nn.Linear`."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class SelfAttentionV2(nn.Module):
    """Self-attention whose matrices start from values that train well.

    **What is new:** `nn.Linear` holds the matrices, which start small and around zero instead of
    between 0 and 1, and may add a bias.

        Q = x W_queryᵀ + b_query,  K = x W_keyᵀ + b_key,  V = x W_valueᵀ + b_value
        context = softmax(Q Kᵀ / √d_out) V

    `nn.Linear` keeps its matrix as ``[d_out, d_in]``, the transpose of step 2's: copy one into the
    other with ``.T`` and the two steps agree.

    Args:
        d_in: the width of a word.
        d_out: the width of a query, a key and a value.
        qkv_bias: whether b_query, b_key and b_value are there.

    Raises:
        ValueError: ``forward`` got something other than ``[tokens, d_in]``.

    Source: Raschka, *Build a Large Language Model (From Scratch)*, section 3.4, where it is
    ``SelfAttention_v2``, and articles on PyTorch that call it ``ScaledDotProductAttention``, names
    that work here too; Vaswani et al. 2017, section 3.2.1.

    >>> _ = torch.manual_seed(789)
    >>> journey = torch.tensor([[0.43, 0.15, 0.89], [0.55, 0.87, 0.66], [0.57, 0.85, 0.64],
    ...                         [0.22, 0.58, 0.33], [0.77, 0.25, 0.10], [0.05, 0.80, 0.55]])
    >>> SelfAttentionV2(d_in=3, d_out=2)(journey)[0]
    tensor([-0.0739,  0.0713], grad_fn=<SelectBackward0>)
    """

    def __init__(self, d_in: int, d_out: int, qkv_bias: bool = False) -> None:
        super().__init__()
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)

    def forward(self, x: Float[Tensor, "tokens d_in"]) -> Float[Tensor, "tokens d_out"]:
        """Return the contexts of the words of one sentence."""
        d_in = self.W_query.in_features
        if x.ndim != 2 or x.shape[1] != d_in:
            raise ValueError(
                f"x must be [tokens, {d_in}], got {list(x.shape)}. Pass one sentence, or build "
                "with d_in equal to its width."
            )
        queries = self.W_query(x)  # [tokens, d_out]
        keys = self.W_key(x)  # [tokens, d_out]
        values = self.W_value(x)  # [tokens, d_out]

        scores = queries @ keys.T  # [tokens, tokens]
        weights = torch.softmax(scores / keys.shape[-1] ** 0.5, dim=-1)
        return weights @ values  # [tokens, d_out]


SelfAttention_v2 = SelfAttentionV2
ScaledDotProductAttention = SelfAttentionV2
