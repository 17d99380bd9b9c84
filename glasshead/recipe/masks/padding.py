"""The mask of batches whose rows are of unequal lengths."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from glasshead.recipe.checks import check_covers
from glasshead.recipe.masks.mask import Mask, nothing
from glasshead.recipe.masks.ranges import Intervals, within
from glasshead.recipe.numbers import whole_numbers
from glasshead.recipe.tile import Tile, per_batch


@dataclass(frozen=True, eq=False, repr=False)
class KeysBelow(Mask):
    """Key j is visible to every query of its batch row when j < length of that row."""

    name: str
    lengths: Int[Tensor, "*batch"]

    def visible(self, tile: Tile) -> Bool[Tensor, "*leading #queries #keys"]:
        return tile.columns()[None] < per_batch(self.lengths, tile.device)

    def key_range(self, tile: Tile) -> range:
        if 0 in (*tile.shape, self.lengths.numel()):
            return nothing(tile)
        stop = min(tile.keys.stop, max(tile.keys.start, int(self.lengths.max())))
        return range(tile.keys.start, stop)

    def intervals(self, tile: Tile) -> Intervals | None:
        stops = per_batch(self.lengths, tile.device)
        return within(tile, torch.full_like(stops, tile.keys.start, dtype=torch.int64), stops)

    def check(self, tile: Tile, scores: tuple[int, ...]) -> None:
        del tile
        check_covers(f"{self.name}(…), one number a batch row,", self.lengths.shape, scores[:-3])

    def __repr__(self) -> str:
        shape = list(self.lengths.shape)
        return f"{self.name}({f'tensor{shape}' if shape else self.lengths.item()})"


def padding(lengths: int | Sequence[int] | Int[Tensor, "*batch"]) -> Mask:
    """Hide what pads short rows: key j of batch row b is visible when j < lengths[b].

    Args:
        lengths: How many keys of each batch row are real, `[*batch]`.

    Errors: a TypeError where the lengths are not whole numbers, a ValueError at the call where
    their shape is not the batch's.

    >>> print(padding([3, 1]).picture(queries=2, keys=4, index=0))
    ■■■·
    ■■■·
    >>> print(padding([3, 1]).picture(queries=2, keys=4, index=1))
    ■···
    ■···
    """
    return KeysBelow("padding", whole_numbers(lengths, "padding(lengths)"))


def prefix(length: int | Sequence[int] | Int[Tensor, "*batch"]) -> Mask:
    """Every query sees the first `length` keys; `causal() | prefix(length)` is a prefix model.

    Args:
        length: How many keys belong to the prefix, a number or one per batch row, `[*batch]`.

    Source: Raffel et al. 2020 (T5), section 3.2.1, "causal with prefix".

    >>> import glasshead as gh
    >>> print((gh.causal() | gh.prefix(2)).picture(queries=4, keys=4))
    ■■··
    ■■··
    ■■■·
    ■■■■
    """
    return KeysBelow("prefix", whole_numbers(length, "prefix(length)"))
