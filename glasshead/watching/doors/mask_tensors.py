"""Mask tensors of other libraries, made a mask and a bias once for all layers that share one."""

import weakref
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from glasshead.recipe.masks import Mask, dense


class Read(NamedTuple):
    """What a mask tensor says.

    Attributes:
        mask: Which pairs are visible; None: all.
        bias: What is added to the scores; None: nothing.
        visible: The mask as a tensor, that broadcasts to `[batch, heads, queries, keys]`.
    """

    mask: Mask | None
    bias: Tensor | None
    visible: Bool[Tensor, "..."] | None


_NOTHING = Read(None, None, None)
# What was read last, as the layers of a model are given one tensor after another.
_last: list[tuple["weakref.ref[Tensor]", int, Read]] = []


def read_mask(tensor: Tensor | None) -> Read:
    """A mask that is boolean, True = may attend, or is added to the scores.

    Of numbers, -inf hides and so does what is near the lowest of their type, which libraries write
    for it; others are a bias.
    """
    if tensor is None:
        return _NOTHING
    if tensor.is_inference():
        # It has no version, and may have been written to since.
        return _read(tensor)
    version = tensor._version  # noqa: SLF001 - it has no other name
    for known, known_version, read in _last:
        if known() is tensor and known_version == version:
            return read
    read = _read(tensor.detach())
    _last[:] = [(weakref.ref(tensor, _forget), version, read), *_last[:3]]
    return read


def forget_masks() -> None:
    """Let go of everything that was read, as masks may be written to while nobody watches."""
    _last.clear()


def _forget(gone: "weakref.ref[Tensor]") -> None:
    """Let go of what was read of a tensor that nobody has any more."""
    _last[:] = [one for one in _last if one[0] is not gone]


def _read(tensor: Tensor) -> Read:
    if tensor.dtype == torch.bool:
        return Read(dense(tensor), None, tensor)
    # Half of it, as the lowest number of bfloat16 may have become one of float32.
    hidden = tensor <= torch.finfo(tensor.dtype).min / 2
    bias = tensor.masked_fill(hidden, 0.0)
    visible = ~hidden
    return Read(
        None if bool(visible.all()) else dense(visible), bias if bool(bias.any()) else None, visible
    )
