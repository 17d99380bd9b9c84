"""The block of an encoder, and of a language model."""

from collections.abc import Callable
from functools import partial
from typing import Self

from jaxtyping import Float
from torch import Tensor, nn

from glasshead.layers.caching import KeyValueCache
from glasshead.layers.multi_head_attention import MultiHeadAttention
from glasshead.layers.residual import PostNorm
from glasshead.recipe.masks import Mask

Norm = Callable[[int], nn.Module]


class EncoderBlock(nn.Module):
    """Self-attention, then the feed-forward, each with its residual and its norm.

    With a causal attention it is the block of a language model.

    Args:
        attention: What looks around.
        feed_forward: What each position makes of it; None: the block is attention alone.
        residual: `PostNorm`, as in the texts, or `PreNorm`.
        norm: Makes a norm of a width: `nn.LayerNorm`, `nn.RMSNorm` or another.
        dropout: The probability that a number is dropped before it is added, in training only.

    Source: Vaswani et al. 2017, section 3.1.

    >>> import torch
    >>> from glasshead.layers import FeedForward
    >>> block = EncoderBlock(MultiHeadAttention(6, num_heads=2), FeedForward(6, 24))
    >>> block(torch.rand(2, 5, 6)).shape
    torch.Size([2, 5, 6])
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        feed_forward: nn.Module | None,
        *,
        residual: type[PostNorm] = PostNorm,
        norm: Norm = nn.LayerNorm,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.feed_forward = feed_forward
        self.around_attention = residual(norm(attention.d_model), dropout)
        if feed_forward is not None:
            self.around_feed_forward = residual(norm(attention.d_model), dropout)

    def forward(
        self,
        x: Float[Tensor, "batch length d_model"],
        *,
        mask: Mask | Tensor | None = None,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch length d_model"]:
        """What each position becomes; mask and cache are the attention's."""
        x = self.around_attention(x, partial(self.attention, mask=mask, cache=cache))
        if self.feed_forward is None:
            return x
        return self.around_feed_forward(x, self.feed_forward)

    @classmethod
    def from_torch(cls, layer: nn.TransformerEncoderLayer) -> Self:
        """The same as `nn.TransformerEncoderLayer`, with its weights.

        Errors: a TypeError for another module.

        >>> EncoderBlock.from_torch(nn.TransformerEncoderLayer(6, 2, 24)).attention.num_heads
        2
        """
        from glasshead.layers.loading import load_encoder_block

        return load_encoder_block(cls, layer)
