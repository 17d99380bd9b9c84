"""Masks by distance: causal and sliding windows are bands around the diagonal."""

from dataclasses import dataclass
from functools import reduce
from operator import and_

import torch
from jaxtyping import Bool
from torch import Tensor

from glasshead.recipe.checks import check_offset
from glasshead.recipe.masks.mask import Mask, nothing
from glasshead.recipe.masks.ranges import Intervals, within
from glasshead.recipe.numbers import offset_of, whole_number
from glasshead.recipe.tile import Tile


@dataclass(frozen=True, eq=False, repr=False)
class Band(Mask):
    """Key j is visible to query i when -after <= i + offset - j <= before; None is unbounded."""

    before: int | None
    after: int | None
    offset: int | Tensor | None = None

    def visible(self, tile: Tile) -> Bool[Tensor, "*leading #queries #keys"]:
        # Bounds are compared with keys: a matrix of distances would take 8 bytes a pair.
        positions, keys = tile.positions(self.offset), tile.columns()
        bounds = []
        if self.before is not None:
            bounds.append(keys >= positions - self.before)
        if self.after is not None:
            bounds.append(keys <= positions + self.after)
        return reduce(and_, bounds) if bounds else torch.ones_like(keys, dtype=torch.bool)[None]

    def key_range(self, tile: Tile) -> range:
        first, last = _ends(tile.offset if self.offset is None else self.offset)
        keys, rows = tile.keys, tile.queries
        if 0 in tile.shape:
            return nothing(tile)
        start = keys.start if self.before is None else rows.start + first - self.before
        stop = keys.stop if self.after is None else rows.stop + last + self.after
        start = min(max(keys.start, start), keys.stop)
        return range(start, max(start, min(keys.stop, stop)))

    def intervals(self, tile: Tile) -> Intervals | None:
        positions, keys = tile.positions(self.offset), tile.keys
        starts = torch.full_like(positions, keys.start)
        stops = torch.full_like(positions, keys.stop)
        if self.before is not None:
            starts = positions - self.before
        if self.after is not None:
            # One is added last: to the largest positions it would be one too many.
            stops = (positions + self.after).clamp(keys.start - 1, keys.stop - 1) + 1
        return within(tile, starts, stops)

    def simplified(self, tile: Tile) -> Mask | None:
        offset = tile.offset if self.offset is None else self.offset
        if isinstance(offset, Tensor):
            return self
        furthest_before = tile.queries.stop - 1 + offset - tile.keys.start
        furthest_after = tile.keys.stop - 1 - offset - tile.queries.start
        before = None if self.before is None or self.before >= furthest_before else self.before
        after = None if self.after is None or self.after >= furthest_after else self.after
        return None if before is None and after is None else Band(before, after, self.offset)

    def meet(self, other: Mask) -> Mask | None:
        if not isinstance(other, Band) or not _same(self.offset, other.offset):
            return None
        return Band(_least(self.before, other.before), _least(self.after, other.after), self.offset)

    def check(self, tile: Tile, scores: tuple[int, ...]) -> None:
        del tile
        if self.offset is not None:
            check_offset(f"the offset of {self}", self.offset, scores)

    def is_top_left_causal(self, tile: Tile) -> bool:
        """Whether this is the lower triangle that starts in the first row with one key."""
        offset = tile.offset if self.offset is None else self.offset
        return (
            self.before is None
            and self.after is not None
            and not isinstance(offset, Tensor)
            and self.after + offset == 0
        )

    def __repr__(self) -> str:
        offset = [] if self.offset is None else [f"offset={_short(self.offset)}"]
        if self.before is None and self.after == 0:
            return f"causal({', '.join(offset)})"
        after = [] if self.after == 0 else [f"after={self.after}"]
        return f"window({', '.join([f'before={self.before}', *after, *offset])})"


def causal(offset: int | Tensor | None = None) -> Mask:
    """Key j is visible to query i when j <= i + offset: no query sees a later key.

    Args:
        offset: The position of query 0 among the keys, a number or one per batch row, `[*batch]`.
            Without it the problem's offset holds, keys - queries by default: the last query sees
            every key (bottom-right, right with a cache). `offset=0` is the top-left triangle.

    Source: Vaswani et al. 2017, section 3.2.3.

    >>> print(causal().picture(queries=2, keys=4))
    ■■■·
    ■■■■
    >>> print(causal(offset=0).picture(queries=2, keys=4))
    ■···
    ■■··
    """
    return Band(None, 0, None if offset is None else offset_of(offset, "causal(offset=…)"))


def window(
    before: int | None = None, after: int | None = 0, offset: int | Tensor | None = None
) -> Mask:
    """A sliding window: each query sees its own position and some neighbours.

    Args:
        before: How many keys before its own a query sees; None: all of them.
        after: How many keys after its own a query sees; None: all of them.
        offset: The position of query 0 among the keys, as in `causal`.

    Errors: a ValueError where `before` or `after` is negative.

    Source: Beltagy et al. 2020 (Longformer), section 3.1, where a window of w counts both sides.

    >>> print(window(before=2, after=1).picture(queries=5, keys=5))
    ■■···
    ■■■··
    ■■■■·
    ·■■■■
    ··■■■
    """
    if before is not None:
        before = whole_number(before, "window(before=…)")
    if after is not None:
        after = whole_number(after, "window(after=…)")
    offset = None if offset is None else offset_of(offset, "window(offset=…)")
    return Band(before, after, offset)


def _ends(offset: int | Tensor) -> tuple[int, int]:
    """The smallest and the largest offset of the batch."""
    if isinstance(offset, Tensor) and not offset.numel():
        return 0, 0
    if isinstance(offset, Tensor):
        return int(offset.min()), int(offset.max())
    return offset, offset


def _same(first: int | Tensor | None, second: int | Tensor | None) -> bool:
    """Whether two offsets are surely the same; numbers in tensors may have yet to be computed."""
    if isinstance(first, Tensor) or isinstance(second, Tensor):
        return first is second
    return first == second


def _least(first: int | None, second: int | None) -> int | None:
    """The smaller of two bounds, of which None is none."""
    bounds = [bound for bound in (first, second) if bound is not None]
    return min(bounds) if bounds else None


def _short(offset: int | Tensor) -> str:
    return f"tensor{list(offset.shape)}" if isinstance(offset, Tensor) else str(offset)
