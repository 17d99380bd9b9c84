"""The mask of several documents packed into one sequence."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from glasshead.recipe.checks import check_covers
from glasshead.recipe.masks.mask import Mask, hull, nothing
from glasshead.recipe.numbers import whole_numbers
from glasshead.recipe.tile import Tile


@dataclass(frozen=True, eq=False, repr=False)
class Documents(Mask):
    """Key j is visible to query i when the key at i + offset and key j have the same id."""

    ids: Int[Tensor, "*batch keys"]

    def visible(self, tile: Tile) -> Bool[Tensor, "*leading #queries #keys"]:
        inside, own = self._own_ids(tile)
        ids = self.ids.to(tile.device)[..., None, None, tile.keys.start : tile.keys.stop]
        return (inside & (own == ids.transpose(-1, -2))).transpose(-1, -2)

    def _own_ids(self, tile: Tile) -> tuple[Tensor, Tensor]:
        """Whether each query stands on a key, and that key's id: `[*#batch, 1, 1, queries]`."""
        ids = self.ids.to(tile.device)[..., None, None, :]
        positions = tile.positions().transpose(-1, -2)
        positions = positions if positions.ndim > 2 else positions[None]
        inside = (positions >= 0) & (positions < ids.shape[-1])
        leading = torch.broadcast_shapes(ids.shape[:-1], positions.shape[:-1])
        clamped = positions.clamp(0, max(ids.shape[-1] - 1, 0)).expand(*leading, -1)
        return inside, ids.expand(*leading, -1).gather(-1, clamped)

    def key_range(self, tile: Tile) -> range:
        inside, own = self._own_ids(tile)
        ids = self.ids.to(tile.device)[..., None, tile.keys.start : tile.keys.stop]
        ids, own, inside = (x.flatten(0, -2) for x in (ids, own, inside))
        rows = torch.broadcast_shapes(ids.shape[:1], own.shape[:1], inside.shape[:1])[0]
        ids, own, inside = (x.expand(rows, -1) for x in (ids, own, inside))
        seen = [torch.isin(ids[r], own[r][inside[r]]) for r in range(rows)]
        return hull(torch.stack(seen).any(0), tile) if seen else nothing(tile)

    def check(self, tile: Tile, scores: tuple[int, ...]) -> None:
        del tile
        expected = (*scores[:-3], scores[-1])
        if not self.ids.ndim or self.ids.shape[-1] != scores[-1]:
            raise ValueError(
                f"documents(ids) takes one number a key, {list(expected)}, "
                f"and got {list(self.ids.shape)}."
            )
        check_covers("documents(ids), one number a key,", self.ids.shape, expected)

    def __repr__(self) -> str:
        return f"documents(tensor{list(self.ids.shape)})"


def documents(ids: Sequence[int] | Int[Tensor, "*batch keys"]) -> Mask:
    """Documents packed into one sequence do not see each other.

    Args:
        ids: The document of each key, `[*batch, keys]`. A query belongs to the document of the
            key at its own position, i + offset; one that stands outside the keys sees nothing.

    Errors: a TypeError where the ids are not whole numbers, a ValueError at the call where they
    are not one a key.

    Source: Krell et al. 2021 (Efficient sequence packing without cross-contamination), section 3.2.

    >>> import glasshead as gh
    >>> print((gh.documents([0, 0, 1, 1, 1]) & gh.causal()).picture(queries=5, keys=5))
    ■····
    ■■···
    ··■··
    ··■■·
    ··■■■
    """
    return Documents(whole_numbers(ids, "documents(ids)"))
