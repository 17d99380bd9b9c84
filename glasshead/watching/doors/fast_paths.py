"""Fast paths of PyTorch's own layers: whole blocks as one operator, met by its arguments.

Switching them off would give the same attention and other bits, so that they run as they are, and
queries and keys are computed beside them.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from glasshead.recipe.masks import Mask, combined, dense
from glasshead.watching.doors.packed import filled, within
from glasshead.watching.met import Met, stated

# How the operators number a mask that is of keys, not of pairs.
_KEYS = 1


def met_encoder_layer(
    src: Tensor,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    *,
    mask: Tensor | None = None,
    mask_type: int | None = None,
    **others: Any,
) -> Met:
    """`nn.TransformerEncoderLayer`, evaluated without gradients: an operator from end to end."""
    src, texts = _filled(src)
    if others["norm_first"]:
        weight, bias = others["norm_weight_1"], others["norm_bias_1"]
        src = F.layer_norm(src, src.shape[-1:], weight, bias, others["eps"])
    return _met(src, num_heads, qkv_weight, qkv_bias, combined([texts, _mask(mask, mask_type)]))


def met_native_multi_head(
    query: Tensor,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    *,
    mask: Tensor | None = None,
    mask_type: int | None = None,
    **others: Any,
) -> Met:
    """`nn.MultiheadAttention` of a text to itself, evaluated without gradients."""
    del others
    query, texts = _filled(query)
    return _met(query, num_head, qkv_weight, qkv_bias, combined([texts, _mask(mask, mask_type)]))


FAST_PATHS: dict[Any, Callable[..., Met]] = {
    torch.ops.aten._transformer_encoder_layer_fwd.default: met_encoder_layer,  # noqa: SLF001
    torch.ops.aten._native_multi_head_attention.default: met_native_multi_head,  # noqa: SLF001
}


def _met(x: Tensor, num_heads: int, qkv_weight: Tensor, qkv_bias: Tensor, mask: Mask | None) -> Met:
    width = qkv_weight.shape[1]
    projected = F.linear(x, qkv_weight[: 2 * width], qkv_bias[: 2 * width])
    query, key = (
        part.unflatten(-1, (num_heads, -1)).transpose(1, 2) for part in projected.chunk(2, -1)
    )
    return Met(stated(query, key, key, scale=None, offset=0, mask=mask))


def _filled(x: Tensor) -> tuple[Tensor, Mask | None]:
    """Texts of one length, and which is which where the encoder has packed them."""
    if not x.is_nested:
        return x, None
    x, lengths = filled(x)
    return x, within(lengths, lengths)


def _mask(mask: Tensor | None, kind: int | None) -> Mask | None:
    """A mask of these operators, which hide what is not 0."""
    if mask is None:
        return None
    visible = ~mask.bool()
    return dense(visible[:, None, None, :] if kind == _KEYS else visible)
