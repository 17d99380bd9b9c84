"""Tiles: rectangles of query-key pairs, and the range of keys that each of their queries sees."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor


class Span(NamedTuple):
    """Index range whose ends torch.compile may keep symbolic; a `range` would fix them."""

    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class Tile:
    """Pairs (i, j) of a range of queries and a range of keys, and their relative position.

    Query i is at position i + offset among the keys, so that `distance` is i + offset - j:
    positive for keys before the query, 0 for its own, negative for keys after it.

    Attributes:
        queries: The rows of the tile, counted among all queries, from `start` to before `stop`.
        keys: The columns of the tile, counted among all keys, likewise.
        offset: The position of query 0 among the keys; a number, or one per batch row, `[*batch]`.
        headed: Whether the caller's tensors have a heads axis, to which dense tensors then align.
        device: The device of tensors made for this tile.
        dtype: The dtype of the scores.

    >>> Tile(range(2), range(3), offset=1).distance()
    tensor([[ 1,  0, -1],
            [ 2,  1,  0]])
    """

    queries: "range | Span"
    keys: "range | Span"
    offset: int | Tensor = 0
    headed: bool = True
    device: torch.device = field(default=torch.device("cpu"))
    dtype: torch.dtype = torch.float32

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of queries and of keys."""
        return self.queries.stop - self.queries.start, self.keys.stop - self.keys.start

    def columns(self) -> Int[Tensor, " keys"]:
        """Return the keys j as a tensor."""
        return torch.arange(self.keys.start, self.keys.stop, device=self.device)

    def positions(self, offset: int | Tensor | None = None) -> Int[Tensor, "*leading queries 1"]:
        """Return each query's position among the keys, i + offset; an `offset` given here wins."""
        offset = self.offset if offset is None else offset
        rows = torch.arange(self.queries.start, self.queries.stop, device=self.device)[:, None]
        return rows + (per_batch(offset, self.device) if isinstance(offset, Tensor) else offset)

    def distance(self) -> Int[Tensor, "*leading queries keys"]:
        """Compute i + offset - j for every pair of the tile."""
        return self.positions() - self.columns()

    def cut(self, tensor: Tensor) -> Tensor:
        """Slice `[..., queries, keys]` to this tile; axes of size 1 stay."""
        tensor = torch.atleast_2d(tensor)
        if tensor.shape[-1] != 1:
            tensor = tensor[..., self.keys.start : self.keys.stop]
        if tensor.shape[-2] != 1:
            tensor = tensor[..., self.queries.start : self.queries.stop, :]
        return with_heads(tensor.to(self.device), headed=self.headed)


def per_batch(values: Tensor, device: torch.device) -> Tensor:
    """Reshape values `[*batch]` to broadcast with scores `[*batch, heads, queries, keys]`."""
    values = values.to(device)
    return values[..., None, None, None] if values.ndim else values


def with_heads(tensor: Tensor, *, headed: bool) -> Tensor:
    """Add a heads axis of size 1 to a tensor of the caller's layout where that has none."""
    return tensor if headed or tensor.ndim < 3 else tensor.unsqueeze(-3)


def three_axes(tensor: Tensor) -> Tensor:
    """Reshape what broadcasts to scores to at least the axes heads, queries and keys."""
    return tensor if tensor.ndim >= 3 else tensor[(None,) * (3 - tensor.ndim)]


def four_axes(tensor: Tensor, batch: tuple[int, ...]) -> Tensor:
    """Reshape what broadcasts to `[*batch, heads, rows, columns]` to exactly four axes.

    Several batch axes are flattened to one, in full unless none of them is there.
    """
    if tensor.ndim == 4 and len(batch) <= 1:
        return tensor
    tensor = three_axes(tensor)
    if tensor.ndim == 3:
        return tensor[None]
    if len(batch) > 1:
        tensor = tensor.expand(*batch, *tensor.shape[-3:])
    return tensor.flatten(0, -4)


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
    """Unite key ranges, or return None if a query has a gap between them.

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
    """Return the complement within the tile, or None if it is not one range per query."""
    first, last = tile.keys.start, tile.keys.stop
    empty = part.starts == part.stops
    leading = empty | (part.starts == first)
    if not bool((leading | (part.stops == last)).all()):
        return None
    starts = part.stops.masked_fill(empty | ~leading, first)
    return within(tile, starts, part.starts.masked_fill(leading, last))


def from_boolean(shown: Bool[Tensor, "*batch keys"], tile: Tile) -> Intervals | None:
    """Convert booleans per key to ranges, or return None if a row has a gap."""
    if not shown.shape[-1]:
        none = torch.full(shown.shape[:-1], tile.keys.start, device=tile.device)
        return within(tile, none[..., None, None, None], none[..., None, None, None])
    columns = tile.columns()
    starts = columns.where(shown, tile.keys.stop).amin(-1)
    stops = torch.maximum(starts, (columns + 1).where(shown, tile.keys.start).amax(-1))
    if not bool((shown.sum(-1) == stops - starts).all()):
        return None
    return within(tile, starts[..., None, None, None], stops[..., None, None, None])


def nothing(tile: Tile) -> range:
    """Return an empty key range."""
    return range(tile.keys.start, tile.keys.start)


def bounding_range(seen: Bool[Tensor, " keys"], tile: Tile) -> range:
    """Return the smallest range that holds all visible keys of the tile."""
    columns = seen.nonzero()
    if not len(columns):
        return nothing(tile)
    return range(tile.keys.start + int(columns[0]), tile.keys.start + int(columns[-1]) + 1)
