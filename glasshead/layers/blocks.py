"""Transformer blocks: feed-forward layers, residual connections, encoder and decoder."""

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any, Self, cast

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from glasshead.layers.layer_cache import KeyValueCache
from glasshead.layers.multi_head_attention import MultiHeadAttention, Projections
from glasshead.recipe.masks import Mask, causal


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

    It is the "1-D convolution" of some tutorials: a convolution whose kernel is one position wide
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
        """Add to `x` its `update` by the sublayer."""
        return x + self.update(x, sublayer)

    def update(
        self, x: Float[Tensor, "*batch d_model"], sublayer: Sublayer
    ) -> Float[Tensor, "*batch d_model"]:
        """Compute the output of the sublayer on the normalized `x`."""
        return self.dropout(sublayer(self.norm(x)))


class ResPostNorm(PreNorm):
    """Residual of a normalized output: y = x + dropout(norm(sublayer(x))), as in OLMo 2.

    A model made of these has one more norm at its end.

    Args: as of `PostNorm`.

    Source: Liu et al. 2022 (Swin Transformer V2), section 3.2.

    >>> import torch
    >>> around = ResPostNorm(nn.LayerNorm(3, elementwise_affine=False))
    >>> around(torch.tensor([1.0, 2.0, 3.0]), lambda x: 5 * x)
    tensor([-0.2247,  2.0000,  4.2247])
    """

    def update(
        self, x: Float[Tensor, "*batch d_model"], sublayer: Sublayer
    ) -> Float[Tensor, "*batch d_model"]:
        """Compute the normalized output of the sublayer on `x`."""
        return self.dropout(self.norm(sublayer(x)))


class SandwichNorm(PreNorm):
    """Residual with two norms: y = x + dropout(after(sublayer(norm(x)))), as in Gemma 2.

    A model made of these has one more norm at its end.

    Args:
        norm, dropout: As of `PostNorm`.
        after: The norm of the sublayer's output; a copy of `norm` if not given.

    Source: Gemma Team 2024 (Gemma 2), section 2.

    >>> import torch
    >>> around = SandwichNorm(nn.LayerNorm(3, elementwise_affine=False))
    >>> around(torch.tensor([1.0, 2.0, 3.0]), lambda x: 5 * x)
    tensor([-0.2247,  2.0000,  4.2247])
    """

    def __init__(
        self, norm: nn.Module, dropout: float = 0.0, *, after: nn.Module | None = None
    ) -> None:
        super().__init__(norm, dropout)
        self.after = deepcopy(norm) if after is None else after

    def update(
        self, x: Float[Tensor, "*batch d_model"], sublayer: Sublayer
    ) -> Float[Tensor, "*batch d_model"]:
        """Compute the normalized output of the sublayer on the normalized `x`."""
        return self.dropout(self.after(sublayer(self.norm(x))))


Norm = Callable[[int], nn.Module]


class EncoderBlock(nn.Module):
    """Encoder block: self-attention and feed-forward, each with its residual and norm.

    With a causal attention it is the block of a language model.

    Args:
        attention: The self-attention.
        feed_forward: The feed-forward layer; None: the block is attention alone.
        residual: `PostNorm`, as in the tutorials, `PreNorm`, `ResPostNorm` or `SandwichNorm`.
        norm: Makes a norm of a width: `nn.LayerNorm`, `nn.RMSNorm` or another.
        dropout: The probability that a number is dropped before it is added, in training only.
        parallel: Whether attention and feed-forward read the same input, and their updates are
            added together; a residual other than `PostNorm` is needed then.

    Errors: a ValueError if a parallel block is given `PostNorm`.

    Source: Vaswani et al. 2017, section 3.1; parallel: Wang and Komatsuzaki 2021 (GPT-J), and
    Black et al. 2022 (GPT-NeoX-20B), section 2.1.

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
        parallel: bool = False,
    ) -> None:
        super().__init__()
        if parallel and not issubclass(residual, PreNorm):
            raise ValueError(
                "a parallel block needs a residual that adds updates, such as PreNorm, got "
                f"{residual.__name__}. Use another residual, or parallel=False."
            )
        self.attention = attention
        self.feed_forward = feed_forward
        self.parallel = parallel
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
        attended = self.around_attention(x, partial(self.attention, mask=mask, cache=cache))
        if self.feed_forward is None:
            return attended
        if self.parallel:
            around = cast("PreNorm", self.around_feed_forward)
            return attended + around.update(x, self.feed_forward)
        return self.around_feed_forward(attended, self.feed_forward)

    @classmethod
    def from_torch(cls, layer: nn.TransformerEncoderLayer) -> Self:
        """Copy `nn.TransformerEncoderLayer` with its weights.

        Errors: a TypeError for another module.

        >>> EncoderBlock.from_torch(nn.TransformerEncoderLayer(6, 2, 24)).attention.num_heads
        2
        """
        _check_is(layer, nn.TransformerEncoderLayer)
        block = cls(MultiHeadAttention.from_module(layer.self_attn), **_around(layer))
        _copy_norms(layer, block.around_attention, block.around_feed_forward)
        return block.train(layer.training)


class DecoderBlock(nn.Module):
    """Decoder block: causal self-attention, cross-attention to the source, and feed-forward.

    Args:
        attention: The self-attention, which must be causal.
        cross_attention: The attention to the source.
        feed_forward: The feed-forward layer; None: the block is attention alone.
        residual: `PostNorm`, as in the tutorials, or `PreNorm`.
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
        """Copy `nn.TransformerDecoderLayer` with its weights; its self-attention is causal.

        Errors: a TypeError for another module.

        >>> DecoderBlock.from_torch(nn.TransformerDecoderLayer(6, 2, 24)).attention.num_heads
        2
        """
        _check_is(layer, nn.TransformerDecoderLayer)
        block = cls(
            MultiHeadAttention.from_module(layer.self_attn, mask=causal()),
            MultiHeadAttention.from_module(layer.multihead_attn),
            **_around(layer),
        )
        _copy_norms(
            layer, block.around_attention, block.around_cross_attention, block.around_feed_forward
        )
        return block.train(layer.training)


_TorchLayer = nn.TransformerEncoderLayer | nn.TransformerDecoderLayer


def _around(layer: _TorchLayer) -> dict[str, Any]:
    """Return the arguments of a block beside its attentions, from a layer of PyTorch."""
    from glasshead.layers.torch_weights import copied_linear

    feed_forward = FeedForward(
        layer.linear1.in_features,
        layer.linear1.out_features,
        activation=layer.activation,
        dropout=layer.dropout.p,
    )
    feed_forward.hidden = copied_linear(layer.linear1.weight, layer.linear1.bias)
    feed_forward.output = copied_linear(layer.linear2.weight, layer.linear2.bias)
    return {
        "feed_forward": feed_forward,
        "residual": PreNorm if layer.norm_first else PostNorm,
        "dropout": layer.dropout1.p,
    }


def _copy_norms(layer: _TorchLayer, *around: PostNorm) -> None:
    for number, residual in enumerate(around, 1):
        residual.norm = deepcopy(getattr(layer, f"norm{number}")).requires_grad_()


def _check_is(layer: nn.Module, kind: type[nn.Module]) -> None:
    if not isinstance(layer, kind):
        raise TypeError(f"from_torch needs an nn.{kind.__name__}, got {type(layer).__name__}.")
