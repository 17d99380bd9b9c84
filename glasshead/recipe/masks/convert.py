"""Masks of other libraries, converted to a mask and a bias."""

from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from glasshead.recipe.masks.base import Mask, combined
from glasshead.recipe.masks.kinds import Keys, dense
from glasshead.recipe.validation import whole_number

MaskAndBias = tuple[Mask | None, Tensor | None]


def from_additive(tensor: Float[Tensor, "..."]) -> MaskAndBias:
    """Convert an additive float mask: -inf hides, finite numbers are added to the scores.

    Args:
        tensor: Broadcasts to the scores, as `dense` does.

    Returns:
        `(mask, bias)`; the bias is 0 where the mask hides.

    Errors: a TypeError for anything but a floating-point tensor.

    >>> mask, bias = from_additive(torch.tensor([[0.5, -torch.inf], [0.0, 0.0]]))
    >>> print(mask.picture(queries=2, keys=2))
    ■·
    ■■
    >>> bias
    tensor([[0.5000, 0.0000],
            [0.0000, 0.0000]])
    """
    return _split(tensor, -torch.inf, "from_additive(tensor)")


def from_huggingface(attention_mask: Shaped[Tensor, "..."]) -> MaskAndBias:
    """Convert a mask of Hugging Face transformers, in any of the three forms its models use.

    Args:
        attention_mask: The tokenizer's `[batch, keys]` of 1 (real) and 0 (padding), whichever side
            is padded; or the models' own `[batch, 1, queries, keys]`, boolean with True = may
            attend, or float, in which the lowest number of the dtype (or -inf) hides.

    Returns:
        `(mask, bias)`; the bias is None unless the mask was given in numbers. Of a tokenizer's
        mask, the result fits inputs of any layout.

    Errors: a ValueError for a shape of neither two nor four axes, or a `[batch, keys]` mask of
    anything but 0 and 1.

    >>> mask, bias = from_huggingface(torch.tensor([[0, 1, 1], [1, 1, 1]]))
    >>> print(mask.picture(queries=1, keys=3, index=0), bias)
    ·■■ None
    """
    name = "from_huggingface(attention_mask)"
    if not isinstance(attention_mask, Tensor) or attention_mask.ndim not in (2, 4):
        raise ValueError(
            f"{name} must be [batch, keys] or [batch, 1, queries, keys], got "
            f"{_described(attention_mask)}."
        )
    if attention_mask.ndim == 2:
        real = attention_mask == 1
        known = real | (attention_mask == 0)
        if not bool(known.all()):
            raise ValueError(
                f"{name} of shape [batch, keys] must contain only 1 (real) and 0 (padding), got "
                f"{attention_mask[~known][0].item()}."
            )
        return Keys(real), None
    if attention_mask.is_floating_point():
        return _split(attention_mask, torch.finfo(attention_mask.dtype).min, name)
    return dense(attention_mask), None


def from_torch_mha(
    attn_mask: Shaped[Tensor, "..."] | None = None,
    key_padding_mask: Shaped[Tensor, "*batch keys"] | None = None,
    *,
    num_heads: int | None = None,
) -> MaskAndBias:
    """Convert the masks of `torch.nn.MultiheadAttention`, whose booleans are inverted: True hides.

    Args:
        attn_mask: `[queries, keys]`, or `[batch * num_heads, queries, keys]`; boolean (True hides)
            or additive.
        key_padding_mask: `[keys]` or `[batch, keys]`; boolean (True hides) or additive.
        num_heads: Needed for an `attn_mask` of three axes, which lists every head of every row.

    Returns:
        `(mask, bias)`; the bias is None unless one of them was given in numbers. A boolean
        `key_padding_mask` fits inputs of any layout, the others those with heads.

    Errors: a ValueError if three axes come without `num_heads` or do not divide by it; a
    TypeError for a mask that is neither boolean nor floating-point.

    >>> hidden = torch.ones(3, 3, dtype=torch.bool).triu(1)
    >>> mask, bias = from_torch_mha(hidden)
    >>> print(mask.picture(queries=3, keys=3))
    ■··
    ■■·
    ■■■
    """
    masks, biases = [], []
    if attn_mask is not None:
        pairs = _by_head(_tensor(attn_mask, "from_torch_mha(attn_mask)"), num_heads)
        mask, bias = _opposite(pairs, "from_torch_mha(attn_mask)")
        masks.append(mask)
        biases.append(bias)
    if key_padding_mask is not None:
        mask, bias = _opposite_keys(_tensor(key_padding_mask, "from_torch_mha(key_padding_mask)"))
        masks.append(mask)
        biases.append(bias)
    present = [bias for bias in biases if bias is not None]
    return combined(masks), sum(present[1:], present[0]) if present else None


def _by_head(attn_mask: Tensor, num_heads: int | None) -> Tensor:
    if attn_mask.ndim != 3:
        return attn_mask
    if num_heads is None or attn_mask.shape[0] % whole_number(num_heads, "num_heads", least=1):
        raise ValueError(
            "from_torch_mha(attn_mask) of three axes must be [batch * num_heads, queries, keys] "
            f"and needs num_heads=, got shape {list(attn_mask.shape)} with num_heads={num_heads}."
        )
    return attn_mask.unflatten(0, (-1, num_heads))


def _opposite(tensor: Tensor, name: str) -> MaskAndBias:
    """Convert an `attn_mask` of torch, which hides where it is True, or by -inf."""
    if tensor.dtype == torch.bool:
        return dense(~tensor), None
    return _split(tensor, -torch.inf, name)


def _opposite_keys(tensor: Tensor) -> MaskAndBias:
    """Convert a `key_padding_mask` of torch, which hides keys where it is True, or by -inf."""
    if tensor.dtype == torch.bool:
        return Keys(~tensor), None
    return _opposite(tensor[..., None, None, :], "from_torch_mha(key_padding_mask)")


def _split(tensor: Any, hides: float, name: str) -> MaskAndBias:
    """Split an additive mask: numbers up to `hides` become a mask, the others a bias."""
    if not _tensor(tensor, name).is_floating_point():
        raise TypeError(
            f"{name} must be a floating-point tensor, got {_described(tensor)}. A boolean one, "
            "True = may attend, goes to dense(tensor)."
        )
    hidden = tensor <= hides
    return dense(~hidden), tensor.masked_fill(hidden, 0.0)


def _tensor(value: Any, name: str) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor, got {_described(value)}.")
    return value


def _described(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {list(value.shape)}"
    return type(value).__name__
