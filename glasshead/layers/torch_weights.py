"""Conversion of PyTorch's attention layers, and of the ladder's, with their weights."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from glasshead import ladder
from glasshead.attention import Attention
from glasshead.layers.blocks import DecoderBlock, EncoderBlock, PostNorm, PreNorm
from glasshead.layers.feed_forward import FeedForward
from glasshead.layers.multi_head_attention import MultiHeadAttention
from glasshead.recipe.masks import Mask, causal
from glasshead.recipe.masks.base import combined

_Map = tuple[Tensor, Tensor | None]
_Layer = nn.TransformerEncoderLayer | nn.TransformerDecoderLayer
_Attention = TypeVar("_Attention", bound=MultiHeadAttention)
_Encoder = TypeVar("_Encoder", bound=EncoderBlock)
_Decoder = TypeVar("_Decoder", bound=DecoderBlock)


@dataclass(frozen=True, eq=False)
class _Found:
    """Weights and settings of a converted module.

    Attributes:
        maps: Weight and bias of queries, keys and values, the heads' rows one below the other.
        output: Those of the output projection, if there is one.
        num_heads: The number of heads.
        mask: The rule's.
        dropout: The rule's.
    """

    maps: Sequence[_Map]
    output: _Map | None = None
    num_heads: int = 1
    mask: Mask | None = None
    dropout: float = 0.0


def load_attention(
    kind: type[_Attention], module: nn.Module, *, mask: Mask | None = None
) -> _Attention:
    """Build a `MultiHeadAttention` equivalent to `module`; `mask` is and-ed with its own.

    Errors: a TypeError for a module of another kind; a ValueError for a setting that there is none
    of here.
    """
    found = _found(module)
    weights = [weight for weight, _ in found.maps]
    rows = len(weights[0])
    layer = kind(
        d_model=rows if found.output is None else len(found.output[0]),
        num_heads=found.num_heads,
        head_dim=rows // found.num_heads,
        d_input=(weights[0].shape[1], weights[1].shape[1], weights[2].shape[1]),
        attention=Attention(mask=combined([found.mask, mask]), dropout=found.dropout),
        bias=found.maps[0][1] is not None,
    )
    layer.to(weights[0])
    layer.output = nn.Identity() if found.output is None else _linear(*found.output)
    for mine, theirs in zip(layer.projections.maps(), found.maps, strict=True):
        for to, of in zip(mine, theirs, strict=True):
            _copy(to, of)
    return layer.train(module.training)


def load_encoder_block(kind: type[_Encoder], layer: nn.TransformerEncoderLayer) -> _Encoder:
    """Build an `EncoderBlock` equivalent to an `nn.TransformerEncoderLayer`."""
    _check_is(layer, nn.TransformerEncoderLayer)
    block = kind(
        load_attention(MultiHeadAttention, _attention(layer, "self_attn")), **_around(layer)
    )
    _copy_norms(layer, block.around_attention, block.around_feed_forward)
    return block.train(layer.training)


def load_decoder_block(kind: type[_Decoder], layer: nn.TransformerDecoderLayer) -> _Decoder:
    """Build a `DecoderBlock` equivalent to an `nn.TransformerDecoderLayer` with a causal mask."""
    _check_is(layer, nn.TransformerDecoderLayer)
    block = kind(
        load_attention(MultiHeadAttention, _attention(layer, "self_attn"), mask=causal()),
        load_attention(MultiHeadAttention, _attention(layer, "multihead_attn")),
        **_around(layer),
    )
    _copy_norms(
        layer, block.around_attention, block.around_cross_attention, block.around_feed_forward
    )
    return block.train(layer.training)


def _found(module: nn.Module) -> _Found:
    for kind, find in _FINDERS.items():
        if isinstance(module, kind):
            return find(module)
    raise TypeError(
        f"from_module takes nn.MultiheadAttention or a rung of the ladder, and got "
        f"{type(module).__name__}: copy its weights into a MultiHeadAttention by hand."
    )


def _of_torch(module: nn.MultiheadAttention) -> _Found:
    if module.bias_k is not None or module.add_zero_attn:
        raise ValueError(
            "from_module takes an nn.MultiheadAttention without add_bias_kv and add_zero_attn, "
            "which add keys of their own: build it without."
        )
    if module.in_proj_weight is None:
        weights = module.q_proj_weight, module.k_proj_weight, module.v_proj_weight
    else:
        weights = module.in_proj_weight.chunk(3)
    biases = (None,) * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    return _Found(
        maps=list(zip(weights, biases, strict=True)),
        output=(module.out_proj.weight, module.out_proj.bias),
        num_heads=module.num_heads,
        dropout=module.dropout,
    )


def _of_rung2(rung: ladder.SelfAttentionV1) -> _Found:
    return _Found(maps=[(W.T, None) for W in (rung.W_query, rung.W_key, rung.W_value)])


def _of_rung3(rung: ladder.SelfAttentionV2) -> _Found:
    return _Found(maps=_linears(rung.W_query, rung.W_key, rung.W_value))


def _of_rung4(rung: ladder.CausalAttention) -> _Found:
    maps = _linears(rung.W_query, rung.W_key, rung.W_value)
    return _Found(maps=maps, mask=causal(), dropout=rung.dropout.p)


def _of_rung5(rung: ladder.MultiHeadAttentionWrapper) -> _Found:
    heads = [_of_rung4(cast("ladder.CausalAttention", head)) for head in rung.heads]
    maps = []
    for one in zip(*(head.maps for head in heads), strict=True):
        weights, biases = zip(*one, strict=True)
        maps.append((torch.cat(weights), None if biases[0] is None else torch.cat(biases)))
    return _Found(maps=maps, num_heads=len(heads), mask=causal(), dropout=heads[0].dropout)


def _of_rung6(rung: ladder.MultiHeadAttention) -> _Found:
    return _Found(
        maps=_linears(rung.W_query, rung.W_key, rung.W_value),
        output=(rung.out_proj.weight, rung.out_proj.bias),
        num_heads=rung.num_heads,
        mask=causal(),
        dropout=rung.dropout.p,
    )


def _of_rung7(rung: ladder.EncoderMultiHeadAttention) -> _Found:
    return _Found(
        maps=_linears(rung.W_q, rung.W_k, rung.W_v),
        output=(rung.W_h.weight, rung.W_h.bias),
        num_heads=rung.num_heads,
        dropout=rung.dropout.p,
    )


_FINDERS: dict[type[nn.Module], Callable[..., _Found]] = {
    nn.MultiheadAttention: _of_torch,
    ladder.SelfAttentionV1: _of_rung2,
    ladder.SelfAttentionV2: _of_rung3,
    ladder.CausalAttention: _of_rung4,
    ladder.MultiHeadAttentionWrapper: _of_rung5,
    ladder.MultiHeadAttention: _of_rung6,
    ladder.EncoderMultiHeadAttention: _of_rung7,
}


def _linears(*linears: nn.Linear) -> Sequence[_Map]:
    return [(linear.weight, linear.bias) for linear in linears]


def _around(layer: _Layer) -> dict[str, Any]:
    """Return the arguments of a block beside its attentions."""
    feed_forward = FeedForward(
        layer.linear1.in_features,
        layer.linear1.out_features,
        activation=layer.activation,
        dropout=layer.dropout.p,
    )
    feed_forward.hidden = _linear(layer.linear1.weight, layer.linear1.bias)
    feed_forward.output = _linear(layer.linear2.weight, layer.linear2.bias)
    return {
        "feed_forward": feed_forward,
        "residual": PreNorm if layer.norm_first else PostNorm,
        "dropout": layer.dropout1.p,
    }


def _copy_norms(layer: _Layer, *around: PostNorm) -> None:
    for number, residual in enumerate(around, 1):
        residual.norm = deepcopy(getattr(layer, f"norm{number}")).requires_grad_()


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None).to(weight)
    _copy(linear.weight, weight)
    _copy(linear.bias, bias)
    return linear


def _copy(to: Tensor | None, of: Tensor | None) -> None:
    if to is not None and of is not None:
        with torch.no_grad():
            to.copy_(of)


def _attention(layer: _Layer, name: str) -> nn.MultiheadAttention:
    return cast("nn.MultiheadAttention", getattr(layer, name))


def _check_is(layer: nn.Module, kind: type[nn.Module]) -> None:
    if not isinstance(layer, kind):
        raise TypeError(f"from_torch takes nn.{kind.__name__}, and got {type(layer).__name__}.")
