"""One range of keys a query: a mask in two numbers a row, and how such ranges combine."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from glasshead.recipe.tile import Tile


class Intervals(NamedTuple):
    """Query i sees the keys from `starts[i]` to before `stops[i]`, and no others.

    Keys are counted among all keys, and lie in the tile that was asked about. A query that sees
    nothing has a start that is its stop. The leading axes are those of the batch and a heads axis
    of 1, or none.

    >>> import glasshead as gh
    >>> starts, stops = gh.window(before=1).intervals(gh.Tile(range(4), range(4)))
    >>> starts.flatten(), stops.flatten()
    (tensor([0, 0, 1, 2]), tensor([1, 2, 3, 4]))
    """

    starts: Int[Tensor, "*leading queries 1"]
    stops: Int[Tensor, "*leading queries 1"]


def unread(tile: Tile) -> bool:
    """Whether numbers in tensors cannot be read now: in a trace, or where there are none."""
    return torch.compiler.is_compiling() or tile.device.type == "meta"


def within(
    tile: Tile,
    starts: Int[Tensor, "*#leading #queries 1"] | Int[Tensor, ""],
    stops: Int[Tensor, "*#leading #queries 1"] | Int[Tensor, ""],
) -> Intervals:
    """The part of these ranges that lies in the tile, for each of its queries."""
    first, last = tile.keys.start, tile.keys.stop
    starts = starts.to(torch.int64).clamp(first, last)
    stops = torch.maximum(starts, stops.to(torch.int64).clamp(first, last))
    shape = (*stops.shape[:-2], tile.shape[0], 1)
    return Intervals(starts.expand(shape), stops.expand(shape))


def met(first: Intervals, second: Intervals) -> Intervals:
    """The keys that are in both."""
    starts, stops = torch.broadcast_tensors(
        torch.maximum(first.starts, second.starts), torch.minimum(first.stops, second.stops)
    )
    return Intervals(starts, torch.maximum(starts, stops))


def joined(parts: Sequence[Intervals], tile: Tile) -> Intervals | None:
    """The keys that are in any of `parts`, where no query has a gap between them.

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
    """The other keys of the tile, where no query has some both before and after its range."""
    first, last = tile.keys.start, tile.keys.stop
    empty = part.starts == part.stops
    leading = empty | (part.starts == first)
    if not bool((leading | (part.stops == last)).all()):
        return None
    starts = part.stops.masked_fill(empty | ~leading, first)
    return within(tile, starts, part.starts.masked_fill(leading, last))


def of_shown(shown: Bool[Tensor, "*batch keys"], tile: Tile) -> Intervals | None:
    """The keys of the tile that are True, where in each batch row they are side by side."""
    if not shown.shape[-1]:
        none = torch.full(shown.shape[:-1], tile.keys.start, device=tile.device)
        return within(tile, none[..., None, None, None], none[..., None, None, None])
    columns = tile.columns()
    starts = columns.where(shown, tile.keys.stop).amin(-1)
    stops = torch.maximum(starts, (columns + 1).where(shown, tile.keys.start).amax(-1))
    if not bool((shown.sum(-1) == stops - starts).all()):
        return None
    return within(tile, starts[..., None, None, None], stops[..., None, None, None])
