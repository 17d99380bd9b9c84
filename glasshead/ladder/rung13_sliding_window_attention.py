"""Step 13: a window that slides, and a sink for weight that no word wants."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glasshead.ladder.rung11_grouped_query_attention import GroupedQueryAttention


class SlidingWindowAttention(GroupedQueryAttention):
    """The attention of gpt-oss: each word sees a few words back, and may look at nothing.

    **What is new:** a window hides the words that are far back, and each head has a *sink*, a
    learned score b_h that takes a share of the weight and has no value to give.

        a_ij = exp(s_ij) / (exp(b_h) + Σ_k exp(s_ik)),  j and k from i - window + 1 to i

    The rest is step 11. With a window, time grows with the length of a text and not with its
    square, and layers on one another still reach farther than one window. Without a sink the
    weights of the visible words sum to 1, even if none of them is of use; models then learn to
    leave their weight on the first word, which a window would hide.

    Args:
        d_in, head_dim, num_heads, num_kv_heads, bias, turn: as of `GroupedQueryAttention`.
        window: how many words a word sees, itself among them.

    Raises:
        ValueError: ``window`` is less than 1; the rest as `GroupedQueryAttention` does.

    Source: the window is Beltagy et al. 2020, section 3.1, and sinks were found by Xiao et al.
    2024, section 3.1; with ``turn=rotated`` the layer is that of gpt-oss (OpenAI 2025), whose rows
    stand in the order of Llama's.

    Example: at a sink of 0 and scores of 0, three words and the sink weigh the same.

    >>> attention = SlidingWindowAttention(
    ...     d_in=3, head_dim=2, num_heads=1, num_kv_heads=1, window=3)
    >>> attention.weigh(torch.zeros(1, 1, 5, 5))[0, 0, 4]
    tensor([0.0000, 0.0000, 0.2500, 0.2500, 0.2500], grad_fn=<SelectBackward0>)
    """

    def __init__(
        self,
        d_in: int,
        head_dim: int,
        num_heads: int,
        num_kv_heads: int,
        window: int,
        bias: bool = False,
        turn: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__(d_in, head_dim, num_heads, num_kv_heads, bias, turn)
        if window < 1:
            raise ValueError(f"window must be at least 1, got {window}. A word sees itself.")
        self.window = window
        self.sinks = nn.Parameter(torch.zeros(num_heads))

    def weigh(
        self, scores: Float[Tensor, "batch heads tokens tokens"]
    ) -> Float[Tensor, "batch heads tokens tokens"]:
        """Turn scores into weights, of the words in the window; they sum to less than 1."""
        position = torch.arange(scores.shape[-1], device=scores.device)
        back = position[:, None] - position  # [tokens, tokens]
        scores = scores.masked_fill((back < 0) | (back >= self.window), -torch.inf)
        sinks = self.sinks[:, None, None].expand(*scores.shape[:-1], 1)
        weights = torch.softmax(torch.cat([scores, sinks], dim=-1), dim=-1)
        return weights[..., :-1]  # [batch, heads, tokens, tokens]
