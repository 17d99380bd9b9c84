"""The mask that is written out, key by key."""

from dataclasses import dataclass

from jaxtyping import Bool
from torch import Tensor

from glasshead.recipe.checks import check_covers
from glasshead.recipe.masks.mask import Mask, hull
from glasshead.recipe.masks.ranges import Intervals, of_shown, unread
from glasshead.recipe.tile import Tile


@dataclass(frozen=True, eq=False, repr=False)
class Keys(Mask):
    """Key j is visible to every query of its batch row where the tensor is True."""

    tensor: Bool[Tensor, "*batch keys"]

    def visible(self, tile: Tile) -> Bool[Tensor, "*leading #queries #keys"]:
        shown = self.tensor.to(tile.device)
        if shown.shape[-1] != 1:
            shown = shown[..., tile.keys.start : tile.keys.stop]
        return shown[..., None, None, :]

    def key_range(self, tile: Tile) -> range:
        shown = self.visible(tile).flatten(0, -2).any(0)
        return hull(shown.expand(tile.shape[1]), tile)

    def intervals(self, tile: Tile) -> Intervals | None:
        if unread(tile):
            return None
        shown = self.visible(tile)[..., 0, 0, :]
        return of_shown(shown.expand(*shown.shape[:-1], tile.shape[1]), tile)

    def check(self, tile: Tile, scores: tuple[int, ...]) -> None:
        del tile
        expected = (*scores[:-3], scores[-1])
        check_covers("a mask of keys, one boolean a key,", self.tensor.shape, expected)

    def __repr__(self) -> str:
        return f"keys(tensor{list(self.tensor.shape)})"
