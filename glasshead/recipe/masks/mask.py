"""What every mask can do: answer for a tile, combine, and be looked at."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import ClassVar

from jaxtyping import Bool
from torch import Tensor

from glasshead.recipe.masks.picture import picture
from glasshead.recipe.masks.ranges import Intervals, complement, joined, met, unread
from glasshead.recipe.numbers import whole_number
from glasshead.recipe.tile import Tile


class Mask(ABC):
    """Which keys each query may see: True = may attend.

    A mask is a frozen value. It holds no device: its tensors follow the query's. Masks combine
    with `&` (seen by both), `|` (seen by either) and `~` (the opposite).

    >>> import glasshead as gh
    >>> mask = gh.causal() & gh.window(before=1)
    >>> print(mask.picture(queries=4, keys=4))
    ■···
    ■■··
    ·■■·
    ··■■
    """

    @abstractmethod
    def visible(self, tile: Tile) -> Bool[Tensor, "*leading #queries #keys"]:
        """Whether each pair of the tile is visible; axes along which nothing changes may be 1."""

    def key_range(self, tile: Tile) -> range:
        """The keys of the tile that any of its queries can see, without looking at each pair.

        The answer is a range that holds every visible key; between its ends some may be hidden.

        >>> import glasshead as gh
        >>> gh.window(before=9).key_range(gh.Tile(range(500, 600), range(100_000)))
        range(491, 600)
        """
        return range(tile.keys.start, tile.keys.stop)

    def intervals(self, tile: Tile) -> Intervals | None:
        """The keys that each query of the tile sees, where for all of them they are one range.

        None where they are not, or where that would have to be read from numbers that are not
        known yet: while torch.compile traces, and on the meta device.

        >>> import glasshead as gh
        >>> tile = gh.Tile(range(2), range(5), offset=3)
        >>> gh.causal().intervals(tile).stops
        tensor([[4],
                [5]])
        >>> (gh.window(before=0) | gh.prefix(1)).intervals(tile)  # a gap between the two
        """
        del tile

    def simplified(self, tile: Tile) -> "Mask | None":
        """The simplest mask that says the same of this tile, or None where nothing is hidden."""
        del tile
        return self

    def meet(self, other: "Mask") -> "Mask | None":
        """One mask that is this and the other, where that is as simple as either."""
        del other

    def check(self, tile: Tile, scores: tuple[int, ...]) -> None:  # noqa: B027 - most masks fit all
        """Raise a ValueError where this mask cannot cover scores `[*batch, heads, queries, keys]`.

        The tile is the whole problem's.
        """

    def picture(
        self, queries: int, keys: int, *, offset: int | None = None, index: int = 0, width: int = 72
    ) -> str:
        """The mask as text: ■ visible, · hidden, a line a query; long ones as shaded blocks.

        Args:
            queries, keys: The size of the matrix.
            offset: The position of query 0 among the keys; keys - queries if not given.
            index: The row of the batch, or head, where the mask differs between them.
            width: The most columns and lines that the picture may have.

        Errors: a ValueError where the mask is of another size, or has no such row.
        """
        queries, keys, width, index = (
            whole_number(value, f"picture({name})", least=least)
            for name, value, least in (
                ("queries", queries, 1),
                ("keys", keys, 1),
                ("width", width, 1),
                ("index", index, 0),
            )
        )
        tile = Tile(range(queries), range(keys), keys - queries if offset is None else offset)
        return picture(self.visible, tile, index, width)

    def __and__(self, other: "Mask") -> "Mask":
        if not isinstance(other, Mask):
            return NotImplemented
        return AllOf((*_members(self, AllOf), *_members(other, AllOf)))

    def __or__(self, other: "Mask") -> "Mask":
        if not isinstance(other, Mask):
            return NotImplemented
        return AnyOf((*_members(self, AnyOf), *_members(other, AnyOf)))

    def __invert__(self) -> "Mask":
        return Not(self)


def _members(mask: Mask, kind: "type[Several]") -> tuple[Mask, ...]:
    return mask.masks if isinstance(mask, kind) else (mask,)


@dataclass(frozen=True, eq=False, repr=False)
class Several(Mask):
    """Masks that are combined."""

    masks: tuple[Mask, ...]
    sign: ClassVar[str]

    def check(self, tile: Tile, scores: tuple[int, ...]) -> None:
        for mask in self.masks:
            mask.check(tile, scores)

    def _parts(self, tile: Tile) -> list[Intervals] | None:
        """The intervals of every mask, or None where one has none."""
        parts: list[Intervals] = []
        for mask in self.masks:
            part = mask.intervals(tile)
            if part is None:
                return None
            parts.append(part)
        return parts

    def __repr__(self) -> str:
        return f" {self.sign} ".join(_bracketed(mask) for mask in self.masks)


class AllOf(Several):
    """Visible where every one of `masks` is: `first & second`."""

    sign = "&"

    def visible(self, tile: Tile) -> Bool[Tensor, "*leading #queries #keys"]:
        return reduce(and_, (mask.visible(tile) for mask in self.masks))

    def key_range(self, tile: Tile) -> range:
        ranges = [mask.key_range(tile) for mask in self.masks]
        start = max(r.start for r in ranges)
        return range(start, max(start, min(r.stop for r in ranges)))

    def intervals(self, tile: Tile) -> Intervals | None:
        parts = self._parts(tile)
        return None if parts is None else reduce(met, parts)

    def simplified(self, tile: Tile) -> Mask | None:
        simpler = [mask.simplified(tile) for mask in self.masks]
        return combined(_merged([mask for mask in simpler if mask is not None]))


class AnyOf(Several):
    """Visible where at least one of `masks` is: `first | second`."""

    sign = "|"

    def visible(self, tile: Tile) -> Bool[Tensor, "*leading #queries #keys"]:
        return reduce(or_, (mask.visible(tile) for mask in self.masks))

    def key_range(self, tile: Tile) -> range:
        seen = [r for r in (mask.key_range(tile) for mask in self.masks) if r]
        if not seen:
            return nothing(tile)
        return range(min(r.start for r in seen), max(r.stop for r in seen))

    def intervals(self, tile: Tile) -> Intervals | None:
        parts = None if unread(tile) else self._parts(tile)
        return None if parts is None else joined(parts, tile)

    def simplified(self, tile: Tile) -> Mask | None:
        return None if None in [mask.simplified(tile) for mask in self.masks] else self


@dataclass(frozen=True, eq=False, repr=False)
class Not(Mask):
    """Visible where `mask` hides: `~mask`."""

    mask: Mask

    def visible(self, tile: Tile) -> Bool[Tensor, "*leading #queries #keys"]:
        return ~self.mask.visible(tile)

    def intervals(self, tile: Tile) -> Intervals | None:
        part = None if unread(tile) else self.mask.intervals(tile)
        return None if part is None else complement(part, tile)

    def check(self, tile: Tile, scores: tuple[int, ...]) -> None:
        self.mask.check(tile, scores)

    def __invert__(self) -> Mask:
        return self.mask

    def __repr__(self) -> str:
        return f"~{_bracketed(self.mask)}"


def _merged(masks: list[Mask]) -> list[Mask]:
    """The same masks, with those made one that can be."""
    merged: list[Mask] = []
    for mask in masks:
        for place, one in enumerate(merged):
            both = one.meet(mask)
            if both is not None:
                merged[place] = both
                break
        else:
            merged.append(mask)
    return merged


def combined(masks: Sequence[Mask | None]) -> Mask | None:
    """The and of masks of which some may be None, which hides nothing."""
    present = [mask for mask in masks if mask is not None]
    return reduce(and_, present) if present else None


def nothing(tile: Tile) -> range:
    """The range of no key at all."""
    return range(tile.keys.start, tile.keys.start)


def hull(seen: Bool[Tensor, "keys"], tile: Tile) -> range:
    """The range of the tile's keys from the first that is seen to the last."""
    columns = seen.nonzero()
    if not len(columns):
        return nothing(tile)
    return range(tile.keys.start + int(columns[0]), tile.keys.start + int(columns[-1]) + 1)


def _bracketed(mask: Mask) -> str:
    return f"({mask})" if isinstance(mask, Several) else repr(mask)
