"""The mask that is written out, pair by pair."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from glasshead.recipe.checks import check_covers
from glasshead.recipe.masks.mask import Mask, hull, nothing
from glasshead.recipe.tile import Tile, three_axes


@dataclass(frozen=True, eq=False, repr=False)
class Dense(Mask):
    """Pair (i, j) is visible where the tensor, in the layout of the caller's scores, is True."""

    tensor: Bool[Tensor, "..."]

    def visible(self, tile: Tile) -> Bool[Tensor, "*leading #queries #keys"]:
        return tile.cut(self.tensor)

    def key_range(self, tile: Tile) -> range:
        if 0 in tile.shape:
            return nothing(tile)
        seen = three_axes(self.visible(tile)).flatten(0, -2).any(0)
        return hull(seen.expand(tile.shape[1]), tile)

    def check(self, tile: Tile, scores: tuple[int, ...]) -> None:
        layout = scores if tile.headed else (*scores[:-3], *scores[-2:])
        check_covers("dense(tensor)", self.tensor.shape, layout)

    def __repr__(self) -> str:
        return f"dense(tensor{list(self.tensor.shape)})"


def dense(tensor: Bool[Tensor, "..."]) -> Mask:
    """A mask given pair by pair: True = may attend, as in SDPA, ONNX and Keras.

    Args:
        tensor: Broadcasts, from the right, to the scores in the caller's own layout:
            `[..., heads, queries, keys]`, or `[batch, queries, keys]` for inputs of three axes.

    Errors: a TypeError for anything but a boolean tensor, a ValueError at the call where it does
    not broadcast.

    >>> print(dense(torch.tensor([[True, False], [True, True]])).picture(queries=2, keys=2))
    ■·
    ■■
    """
    return Dense(_boolean(tensor))


def _boolean(tensor: Any) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"dense(tensor) takes a boolean tensor, and got {type(tensor).__name__}.")
    if tensor.is_floating_point():
        raise TypeError(
            f"dense(tensor) takes a boolean tensor, and got {tensor.dtype}: "
            "a float mask is a bias, pass it as bias=, or convert it with from_additive(tensor)."
        )
    if tensor.dtype != torch.bool:
        raise TypeError(
            f"dense(tensor) takes a boolean tensor, True = may attend, and got {tensor.dtype}: "
            "convert it with .bool() if 1 means visible."
        )
    return tensor


def as_mask(mask: Any) -> Mask | None:
    """What a caller gives as `mask=`: a mask, a boolean tensor, or None."""
    if mask is None or isinstance(mask, Mask):
        return mask
    if isinstance(mask, Tensor):
        return dense(mask)
    raise TypeError(
        f"mask= takes a mask such as causal() or a boolean tensor, and got {type(mask).__name__}."
    )
