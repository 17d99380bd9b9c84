"""Base class of masks: evaluate a tile, combine, simplify to key ranges, draw."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_, or_
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from glasshead.recipe.tile import Tile, three_axes
from glasshead.recipe.validation import whole_number

SHADES = "·░▒▓■"


def picture(visible: Callable[[Tile], Tensor], tile: Tile, index: int, width: int) -> str:
    """Draw `visible` over `tile`, at most `width` columns wide; blocks show their mean shade.

    Only one band of rows is looked at at a time, so that a long mask can be drawn too.
    """
    queries, keys = tile.shape
    block = -(-max(queries, keys) // width)
    lines = []
    for start in range(0, queries, block):
        rows = range(start, min(start + block, queries))
        shares = [part.float().mean().item() for part in _band(visible, tile, rows, index, block)]
        lines.append("".join(_shade(share) for share in shares))
    return "\n".join(lines)


def _band(
    visible: Callable[[Tile], Tensor], tile: Tile, rows: range, index: int, block: int
) -> tuple[Tensor, ...]:
    """Evaluate a band of rows, and split it into blocks of columns."""
    band = three_axes(visible(replace(tile, queries=rows)))
    try:
        band = band.expand(*band.shape[:-2], len(rows), tile.shape[1]).flatten(0, -3)
    except RuntimeError:
        raise ValueError(
            f"picture takes the size that the mask was made for, and got {tile.shape[0]} queries "
            f"and {tile.shape[1]} keys: give the size of its tensor."
        ) from None
    if len(band) == 1:
        return band[0].split(block, dim=-1)  # the same for every row of the batch
    if index >= len(band):
        raise ValueError(f"picture takes an index below {len(band)}, and got {index}.")
    return band[index].split(block, dim=-1)


def _shade(share: float) -> str:
    """Return the shade of a block; all visible and all hidden have characters of their own."""
    if share in (0.0, 1.0):
        return SHADES[-1] if share else SHADES[0]
    return SHADES[1 + min(int(share * 3), 2)]


class Intervals(NamedTuple):
    """Visible key ranges: query i sees the keys in [`starts[i]`, `stops[i]`), and no others.

    Keys are numbered among all keys, and lie within the tile. A query that sees
    nothing has a start that is its stop. The leading axes are those of the batch and a heads axis
    of 1, or none.

    >>> import glasshead as gh
    >>> starts, stops = gh.window(before=1).intervals(gh.Tile(range(4), range(4)))
    >>> starts.flatten(), stops.flatten()
    (tensor([0, 0, 1, 2]), tensor([1, 2, 3, 4]))
    """

    starts: Int[Tensor, "*leading queries 1"]
    stops: Int[Tensor, "*leading queries 1"]


def values_unavailable(tile: Tile) -> bool:
    """Return whether tensor values cannot be read: under torch.compile, or on the meta device."""
    return torch.compiler.is_compiling() or tile.device.type == "meta"


def within(
    tile: Tile,
    starts: Int[Tensor, "*#leading #queries 1"] | Int[Tensor, ""],
    stops: Int[Tensor, "*#leading #queries 1"] | Int[Tensor, ""],
) -> Intervals:
    """Clip ranges to the tile's keys, one for each of its queries."""
    first, last = tile.keys.start, tile.keys.stop
    starts = starts.to(torch.int64).clamp(first, last)
    stops = torch.maximum(starts, stops.to(torch.int64).clamp(first, last))
    shape = (*stops.shape[:-2], tile.shape[0], 1)
    return Intervals(starts.expand(shape), stops.expand(shape))


def intersect(first: Intervals, second: Intervals) -> Intervals:
    """Intersect two sets of key ranges."""
    starts, stops = torch.broadcast_tensors(
        torch.maximum(first.starts, second.starts), torch.minimum(first.stops, second.stops)
    )
    return Intervals(starts, torch.maximum(starts, stops))


def union(parts: Sequence[Intervals], tile: Tile) -> Intervals | None:
    """Unite key ranges, or return None where a query has a gap between them.

    In the order of their starts, each range must begin before or where those so far have ended.
    """
    starts = torch.stack(torch.broadcast_tensors(*(part.starts for part in parts)))
    stops = torch.stack(torch.broadcast_tensors(*(part.stops for part in parts)))
    empty = starts == stops
    # Empty ranges go last, where they neither begin nor end anything.
    starts, order = starts.masked_fill(empty, tile.keys.stop).sort(dim=0)
    ended = stops.masked_fill(empty, tile.keys.start).gather(0, order).cummax(0).values
    touching = (starts[1:] <= ended[:-1]) | empty.gather(0, order)[1:]
    return within(tile, starts[0], ended[-1]) if bool(touching.all()) else None


def complement(part: Intervals, tile: Tile) -> Intervals | None:
    """Return the complement within the tile, or None where it is not one range per query."""
    first, last = tile.keys.start, tile.keys.stop
    empty = part.starts == part.stops
    leading = empty | (part.starts == first)
    if not bool((leading | (part.stops == last)).all()):
        return None
    starts = part.stops.masked_fill(empty | ~leading, first)
    return within(tile, starts, part.starts.masked_fill(leading, last))


def from_boolean(shown: Bool[Tensor, "*batch keys"], tile: Tile) -> Intervals | None:
    """Convert booleans per key to ranges, or return None where a row has a gap."""
    if not shown.shape[-1]:
        none = torch.full(shown.shape[:-1], tile.keys.start, device=tile.device)
        return within(tile, none[..., None, None, None], none[..., None, None, None])
    columns = tile.columns()
    starts = columns.where(shown, tile.keys.stop).amin(-1)
    stops = torch.maximum(starts, (columns + 1).where(shown, tile.keys.start).amax(-1))
    if not bool((shown.sum(-1) == stops - starts).all()):
        return None
    return within(tile, starts[..., None, None, None], stops[..., None, None, None])


class Mask(ABC):
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
    """

    @abstractmethod
    def visible(self, tile: Tile) -> Bool[Tensor, "*leading #queries #keys"]:
        """Return which pairs of the tile are visible; constant axes may have size 1."""

    def key_range(self, tile: Tile) -> range:
        """Return a range that holds every key visible to the tile, without evaluating each pair.

        The answer is a range that holds every visible key; between its ends some may be hidden.

        >>> import glasshead as gh
        >>> gh.window(before=9).key_range(gh.Tile(range(500, 600), range(100_000)))
        range(491, 600)
        """
        return range(tile.keys.start, tile.keys.stop)

    def intervals(self, tile: Tile) -> Intervals | None:
        """Return the one range of keys that each query of the tile sees, or None.

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
        """Return the simplest equivalent mask for this tile, or None where nothing is hidden."""
        del tile
        return self

    def meet(self, other: "Mask") -> "Mask | None":
        """Return one mask equal to `self & other`, or None where none is as simple as either."""
        del other

    def check(self, tile: Tile, scores: tuple[int, ...]) -> None:  # noqa: B027 - most masks fit all
        """Raise a ValueError where the mask cannot cover scores `[*batch, heads, queries, keys]`.

        The tile is the whole problem's.
        """

    def picture(
        self, queries: int, keys: int, *, offset: int | None = None, index: int = 0, width: int = 72
    ) -> str:
        """Draw the mask as text: ■ visible, · hidden, a line a query; long ones as shaded blocks.

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

    def _parts(self, tile: Tile) -> list[Intervals] | None:
        """Return the intervals of every mask, or None where one has none."""
        parts: list[Intervals] = []
        for mask in self.masks:
            part = mask.intervals(tile)
            if part is None:
                return None
            parts.append(part)
        return parts

    def __repr__(self) -> str:
        return f" {self.sign} ".join(_bracketed(mask) for mask in self.masks)


class AllOf(CompositeMask):
    """Intersection: visible where every one of `masks` is, `first & second`."""

    sign = "&"

    def visible(self, tile: Tile) -> Bool[Tensor, "*leading #queries #keys"]:
        return reduce(and_, (mask.visible(tile) for mask in self.masks))

    def key_range(self, tile: Tile) -> range:
        ranges = [mask.key_range(tile) for mask in self.masks]
        start = max(r.start for r in ranges)
        return range(start, max(start, min(r.stop for r in ranges)))

    def intervals(self, tile: Tile) -> Intervals | None:
        parts = self._parts(tile)
        return None if parts is None else reduce(intersect, parts)

    def simplified(self, tile: Tile) -> Mask | None:
        simpler = [mask.simplified(tile) for mask in self.masks]
        return combined(_merged([mask for mask in simpler if mask is not None]))


class AnyOf(CompositeMask):
    """Union: visible where at least one of `masks` is, `first | second`."""

    sign = "|"

    def visible(self, tile: Tile) -> Bool[Tensor, "*leading #queries #keys"]:
        return reduce(or_, (mask.visible(tile) for mask in self.masks))

    def key_range(self, tile: Tile) -> range:
        seen = [r for r in (mask.key_range(tile) for mask in self.masks) if r]
        if not seen:
            return nothing(tile)
        return range(min(r.start for r in seen), max(r.stop for r in seen))

    def intervals(self, tile: Tile) -> Intervals | None:
        parts = None if values_unavailable(tile) else self._parts(tile)
        return None if parts is None else union(parts, tile)

    def simplified(self, tile: Tile) -> Mask | None:
        return None if None in [mask.simplified(tile) for mask in self.masks] else self


@dataclass(frozen=True, eq=False, repr=False)
class Not(Mask):
    """Complement: visible where `mask` hides, `~mask`."""

    mask: Mask

    def visible(self, tile: Tile) -> Bool[Tensor, "*leading #queries #keys"]:
        return ~self.mask.visible(tile)

    def intervals(self, tile: Tile) -> Intervals | None:
        part = None if values_unavailable(tile) else self.mask.intervals(tile)
        return None if part is None else complement(part, tile)

    def check(self, tile: Tile, scores: tuple[int, ...]) -> None:
        self.mask.check(tile, scores)

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
    return reduce(and_, present) if present else None


def nothing(tile: Tile) -> range:
    """Return an empty key range."""
    return range(tile.keys.start, tile.keys.start)


def bounding_range(seen: Bool[Tensor, "keys"], tile: Tile) -> range:
    """Return the smallest range that holds all visible keys of the tile."""
    columns = seen.nonzero()
    if not len(columns):
        return nothing(tile)
    return range(tile.keys.start + int(columns[0]), tile.keys.start + int(columns[-1]) + 1)


def _bracketed(mask: Mask) -> str:
    return f"({mask})" if isinstance(mask, CompositeMask) else repr(mask)


def split(mask: Mask | None, tile: Tile) -> tuple[Intervals | None, Mask | None]:
    """Split `mask` into one key range per query, and the mask that remains.

    A query sees the keys that are in its range and that the remaining mask shows; None stands for
    every key. Of masks that are combined by `&`, those with ranges make the first part.

    >>> import glasshead as gh
    >>> mask = gh.causal() & gh.documents([0, 1, 0]) & gh.padding(2)
    >>> ranges, rest = split(mask, gh.Tile(range(3), range(3)))
    >>> ranges.stops.flatten(), rest
    (tensor([1, 2, 2]), documents(tensor[3]))
    """
    if mask is None:
        return None, None
    ranges: list[Intervals] = []
    rest: list[Mask] = []
    for one in mask.masks if isinstance(mask, AllOf) else (mask,):
        intervals = one.intervals(tile)
        if intervals is None:
            rest.append(one)
        else:
            ranges.append(intervals)
    return (reduce(intersect, ranges) if ranges else None), combined(rest)
