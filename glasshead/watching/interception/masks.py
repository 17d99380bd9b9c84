"""Mask tensors of other libraries, converted once for all layers that share one."""

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
    """What a mask tensor says.

    Attributes:
        mask: Which pairs are visible; None: all.
        bias: What is added to the scores; None: nothing.
        visible: The mask as a tensor, that broadcasts to `[batch, heads, queries, keys]`.
    """

    mask: Mask | None
    bias: Tensor | None
    visible: Bool[Tensor, "..."] | None


_NOTHING = ConvertedMask(None, None, None)
# What was read last, as the layers of a model are given one tensor after another: the tensor, a
# copy of the numbers that it had, and what they say.
_last: list[tuple["weakref.ref[Tensor]", Tensor, ConvertedMask]] = []


def read_mask(tensor: Tensor | None) -> ConvertedMask:
    """A mask that is boolean, True = may attend, or is added to the scores.

    Of numbers, -inf hides and so does what is near the lowest of their type, which libraries write
    for it; others are a bias.

    What a tensor said is known again where it still has the same numbers: a model may refill its
    mask, and its version does not tell of it where that goes through `.data`.
    """
    if tensor is None:
        return _NOTHING
    given = tensor.detach()
    if given.dtype == torch.bool:
        return ConvertedMask(dense(given), None, given)
    for known, numbers, read in _last:
        if known() is tensor and numbers.shape == given.shape and torch.equal(numbers, given):
            return read
    read = _read(given)
    others = [one for one in _last if one[0]() is not tensor]
    _last[:] = [(weakref.ref(tensor, _forget), given.clone(), read), *others[:3]]
    return read


def forget_masks() -> None:
    """Let go of everything that was read, as masks may be written to while nobody watches."""
    _last.clear()


def _forget(gone: "weakref.ref[Tensor]") -> None:
    """Let go of what was read of a tensor that nobody has any more."""
    _last[:] = [one for one in _last if one[0] is not gone]


def _read(tensor: Tensor) -> ConvertedMask:
    # Half of it, as the lowest number of bfloat16 may have become one of float32.
    hidden = tensor <= torch.finfo(tensor.dtype).min / 2
    bias = tensor.masked_fill(hidden, 0.0)
    visible = ~hidden
    return ConvertedMask(
        None if bool(visible.all()) else dense(visible), bias if bool(bias.any()) else None, visible
    )


Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False, repr=False)
class RuleMask(Mask):
    """Pair (i, j) is visible where rule(batch, head, i, j) says so, for every head alike.

    Attributes:
        rule: The `mask_mod` of a BlockMask.
        batch: How many rows of a batch it may tell apart.

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
