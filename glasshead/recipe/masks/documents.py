"""The mask of documents that are packed into one sequence."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from glasshead.recipe.masks.base import Mask
from glasshead.recipe.part import Description, HeadIndex
from glasshead.recipe.tile import (
    Intervals,
    Tile,
    bounding_range,
    nothing,
    values_unavailable,
    within,
)
from glasshead.recipe.validation import check_covers, whole_numbers


@dataclass(frozen=True, eq=False, repr=False)
class Documents(Mask):
    """Document mask: visible when the keys at i + offset and j have equal ids."""

    ids: Int[Tensor, "*batch keys"]
    saved = ("ids",)

    def visible(self, tile: Tile) -> Bool[Tensor, "*leading #queries #keys"]:
        inside, (own,) = _at_own(tile, self.ids.to(tile.device))
        ids = self.ids.to(tile.device)[..., None, None, tile.keys.start : tile.keys.stop]
        return (inside & (own == ids.transpose(-1, -2))).transpose(-1, -2)

    def key_range(self, tile: Tile) -> range:
        if 0 in tile.shape:
            return nothing(tile)
        all_ids = self.ids.to(tile.device, torch.int64)
        inside, (own,) = _at_own(tile, all_ids)
        ids = all_ids[..., None, tile.keys.start : tile.keys.stop]
        ids, own, inside = (x.flatten(0, -2) for x in (ids, own, inside))
        rows = torch.broadcast_shapes(ids.shape[:1], own.shape[:1], inside.shape[:1])[0]
        ids, own, inside = (x.expand(rows, -1) for x in (ids, own, inside))
        # A query outside the keys has the id of the nearest key. If any query of its row is
        # inside, one is on that key, since queries are consecutive.
        own = own.sort(-1).values
        places = torch.searchsorted(own, ids.contiguous()).clamp(max=own.shape[-1] - 1)
        seen = (own.gather(-1, places) == ids) & inside.any(-1, keepdim=True)
        return bounding_range(seen.any(0), tile)

    def intervals(self, tile: Tile) -> Intervals | None:
        if values_unavailable(tile):
            return None
        ids = self.ids.to(tile.device)
        changes, ordered = _changes(ids), _changes(ids.sort(-1).values)
        # An id that occurs again later makes more runs than ids.
        if not torch.equal(changes.sum(-1), ordered.sum(-1)):
            return None
        inside, (starts, stops) = _at_own(tile, *_runs(changes))
        starts, stops = starts.masked_fill(~inside, 0), stops.masked_fill(~inside, 0)
        return within(tile, starts.transpose(-1, -2), stops.transpose(-1, -2))

    def check(self, tile: Tile, scores: tuple[int, ...]) -> None:
        expected = (*scores[:-3], scores[-1])
        if not self.ids.ndim or self.ids.shape[-1] != scores[-1]:
            raise ValueError(
                f"documents(ids) must have one number a key, {list(expected)}, got "
                f"{list(self.ids.shape)}."
            )
        check_covers("documents(ids), one number a key,", self.ids.shape, expected)

    def describe(self) -> Description:
        return Description(
            "The mask keeps documents apart: several texts stand in one row, and a word sees only "
            "its own."
        )

    def _of_head(self, place: HeadIndex) -> Mask:
        return Documents(place.of_row(self.ids, axes=1))

    def __repr__(self) -> str:
        return f"documents(tensor{list(self.ids.shape)})"


def documents(ids: Sequence[int] | Int[Tensor, "*batch keys"]) -> Mask:
    """Document mask: documents packed into one sequence do not attend to each other.

    Args:
        ids: The document of each key, `[*batch, keys]`. A query belongs to the document of the
            key at its own position, i + offset; one outside the keys sees nothing.

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


def _at_own(tile: Tile, *values: Shaped[Tensor, "*batch keys"]) -> tuple[Tensor, list[Tensor]]:
    """Gather values at each query's own key, and whether it has one: `[*#batch, 1, 1, queries]`."""
    positions = tile.positions().transpose(-1, -2)
    positions = positions if positions.ndim > 2 else positions[None]
    *batch, keys = values[0].shape
    inside = (positions >= 0) & (positions < keys)
    leading = torch.broadcast_shapes((*batch, 1, 1), positions.shape[:-1])
    if not keys:
        return inside, [value.new_zeros(()).expand(*leading, tile.shape[0]) for value in values]
    places = positions.clamp(0, keys - 1).expand(*leading, -1)
    return inside, [
        value[..., None, None, :].expand(*leading, -1).gather(-1, places) for value in values
    ]


def _changes(ids: Int[Tensor, "*batch keys"]) -> Bool[Tensor, "*batch keys"]:
    """Return whether a key is the last of its row, or followed by one of another id."""
    last = torch.ones_like(ids[..., :1], dtype=torch.bool)
    return torch.cat([ids[..., 1:] != ids[..., :-1], last], dim=-1)


def _runs(
    changes: Bool[Tensor, "*batch keys"],
) -> tuple[Int[Tensor, "*batch keys"], Int[Tensor, "*batch keys"]]:
    """Return the first key of each key's run, and the one after its last."""
    keys = changes.shape[-1]
    after = torch.arange(1, keys + 1, device=changes.device)
    stops = after.where(changes, keys).flip(-1).cummin(-1).values.flip(-1)
    starts = (after * changes).roll(1, -1)
    starts[..., :1] = 0
    return starts.cummax(-1).values, stops
