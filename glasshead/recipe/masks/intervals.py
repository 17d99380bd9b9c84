"""A mask taken apart: what is one range of keys a query, and what has to be asked pair by pair."""

from functools import reduce

from glasshead.recipe.masks.mask import AllOf, Mask, combined
from glasshead.recipe.masks.ranges import Intervals, met
from glasshead.recipe.tile import Tile

__all__ = ["Intervals", "split"]


def split(mask: Mask | None, tile: Tile) -> tuple[Intervals | None, Mask | None]:
    """The part of `mask` that is one range of keys a query, and the part that remains.

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
    return (reduce(met, ranges) if ranges else None), combined(rest)
