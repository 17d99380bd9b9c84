"""Step 7: questions from one text, answers from another."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn


class EncoderMultiHeadAttention(nn.Module):
    """The attention of an encoder, and the bridge between an encoder and a decoder.

    **What is new:** queries, keys and values each come from an input of their own, so that it is
    self-attention if the three are one and cross-attention if they are not; no word is hidden, and
    the weights are returned with the result.

        Q = X_q W_qᵀ,  K = X_k W_kᵀ,  V = X_v W_vᵀ
        A_h = softmax(Q_h K_hᵀ / √d_k),  d_k = d_model / num_heads
        H = [dropout(A_1) V_1, dropout(A_2) V_2, …] W_hᵀ + b_h

    Args:
        d_model: the width of all heads together, and of H.
        num_heads: how many heads; it divides ``d_model``.
        p: the probability that a weight is dropped, in training only.
        d_input: the widths of X_q, X_k and X_v; one number if they are the same, None if that is
            ``d_model``.

    Raises:
        ValueError: ``d_model`` cannot be cut into ``num_heads`` equal heads, ``d_input`` is neither
            one width nor three, ``p`` is not a probability (from PyTorch), or ``forward`` got
            inputs that do not fit these widths or one another.

    Source: the encoder notebook of the NYU deep-learning course (Canziani and LeCun), where it is
    ``MultiHeadAttention``, and W_h is the W^O of Vaswani et al. 2017, section 3.2.2; its three uses
    are in section 3.2.3 there.

    Example: two words of one text look at three words of another.

    >>> _ = torch.manual_seed(123)
    >>> attention = EncoderMultiHeadAttention(d_model=4, num_heads=2, p=0.0, d_input=(4, 5, 5))
    >>> mine, theirs = torch.rand(1, 2, 4), torch.rand(1, 3, 5)
    >>> H, A = attention(mine, theirs, theirs)
    >>> H.shape, A.shape
    (torch.Size([1, 2, 4]), torch.Size([1, 2, 2, 3]))
    """

    def __init__(
        self, d_model: int, num_heads: int, p: float, d_input: int | Sequence[int] | None = None
    ) -> None:
        super().__init__()
        if num_heads < 1 or d_model % num_heads:
            raise ValueError(
                f"d_model must be a multiple of num_heads, got d_model={d_model} and "
                f"num_heads={num_heads}. Choose a num_heads that divides {d_model}."
            )
        if d_input is None:
            d_input = d_model
        widths = (d_input,) * 3 if isinstance(d_input, int) else tuple(d_input)
        if len(widths) != 3:
            raise ValueError(
                f"d_input must be one width or three, got {widths}. Name the widths of X_q, X_k "
                "and X_v in this order."
            )
        d_xq, d_xk, d_xv = widths
        self.num_heads = num_heads
        self.d_k = d_model // num_heads
        self.W_q = nn.Linear(d_xq, d_model, bias=False)
        self.W_k = nn.Linear(d_xk, d_model, bias=False)
        self.W_v = nn.Linear(d_xv, d_model, bias=False)
        self.W_h = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(p)

    def forward(
        self,
        X_q: Float[Tensor, "batch queries d_xq"],
        X_k: Float[Tensor, "batch keys d_xk"],
        X_v: Float[Tensor, "batch keys d_xv"],
    ) -> tuple[Float[Tensor, "batch queries d_model"], Float[Tensor, "batch heads queries keys"]]:
        """Return (H, A): the contexts, and the weights before dropout."""
        for name, X, W in (("X_q", X_q, self.W_q), ("X_k", X_k, self.W_k), ("X_v", X_v, self.W_v)):
            if X.ndim != 3 or X.shape[2] != W.in_features:
                raise ValueError(
                    f"{name} must be [batch, length, {W.in_features}], got {list(X.shape)}. Pass "
                    f"one text as {name}[None], or give its width in d_input."
                )
        if X_k.shape[:2] != X_v.shape[:2] or len(X_q) != len(X_k):
            raise ValueError(
                "X_q, X_k and X_v must have one batch size, and X_k and X_v one length, got "
                f"{list(X_q.shape)}, {list(X_k.shape)} and {list(X_v.shape)}. Give each key its "
                "value, and each text its partner."
            )
        Q = self.split_heads(self.W_q(X_q))  # [batch, heads, queries, d_k]
        K = self.split_heads(self.W_k(X_k))  # [batch, heads, keys, d_k]
        V = self.split_heads(self.W_v(X_v))  # [batch, heads, keys, d_k]

        scores = Q @ K.transpose(2, 3)  # [batch, heads, queries, keys]
        A = torch.softmax(scores / self.d_k**0.5, dim=-1)
        H = self.dropout(A) @ V  # [batch, heads, queries, d_k]
        return self.W_h(H.transpose(1, 2).flatten(2)), A  # [batch, queries, d_model]

    def split_heads(
        self, projected: Float[Tensor, "batch length d_model"]
    ) -> Float[Tensor, "batch heads length d_k"]:
        """Cut the width into heads, and put the axis of heads before that of words."""
        return projected.unflatten(2, (self.num_heads, self.d_k)).transpose(1, 2)
