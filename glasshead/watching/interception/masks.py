"""Mask tensors of other libraries, converted to masks and biases."""

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from glasshead.recipe.masks import Mask, dense
from glasshead.recipe.tile import Tile


class ConvertedMask(NamedTuple):
    """The mask and bias of a mask tensor.

    Attributes:
        mask: The mask; None: all pairs are visible.
        bias: A tensor to add to the scores; None: no bias.
        visible: The mask as a boolean tensor, broadcastable to `[batch, heads, queries, keys]`.
    """

    mask: Mask | None
    bias: Tensor | None
    visible: Bool[Tensor, "..."] | None


class MaskReader:
    """Converts mask tensors, once for all layers that get the same few."""

    def __init__(self) -> None:
        # The last conversions: the tensor, a copy of its values, and the result.
        self.last: list[tuple[weakref.ref[Tensor], Tensor, ConvertedMask]] = []

    def read(self, tensor: Tensor | None) -> ConvertedMask:
        """Convert a mask tensor: boolean, True = may attend, or additive.

        Of an additive mask, -inf hides a pair, and so does a value near the lowest of the dtype,
        which libraries use instead; other values are a bias.

        A tensor with the same values as before is not converted again. The values are compared, as
        a model may write to its mask through `.data`, which leaves its version unchanged.
        """
        if tensor is None:
            return ConvertedMask(None, None, None)
        given = tensor.detach()
        if given.dtype == torch.bool:
            return ConvertedMask(dense(given), None, given)
        for known, numbers, read in self.last:
            if known() is tensor and numbers.shape == given.shape and torch.equal(numbers, given):
                return read
        read = _read(given)
        others = [one for one in self.last if one[0]() is not tensor]
        self.last[:] = [(weakref.ref(tensor, self._forget_one), given.clone(), read), *others[:3]]
        return read

    def forget(self) -> None:
        """Drop all conversions."""
        self.last.clear()

    def _forget_one(self, gone: "weakref.ref[Tensor]") -> None:
        """Drop the conversion of a tensor that has been freed."""
        self.last[:] = [one for one in self.last if one[0] is not gone]


def _read(tensor: Tensor) -> ConvertedMask:
    # Half of it, as the lowest number of bfloat16 may have been cast to float32.
    hidden = tensor <= torch.finfo(tensor.dtype).min / 2
    bias = tensor.masked_fill(hidden, 0.0)
    visible = ~hidden
    return ConvertedMask(
        None if bool(visible.all()) else dense(visible), bias if bool(bias.any()) else None, visible
    )


Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False, repr=False)
class RuleMask(Mask):
    """A mask in which pair (i, j) is visible where rule(batch, head, i, j) is true, for all heads.

    Attributes:
        rule: The `mask_mod` of a BlockMask.
        batch: The batch size.

    Source: Dong et al. 2024 (FlexAttention), section 3.
    """

    rule: Rule
    batch: int

    def visible(self, tile: Tile) -> Bool[Tensor, "batch 1 queries keys"]:
        rows = torch.arange(tile.queries.start, tile.queries.stop, device=tile.device)
        batch = torch.arange(self.batch, device=tile.device)
        head = torch.zeros((), dtype=torch.int64, device=tile.device)
        seen = self.rule(batch[:, None, None], head, rows[:, None], tile.columns())
        return seen.expand(self.batch, *tile.shape)[:, None]

    def __repr__(self) -> str:
        return f"RuleMask({getattr(self.rule, '__name__', self.rule)})"
