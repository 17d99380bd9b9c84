"""Weights of PyTorch's attention and of the ladder's classes, read for layers of ours."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from glasshead import ladder
from glasshead.recipe.masks import Mask, causal

_Map = tuple[Tensor, Tensor | None]


@dataclass(frozen=True, eq=False)
class AttentionWeights:
    """The weights and settings of an attention module.

    Attributes:
        maps: Weight and bias of queries, keys and values, the heads' rows one below the other.
        output: Those of the output projection, if there is one.
        num_heads: The number of heads.
        mask: Of its attention.
        dropout: Of its attention.
    """

    maps: Sequence[_Map]
    output: _Map | None = None
    num_heads: int = 1
    mask: Mask | None = None
    dropout: float = 0.0


def read_attention(module: nn.Module) -> AttentionWeights:
    """Return the weights of PyTorch's multi-head attention, or of a class of the ladder.

    Errors: a TypeError for a module of another kind; a ValueError for a setting that has no
    counterpart here.
    """
    for kind, find in _FINDERS.items():
        if isinstance(module, kind):
            return find(module)
    raise TypeError(
        f"from_module takes nn.MultiheadAttention or a rung of the ladder, and got "
        f"{type(module).__name__}: copy its weights into a MultiHeadAttention by hand."
    )


def _of_torch(module: nn.MultiheadAttention) -> AttentionWeights:
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
    return AttentionWeights(
        maps=list(zip(weights, biases, strict=True)),
        output=(module.out_proj.weight, module.out_proj.bias),
        num_heads=module.num_heads,
        dropout=module.dropout,
    )


def _of_rung2(rung: ladder.SelfAttentionV1) -> AttentionWeights:
    return AttentionWeights(maps=[(W.T, None) for W in (rung.W_query, rung.W_key, rung.W_value)])


def _of_rung3(rung: ladder.SelfAttentionV2) -> AttentionWeights:
    return AttentionWeights(maps=_linears(rung.W_query, rung.W_key, rung.W_value))


def _of_rung4(rung: ladder.CausalAttention | ladder.MultiHeadAttention) -> AttentionWeights:
    maps = _linears(rung.W_query, rung.W_key, rung.W_value)
    return AttentionWeights(maps=maps, mask=causal(), dropout=rung.dropout.p)


def _of_rung5(rung: ladder.MultiHeadAttentionWrapper) -> AttentionWeights:
    heads = [_of_rung4(cast("ladder.CausalAttention", head)) for head in rung.heads]
    maps = []
    for one in zip(*(head.maps for head in heads), strict=True):
        weights, biases = zip(*one, strict=True)
        maps.append((torch.cat(weights), None if biases[0] is None else torch.cat(biases)))
    return replace(heads[0], maps=maps, num_heads=len(heads))


def _of_rung6(rung: ladder.MultiHeadAttention) -> AttentionWeights:
    (output,) = _linears(rung.out_proj)
    return replace(_of_rung4(rung), output=output, num_heads=rung.num_heads)


def _of_rung7(rung: ladder.EncoderMultiHeadAttention) -> AttentionWeights:
    (output,) = _linears(rung.W_h)
    return AttentionWeights(
        maps=_linears(rung.W_q, rung.W_k, rung.W_v),
        output=output,
        num_heads=rung.num_heads,
        dropout=rung.dropout.p,
    )


_FINDERS: dict[type[nn.Module], Callable[..., AttentionWeights]] = {
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


def copied_linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """Return a linear layer with copies of a weight and a bias."""
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None).to(weight)
    copy_into(linear.weight, weight)
    copy_into(linear.bias, bias)
    return linear


def copy_into(to: Tensor | None, of: Tensor | None) -> None:
    """Copy one tensor into another, where both are there."""
    if to is not None and of is not None:
        with torch.no_grad():
            to.copy_(of)
