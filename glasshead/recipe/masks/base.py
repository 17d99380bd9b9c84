"""Base class of masks: evaluate a tile, combine, simplify to key ranges, draw."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_, or_
from typing import ClassVar

from jaxtyping import Bool
from torch import Tensor

from glasshead.recipe.part import Description, HeadIndex, Part
from glasshead.recipe.tile import (
    Intervals,
    Tile,
    complement,
    intersect,
    nothing,
    three_axes,
    union,
    values_unavailable,
)
from glasshead.recipe.validation import whole_number

SHADES = "·░▒▓■"


def picture(visible: Callable[[Tile], Tensor], tile: Tile, index: int, width: int) -> str:
    """Draw `visible` over `tile`, at most `width` columns wide; blocks show their mean shade.

    It evaluates one row of blocks at a time, so that a long mask can be drawn too.
    """
    queries, keys = tile.shape
    block = -(-max(queries, keys) // width)
    lines = []
    for start in range(0, queries, block):
        rows = range(start, min(start + block, queries))
        shares = [part.float().mean().item() for part in _blocks(visible, tile, rows, index, block)]
        lines.append("".join(_shade(share) for share in shares))
    return "\n".join(lines)


def _blocks(
    visible: Callable[[Tile], Tensor], tile: Tile, rows: range, index: int, block: int
) -> tuple[Tensor, ...]:
    """Evaluate some rows, and split them into blocks of columns."""
    pairs = three_axes(visible(replace(tile, queries=rows)))
    try:
        pairs = pairs.expand(*pairs.shape[:-2], len(rows), tile.shape[1]).flatten(0, -3)
    except RuntimeError:
        raise ValueError(
            f"the picture must have the size that the mask was made for, got {tile.shape[0]} "
            f"queries and {tile.shape[1]} keys. Use the size of its tensor."
        ) from None
    if len(pairs) == 1:
        return pairs[0].split(block, dim=-1)  # the same for every row of the batch
    if index >= len(pairs):
        raise ValueError(f"the picture's index must be below {len(pairs)}, got {index}.")
    return pairs[index].split(block, dim=-1)


def _shade(share: float) -> str:
    """Return the shade of a block; all visible and all hidden have characters of their own."""
    if share in (0.0, 1.0):
        return SHADES[-1] if share else SHADES[0]
    return SHADES[1 + min(int(share * 3), 2)]


class Mask(Part, ABC):
    """Base class of attention masks: True = may attend.

    A mask is a frozen value. It holds no device: its tensors follow the query's. Masks combine
    with `&` (seen by both), `|` (seen by either) and `~` (the opposite).

    >>> import glasshead as gh
    >>> mask = gh.causal() & gh.window(before=1)
    >>> print(mask.picture(queries=4, keys=4))
    ■···
    ■■··
    ·■■·
    ··■■

    Attributes:
        is_dense: Whether every pair is in memory already, so that `visible` only slices.
        conjuncts: The masks whose intersection it is; empty if it is not an intersection.
        shows_own_key: Whether each query is known to see the key at its own position.
        by_distance: Whether visibility depends on i + offset - j alone.
        of_positions: The numbers that decide it with the positions alone; masks with equal numbers
            hide the same. None: a tensor's numbers may decide it, too.
    """

    is_dense: ClassVar[bool] = False
    conjuncts: ClassVar[tuple["Mask", ...]] = ()
    shows_own_key: ClassVar[bool] = False
    of_positions: tuple[object, ...] | None = None

    @abstractmethod
    def visible(self, tile: Tile) -> Bool[Tensor, "*leading #queries #keys"]:
        """Return which pairs of the tile are visible; constant axes may have size 1."""

    def describe(self) -> Description | str:
        return Description("The mask {mask} says which words may see each other.", mask=repr(self))

    @property
    def text(self) -> str | None:
        """Return the text from which `parse_mask` builds it; None if no text names it."""
        return None

    @property
    def by_distance(self) -> bool:
        return False

    @property
    def is_band(self) -> bool:
        """Return whether it is an intersection of bands around each query's own position.

        A band hides no key between `lookback` and the query's own position.
        """
        return False

    @property
    def lookback(self) -> int | None:
        """Return the most keys before its own that a query sees; None: unbounded, or unknown."""
        return None

    def key_range(self, tile: Tile) -> range:
        """Return a range that holds every key visible to the tile, without evaluating each pair.

        Between its ends some may be hidden.

        >>> import glasshead as gh
        >>> gh.window(before=9).key_range(gh.Tile(range(500, 600), range(100_000)))
        range(491, 600)
        """
        return range(tile.keys.start, tile.keys.stop)

    def intervals(self, tile: Tile) -> Intervals | None:
        """Return the one range of keys that each query of the tile sees, or None.

        None if a query sees keys with a gap between them, or where that would have to be read
        from numbers that are not known yet: while torch.compile traces, and on the meta device.

        >>> import glasshead as gh
        >>> tile = gh.Tile(range(2), range(5), offset=3)
        >>> gh.causal().intervals(tile).stops
        tensor([[4],
                [5]])
        >>> (gh.window(before=0) | gh.prefix(1)).intervals(tile)  # a gap between the two
        """

    def simplified(self, tile: Tile) -> "Mask | None":
        """Return the simplest equivalent mask for this tile, or None if nothing is hidden."""
        return self

    def meet(self, other: "Mask") -> "Mask | None":
        """Return one mask equal to `self & other`, or None if none is as simple as either."""

    @property
    def of_keys(self) -> bool:
        """Whether each key is visible to all queries and heads of its batch row, or to none."""
        return False

    @property
    def compares_positions(self) -> bool:
        """Whether it may compare the positions of queries and keys, which then are of one text."""
        return not self.of_keys

    def hides_a_key(self, keys: int) -> bool:
        """Return whether it is a written-out mask with a key that is hidden from every query."""
        return False

    def is_top_left_causal(self, tile: Tile) -> bool:
        """Return whether this is the lower triangle whose first row shows one key."""
        return False

    def select_head(self, place: HeadIndex) -> "Mask":
        """Select one head, as a mask without batch and heads axes.

        >>> import torch
        >>> import glasshead as gh
        >>> tile = gh.Tile(range(5), range(5))
        >>> (gh.causal() & gh.padding([5, 4])).select_head(HeadIndex(tile, (1,), 2))
        causal() & padding(4)
        """
        return OfHead(self, place) if self.is_custom else self._of_head(place)

    def _of_head(self, place: HeadIndex) -> "Mask":
        """Select one head of a mask that is not custom; here, one that knows no heads."""
        return self

    def check(self, tile: Tile, scores: tuple[int, ...]) -> None:
        """Raise a ValueError if the mask cannot cover scores `[*batch, heads, queries, keys]`.

        The tile covers the problem.
        """

    def picture(
        self, queries: int, keys: int, *, offset: int | None = None, index: int = 0, width: int = 72
    ) -> str:
        """Draw the mask as text: ■ visible, · hidden, a line a query; long ones as shaded blocks.

        Args:
            queries, keys: The size of the matrix.
            offset: The position of query 0 among the keys; keys - queries if not given.
            index: The row of the batch, or head, if the mask differs between them.
            width: The most columns and lines that the picture may have.

        Errors: a ValueError if the mask is of another size, or has no such row.
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


@dataclass(frozen=True, eq=False, repr=False)
class OfHead(Mask):
    """A custom mask, evaluated for all heads and batch rows, of which one is selected."""

    whole: Mask
    place: HeadIndex

    @property
    def by_distance(self) -> bool:
        return self.whole.by_distance

    def visible(self, tile: Tile) -> Bool[Tensor, "#queries #keys"]:
        return self.place.of_scores(self.whole.visible(self.place.whole(tile)))

    def key_range(self, tile: Tile) -> range:
        return self.whole.key_range(self.place.whole(tile))

    @property
    def class_name(self) -> str:
        return self.whole.class_name

    def __repr__(self) -> str:
        return repr(self.whole)


def _members(mask: Mask, kind: "type[CompositeMask]") -> tuple[Mask, ...]:
    return mask.masks if isinstance(mask, kind) else (mask,)


@dataclass(frozen=True, eq=False, repr=False)
class CompositeMask(Mask):
    """Base class of masks combined by an operator."""

    masks: tuple[Mask, ...]
    sign: ClassVar[str]

    def check(self, tile: Tile, scores: tuple[int, ...]) -> None:
        for mask in self.masks:
            mask.check(tile, scores)

    @property
    def by_distance(self) -> bool:
        return all(mask.by_distance for mask in self.masks)

    @property
    def compares_positions(self) -> bool:
        return any(mask.compares_positions for mask in self.masks)

    def _ranges(self, tile: Tile) -> list[Intervals] | None:
        """Return the key ranges of every mask, or None if one has none."""
        ranges: list[Intervals] = []
        for mask in self.masks:
            part = mask.intervals(tile)
            if part is None:
                return None
            ranges.append(part)
        return ranges

    def _of_head(self, place: HeadIndex) -> Mask:
        return type(self)(tuple(mask.select_head(place) for mask in self.masks))

    def __repr__(self) -> str:
        return f" {self.sign} ".join(_bracketed(mask) for mask in self.masks)


@dataclass(frozen=True, eq=False, repr=False)
class AllOf(CompositeMask):
    """Intersection: visible where every one of `masks` is, `first & second`."""

    sign = "&"
    saved = ("masks",)

    def __post_init__(self) -> None:
        parts = tuple(mask.of_positions for mask in self.masks)
        if type(self) is AllOf and None not in parts:
            object.__setattr__(self, "of_positions", parts)

    @property
    def conjuncts(self) -> tuple[Mask, ...]:  # type: ignore[reportIncompatibleVariableOverride]
        return self.masks

    @property
    def text(self) -> str | None:
        texts = [mask.text for mask in self.masks]
        return None if None in texts else "+".join(map(str, texts))

    @property
    def is_band(self) -> bool:
        return all(mask.is_band for mask in self.masks)

    @property
    def lookback(self) -> int | None:
        bounds = [mask.lookback for mask in self.masks]
        return min((bound for bound in bounds if bound is not None), default=None)

    def visible(self, tile: Tile) -> Bool[Tensor, "*leading #queries #keys"]:
        return reduce(and_, (mask.visible(tile) for mask in self.masks))

    def key_range(self, tile: Tile) -> range:
        ranges = [mask.key_range(tile) for mask in self.masks]
        start = max(r.start for r in ranges)
        return range(start, max(start, min(r.stop for r in ranges)))

    def intervals(self, tile: Tile) -> Intervals | None:
        ranges = self._ranges(tile)
        return None if ranges is None else reduce(intersect, ranges)

    def simplified(self, tile: Tile) -> Mask | None:
        simpler = [mask.simplified(tile) for mask in self.masks]
        return combined(_merged([mask for mask in simpler if mask is not None]))


class AnyOf(CompositeMask):
    """Union: visible where at least one of `masks` is, `first | second`."""

    sign = "|"
    saved = ("masks",)

    def visible(self, tile: Tile) -> Bool[Tensor, "*leading #queries #keys"]:
        return reduce(or_, (mask.visible(tile) for mask in self.masks))

    def key_range(self, tile: Tile) -> range:
        seen = [r for r in (mask.key_range(tile) for mask in self.masks) if r]
        if not seen:
            return nothing(tile)
        return range(min(r.start for r in seen), max(r.stop for r in seen))

    def intervals(self, tile: Tile) -> Intervals | None:
        ranges = None if values_unavailable(tile) else self._ranges(tile)
        return None if ranges is None else union(ranges, tile)

    def simplified(self, tile: Tile) -> Mask | None:
        return None if None in [mask.simplified(tile) for mask in self.masks] else self


@dataclass(frozen=True, eq=False, repr=False)
class Not(Mask):
    """Complement: visible where `mask` hides, `~mask`."""

    mask: Mask
    saved = ("mask",)

    @property
    def by_distance(self) -> bool:
        return self.mask.by_distance

    @property
    def of_keys(self) -> bool:
        return self.mask.of_keys

    @property
    def compares_positions(self) -> bool:
        return self.mask.compares_positions

    def visible(self, tile: Tile) -> Bool[Tensor, "*leading #queries #keys"]:
        return ~self.mask.visible(tile)

    def intervals(self, tile: Tile) -> Intervals | None:
        part = None if values_unavailable(tile) else self.mask.intervals(tile)
        return None if part is None else complement(part, tile)

    def check(self, tile: Tile, scores: tuple[int, ...]) -> None:
        self.mask.check(tile, scores)

    def _of_head(self, place: HeadIndex) -> Mask:
        return Not(self.mask.select_head(place))

    def __invert__(self) -> Mask:
        return self.mask

    def __repr__(self) -> str:
        return f"~{_bracketed(self.mask)}"


def _merged(masks: list[Mask]) -> list[Mask]:
    """Merge the masks of a conjunction that `meet` in one."""
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
    """Combine masks with `&`; None stands for a mask that hides nothing."""
    present = [mask for mask in masks if mask is not None]
    # The method, as PyTorch 2.8 cannot compile the operator between two masks.
    return reduce(Mask.__and__, present) if present else None


def _bracketed(mask: Mask) -> str:
    return f"({mask})" if isinstance(mask, CompositeMask) else repr(mask)
