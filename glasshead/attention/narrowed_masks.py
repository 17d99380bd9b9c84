"""The part of a mask that one head of one batch row reads."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from jaxtyping import Bool
from torch import Tensor

from glasshead.attention.place import Place
from glasshead.recipe.masks import Band, Mask
from glasshead.recipe.masks.base import AllOf, AnyOf, Not
from glasshead.recipe.masks.kinds import Dense, Documents, Keys, KeysBelow
from glasshead.recipe.problem import visible_pairs
from glasshead.recipe.tile import Tile


@dataclass(frozen=True, eq=False, repr=False)
class OfHead(Mask):
    """A mask of a user's own, asked for every head and every batch row, of which one is taken."""

    whole: Mask
    place: Place

    def visible(self, tile: Tile) -> Bool[Tensor, "#queries #keys"]:
        return self.place.of_scores(visible_pairs(self.whole, self.place.whole(tile)))

    def key_range(self, tile: Tile) -> range:
        return self.whole.key_range(self.place.whole(tile))

    def __repr__(self) -> str:
        return repr(self.whole)


def narrowed_mask(mask: Mask, place: Place) -> Mask:
    """The mask that says of one head, without batch and heads, what this one says of it.

    >>> import torch
    >>> import glasshead as gh
    >>> x = torch.randn(2, 3, 5, 7)
    >>> place = Place(gh.Attention().problem(x, x, x), (1,), 2)
    >>> narrowed_mask(gh.causal() & gh.padding([5, 4]), place)
    causal() & padding(4)
    """
    narrow = _NARROW.get(type(mask), OfHead)
    return narrow(mask, place)


def _several(mask: AllOf | AnyOf, place: Place) -> Mask:
    return type(mask)(tuple(narrowed_mask(one, place) for one in mask.masks))


def _band(mask: Band, place: Place) -> Mask:
    return replace(mask, offset=None if mask.offset is None else place.in_row(mask.offset))


# A subclass may say something else, and is asked as it is.
_NARROW: dict[type, Callable[[Any, Place], Mask]] = {
    AllOf: _several,
    AnyOf: _several,
    Band: _band,
    Dense: lambda mask, place: Dense(place.of_given(mask.tensor)),
    Documents: lambda mask, place: Documents(place.of_row(mask.ids, axes=1)),
    Keys: lambda mask, place: Keys(place.of_row(mask.tensor, axes=1)),
    KeysBelow: lambda mask, place: replace(mask, lengths=place.of_row(mask.lengths)),
    Not: lambda mask, place: Not(narrowed_mask(mask.mask, place)),
}
