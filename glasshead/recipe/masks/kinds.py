"""Mask constructors: causal, sliding window, dense, padding and prefix."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from glasshead.recipe.masks.base import Mask
from glasshead.recipe.part import Description, HeadIndex
from glasshead.recipe.tile import (
    Intervals,
    Tile,
    bounding_range,
    from_boolean,
    nothing,
    per_batch,
    three_axes,
    values_unavailable,
    within,
)
from glasshead.recipe.validation import (
    check_covers,
    check_offset,
    offset_of,
    whole_number,
    whole_numbers,
)


@dataclass(frozen=True, eq=False, repr=False)
class Band(Mask):
    """Band of diagonals: visible when -after <= i + offset - j <= before; None is unbounded."""

    before: int | None
    after: int | None
    offset: int | Tensor | None = None
    shows_own_key = True
    saved = ("before", "after", "offset")

    def __post_init__(self) -> None:
        if type(self) is Band and not isinstance(self.offset, Tensor):
            object.__setattr__(self, "of_positions", (self.before, self.after, self.offset))

    @property
    def text(self) -> str | None:
        if not self.is_band or self.after is None:
            return None
        if self.before is None:
            return None if self.after else "causal"
        return f"window:{self.before}" + (f":{self.after}" if self.after else "")

    @property
    def by_distance(self) -> bool:
        return self.offset is None

    @property
    def is_band(self) -> bool:
        return type(self) is Band and self.offset is None

    @property
    def lookback(self) -> int | None:
        return self.before if self.offset is None else None

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
            # 1 is added last, as the largest positions would overflow.
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
        if isinstance(self.offset, Tensor):
            check_offset(f"the offset of {self}", self.offset, scores)

    def is_top_left_causal(self, tile: Tile) -> bool:
        offset = tile.offset if self.offset is None else self.offset
        return (
            self.before is None
            and self.after is not None
            and not isinstance(offset, Tensor)
            and self.after + offset == 0
        )

    def describe(self) -> Description:
        unbounded = Description("all")
        sides = {
            "before": unbounded if self.before is None else self.before,
            "after": unbounded if self.after is None else self.after,
        }
        if isinstance(self.offset, int) and self.offset:
            return Description(
                "The mask has an offset: each query sees the key at its own place + ({offset}), "
                "and neighbors of that key (before it: {before}; after it: {after}).",
                offset=self.offset,
                **sides,
            )
        if self.before is None and self.after == 0:
            return Description(
                "The mask is causal: a word sees itself and the words before it, and none of those "
                "after it. A model that writes text word by word needs this: the later words do "
                "not exist yet, and in training it must not peek at them."
            )
        return Description(
            "The mask is a window: a word sees itself and its neighbors (before it: {before}; "
            "after it: {after}). What matters is often near, and a long text then takes much less "
            "work.",
            **sides,
        )

    def _of_head(self, place: HeadIndex) -> Mask:
        return self if self.offset is None else replace(self, offset=place.in_row(self.offset))

    def __repr__(self) -> str:
        offset = [] if self.offset is None else [f"offset={_short(self.offset)}"]
        if self.before is None and self.after == 0:
            return f"causal({', '.join(offset)})"
        after = [] if self.after == 0 else [f"after={self.after}"]
        return f"window({', '.join([f'before={self.before}', *after, *offset])})"


def causal(offset: int | Tensor | None = None) -> Mask:
    """Causal mask: key j is visible to query i when j <= i + offset.

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
    """Sliding window: each query sees its own position and some neighbors.

    Args:
        before: The number of keys before its own that a query sees; None: all of them.
        after: The number of keys after its own that a query sees; None: all of them.
        offset: The position of query 0 among the keys, as in `causal`.

    Errors: a ValueError if `before` or `after` is negative.

    Source: Beltagy et al. 2020 (Longformer), section 3.1, in which a window of w counts both sides.

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
    """Return the smallest and the largest offset of the batch."""
    if isinstance(offset, Tensor) and not offset.numel():
        return 0, 0
    if isinstance(offset, Tensor):
        return int(offset.min()), int(offset.max())
    return offset, offset


def _same(first: int | Tensor | None, second: int | Tensor | None) -> bool:
    """Return whether two offsets are surely equal; values of tensors are not read."""
    if isinstance(first, Tensor) or isinstance(second, Tensor):
        return first is second
    return first == second


def _least(first: int | None, second: int | None) -> int | None:
    """Return the smaller of two bounds; None is unbounded."""
    bounds = [bound for bound in (first, second) if bound is not None]
    return min(bounds) if bounds else None


def _short(offset: int | Tensor) -> str:
    return f"tensor{list(offset.shape)}" if isinstance(offset, Tensor) else str(offset)


@dataclass(frozen=True, eq=False, repr=False)
class Dense(Mask):
    """Dense mask: pair (i, j) is visible where the tensor, laid out as the scores, is True."""

    tensor: Bool[Tensor, "..."]
    is_dense = True
    saved = ("tensor",)

    @property
    def compares_positions(self) -> bool:
        return False

    def visible(self, tile: Tile) -> Bool[Tensor, "*leading #queries #keys"]:
        return tile.cut(self.tensor)

    def hides_a_key(self, keys: int) -> bool:
        shown = self.tensor
        written_out = shown.ndim > 3 and shown.shape[-1] == keys
        return written_out and not bool(shown.any((-3, -2)).all())

    def key_range(self, tile: Tile) -> range:
        if 0 in tile.shape:
            return nothing(tile)
        seen = three_axes(self.visible(tile)).flatten(0, -2).any(0)
        return bounding_range(seen.expand(tile.shape[1]), tile)

    def check(self, tile: Tile, scores: tuple[int, ...]) -> None:
        layout = scores if tile.headed else (*scores[:-3], *scores[-2:])
        check_covers("dense(tensor)", self.tensor.shape, layout)

    def describe(self) -> Description:
        return Description(
            "The mask was given pair by pair: it says for each word which others it may see."
        )

    def _of_head(self, place: HeadIndex) -> Mask:
        return Dense(place.of_given(self.tensor))

    def __repr__(self) -> str:
        return f"dense(tensor{list(self.tensor.shape)})"


def dense(tensor: Bool[Tensor, "..."]) -> Mask:
    """Dense mask, given pair by pair: True = may attend, as in SDPA, ONNX and Keras.

    Args:
        tensor: Broadcasts, from the right, to the scores in the caller's own layout:
            `[..., heads, queries, keys]`, or `[batch, queries, keys]` for inputs of three axes.

    Errors: a TypeError for anything but a boolean tensor, a ValueError at the call if it does
    not broadcast.

    >>> print(dense(torch.tensor([[True, False], [True, True]])).picture(queries=2, keys=2))
    ■·
    ■■
    """
    return Dense(_boolean(tensor))


def _boolean(tensor: Any) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"dense(tensor) must be a boolean tensor, got {type(tensor).__name__}.")
    if tensor.is_floating_point():
        raise TypeError(
            f"dense(tensor) must be a boolean tensor, got {tensor.dtype}. Pass a float mask as "
            "bias=, or convert it with from_additive(tensor)."
        )
    if tensor.dtype != torch.bool:
        raise TypeError(
            f"dense(tensor) must be a boolean tensor, True = may attend, got {tensor.dtype}. "
            "Convert it with .bool() if 1 means visible."
        )
    return tensor


def as_mask(mask: Any) -> Mask | None:
    """Check `mask=`: a mask, a boolean tensor, or None."""
    if mask is None or isinstance(mask, Mask):
        return mask
    if isinstance(mask, Tensor):
        return dense(mask)
    raise TypeError(
        f"mask= must be a mask such as causal() or a boolean tensor, got {type(mask).__name__}."
    )


@dataclass(frozen=True, eq=False, repr=False)
class Keys(Mask):
    """Key mask: key j is visible to every query of its batch row where the tensor is True."""

    tensor: Bool[Tensor, "*batch keys"]
    saved = ("tensor",)

    @property
    def of_keys(self) -> bool:
        return True

    def visible(self, tile: Tile) -> Bool[Tensor, "*leading #queries #keys"]:
        shown = self.tensor.to(tile.device)
        if shown.shape[-1] != 1:
            shown = shown[..., tile.keys.start : tile.keys.stop]
        return shown[..., None, None, :]

    def key_range(self, tile: Tile) -> range:
        shown = self.visible(tile).flatten(0, -2).any(0)
        return bounding_range(shown.expand(tile.shape[1]), tile)

    def intervals(self, tile: Tile) -> Intervals | None:
        if values_unavailable(tile):
            return None
        shown = self.visible(tile)[..., 0, 0, :]
        return from_boolean(shown.expand(*shown.shape[:-1], tile.shape[1]), tile)

    def check(self, tile: Tile, scores: tuple[int, ...]) -> None:
        expected = (*scores[:-3], scores[-1])
        check_covers("a mask of keys, one boolean a key,", self.tensor.shape, expected)

    def _of_head(self, place: HeadIndex) -> Mask:
        return Keys(place.of_row(self.tensor, axes=1))

    def __repr__(self) -> str:
        return f"keys(tensor{list(self.tensor.shape)})"


@dataclass(frozen=True, eq=False, repr=False)
class LengthMask(Mask):
    """Length mask: key j is visible to every query of its batch row when j < its length."""

    name: str
    lengths: Int[Tensor, "*batch"]
    saved = ("name", "lengths")

    @property
    def of_keys(self) -> bool:
        return True

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
        check_covers(f"{self.name}(…), one number a batch row,", self.lengths.shape, scores[:-3])

    def describe(self) -> Description:
        if self.name == "prefix":
            return Description(
                "The mask is a prefix: every word sees the first words, which form the prefix. "
                "They are known from the start, as a question is known before its answer."
            )
        return Description(
            "The mask hides padding: the sentences of one batch are filled up to the same length, "
            "and the filler must not be looked at."
        )

    def _of_head(self, place: HeadIndex) -> Mask:
        return replace(self, lengths=place.of_row(self.lengths))

    def __repr__(self) -> str:
        shape = list(self.lengths.shape)
        return f"{self.name}({f'tensor{shape}' if shape else self.lengths.item()})"


def padding(lengths: int | Sequence[int] | Int[Tensor, "*batch"]) -> Mask:
    """Padding mask: key j of batch row b is visible when j < lengths[b].

    Args:
        lengths: The number of real keys of each batch row, `[*batch]`.

    Errors: a TypeError if the lengths are not whole numbers, a ValueError at the call if
    their shape is not the batch's.

    >>> print(padding([3, 1]).picture(queries=2, keys=4, index=0))
    ■■■·
    ■■■·
    >>> print(padding([3, 1]).picture(queries=2, keys=4, index=1))
    ■···
    ■···
    """
    return LengthMask("padding", whole_numbers(lengths, "padding(lengths)"))


def prefix(length: int | Sequence[int] | Int[Tensor, "*batch"]) -> Mask:
    """Prefix mask: every query sees the first `length` keys; `causal() | prefix(length)`.

    Args:
        length: The length of the prefix, one number or one per batch row, `[*batch]`.

    Source: Raffel et al. 2020 (T5), section 3.2.1, "causal with prefix".

    >>> import glasshead as gh
    >>> print((gh.causal() | gh.prefix(2)).picture(queries=4, keys=4))
    ■■··
    ■■··
    ■■■·
    ■■■■
    """
    return LengthMask("prefix", whole_numbers(length, "prefix(length)"))
