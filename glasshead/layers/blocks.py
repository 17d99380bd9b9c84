"""Transformer blocks: encoder, decoder, and their residual connections."""

from collections.abc import Callable
from functools import partial
from typing import Self

from jaxtyping import Float
from torch import Tensor, nn

from glasshead.layers.cache import KeyValueCache
from glasshead.layers.feed_forward import Dropout
from glasshead.layers.multi_head_attention import MultiHeadAttention
from glasshead.recipe.masks import Mask

Sublayer = Callable[[Tensor], Tensor]


class PostNorm(nn.Module):
    """Post-norm residual: y = norm(x + dropout(sublayer(x))), as in the original transformer.

    Args:
        norm: `nn.LayerNorm`, `nn.RMSNorm` or another of the model's width.
        dropout: The probability that a number of the sublayer's result is dropped, in training.

    Source: Vaswani et al. 2017, section 3.1.

    >>> import torch
    >>> around = PostNorm(nn.LayerNorm(3, elementwise_affine=False))
    >>> around(torch.tensor([1.0, 2.0, 3.0]), lambda x: 0 * x)
    tensor([-1.2247,  0.0000,  1.2247])
    """

    def __init__(self, norm: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "*batch d_model"], sublayer: Sublayer
    ) -> Float[Tensor, "*batch d_model"]:
        """Add to `x` the output of the sublayer, and normalize the sum."""
        return self.norm(x + self.dropout(sublayer(x)))


class PreNorm(PostNorm):
    """Pre-norm residual: y = x + dropout(sublayer(norm(x))); deep models train without warm-up.

    A model made of these has one more norm at its end.

    Args: as of `PostNorm`.

    Source: Xiong et al. 2020 (On layer normalization in the transformer architecture), section 3.

    >>> import torch
    >>> around = PreNorm(nn.LayerNorm(3, elementwise_affine=False))
    >>> around(torch.tensor([1.0, 2.0, 3.0]), lambda x: 0 * x)
    tensor([1., 2., 3.])
    """

    def forward(
        self, x: Float[Tensor, "*batch d_model"], sublayer: Sublayer
    ) -> Float[Tensor, "*batch d_model"]:
        """Add to `x` the output of the sublayer on the normalized `x`."""
        return x + self.dropout(sublayer(self.norm(x)))


Norm = Callable[[int], nn.Module]


class EncoderBlock(nn.Module):
    """Encoder block: self-attention and feed-forward, each with its residual and norm.

    With a causal attention it is the block of a language model.

    Args:
        attention: The self-attention.
        feed_forward: The feed-forward layer; None: the block is attention alone.
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
        """Compute the new state of each position; mask and cache are the attention's."""
        x = self.around_attention(x, partial(self.attention, mask=mask, cache=cache))
        if self.feed_forward is None:
            return x
        return self.around_feed_forward(x, self.feed_forward)

    @classmethod
    def from_torch(cls, layer: nn.TransformerEncoderLayer) -> Self:
        """Convert an `nn.TransformerEncoderLayer`, with its weights.

        Errors: a TypeError for another module.

        >>> EncoderBlock.from_torch(nn.TransformerEncoderLayer(6, 2, 24)).attention.num_heads
        2
        """
        from glasshead.layers.torch_weights import load_encoder_block

        return load_encoder_block(cls, layer)


class DecoderBlock(nn.Module):
    """Decoder block: causal self-attention, cross-attention to the source, and feed-forward.

    Args:
        attention: The self-attention, which must be causal.
        cross_attention: The attention to the source.
        feed_forward: The feed-forward layer; None: the block is attention alone.
        residual: `PostNorm`, as in the texts, or `PreNorm`.
        norm: Makes a norm of a width: `nn.LayerNorm`, `nn.RMSNorm` or another.
        dropout: The probability that a number is dropped before it is added, in training only.

    Source: Vaswani et al. 2017, section 3.1.

    >>> import torch
    >>> import glasshead as gh
    >>> causal = gh.MultiHeadAttention(6, num_heads=2, attention=gh.Attention(mask=gh.causal()))
    >>> block = DecoderBlock(causal, gh.MultiHeadAttention(6, num_heads=3), gh.FeedForward(6, 24))
    >>> block(torch.rand(2, 5, 6), torch.rand(2, 7, 6)).shape
    torch.Size([2, 5, 6])
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        cross_attention: MultiHeadAttention,
        feed_forward: nn.Module | None,
        *,
        residual: type[PostNorm] = PostNorm,
        norm: Norm = nn.LayerNorm,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.cross_attention = cross_attention
        self.feed_forward = feed_forward
        self.around_attention = residual(norm(attention.d_model), dropout)
        self.around_cross_attention = residual(norm(attention.d_model), dropout)
        if feed_forward is not None:
            self.around_feed_forward = residual(norm(attention.d_model), dropout)

    def forward(
        self,
        x: Float[Tensor, "batch length d_model"],
        source: Float[Tensor, "batch source_length d_source"],
        *,
        mask: Mask | Tensor | None = None,
        source_mask: Mask | Tensor | None = None,
        cache: KeyValueCache | None = None,
        source_cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch length d_model"]:
        """Compute the new state of each position.

        Args:
            x: The words so far, or with a cache the new ones among them.
            source: The encoder's output.
            mask, cache: Of the self-attention.
            source_mask, source_cache: Of the cross-attention.
        """
        x = self.around_attention(x, partial(self.attention, mask=mask, cache=cache))
        crossed = partial(self.cross_attention, key=source, mask=source_mask, cache=source_cache)
        x = self.around_cross_attention(x, crossed)
        if self.feed_forward is None:
            return x
        return self.around_feed_forward(x, self.feed_forward)

    @classmethod
    def from_torch(cls, layer: nn.TransformerDecoderLayer) -> Self:
        """Convert an `nn.TransformerDecoderLayer`, with its weights, to a block with a causal mask.

        Errors: a TypeError for another module.

        >>> DecoderBlock.from_torch(nn.TransformerDecoderLayer(6, 2, 24)).attention.num_heads
        2
        """
        from glasshead.layers.torch_weights import load_decoder_block

        return load_decoder_block(cls, layer)
