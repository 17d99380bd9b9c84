"""Thinning: a long series as so many points as a picture has room for, none of its peaks lost."""

import math
from collections.abc import Sequence
from typing import Any


def buckets(count: int, most: int) -> list[range]:
    """The places of a series in buckets of 2ᵏ, with the last place on its own.

    A series that grows keeps its buckets until it doubles, so that a picture of it stands still,
    and its last number stays exact.

    Args:
        count: How long the series is.
        most: Of how many buckets there is room, 2 at least.

    >>> buckets(4, 5)
    [range(0, 1), range(1, 2), range(2, 3), range(3, 4)]
    >>> buckets(8, 5)
    [range(0, 2), range(2, 4), range(4, 6), range(6, 7), range(7, 8)]
    """
    if count <= most:
        return [range(place, place + 1) for place in range(count)]
    size = 1 << math.ceil(math.log2((count - 1) / (most - 1)))
    inner = [range(start, min(start + size, count - 1)) for start in range(0, count - 1, size)]
    return [*inner, range(count - 1, count)]


def thinned(
    steps: Sequence[int], values: Sequence[float], most: int
) -> tuple[list[int], list[float]]:
    """The smallest and the largest number of each bucket, in the order of their steps.

    Args:
        steps: In which order the numbers came.
        values: The numbers; one that is NaN is neither smallest nor largest.
        most: How many points there may be, 4 at least.

    >>> thinned([10, 20, 30, 40, 50, 60, 70], [5.0, 9.0, 1.0, 4.0, 3.0, 3.0, 2.0], 6)
    ([20, 30, 50, 70], [9.0, 1.0, 3.0, 2.0])
    """
    if len(values) <= most:
        return list(steps), list(values)
    kept: list[int] = []
    for bucket in buckets(len(values), most // 2):
        known = [place for place in bucket if not math.isnan(values[place])] or [bucket[0]]
        low, high = (pick(known, key=values.__getitem__) for pick in (min, max))
        kept += sorted({low, high})
    return [steps[place] for place in kept], [values[place] for place in kept]


def smoothed(values: Sequence[float], share: float) -> list[float]:
    """The mean over what was before, each number counting β times as much as the next one.

        sₜ = Σᵢ β^(t−i) xᵢ / Σᵢ β^(t−i),  i ≤ t

    What is not finite is passed over.

    Args:
        values: x.
        share: β, from 0 and below 1.

    >>> smoothed([4.0, 1.0, float("nan"), 2.0], 0.5)[1:]
    [2.0, 2.0, 2.0]
    """
    total = weight = 0.0
    means = []
    for value in values:
        if math.isfinite(value):
            total, weight = share * total + value, share * weight + 1
        means.append(total / weight if weight else value)
    return means


def as_json(value: float | None) -> Any:
    """A number as JSON can have it: what is not finite is "NaN", "Infinity" or "-Infinity".

    >>> [as_json(value) for value in (0.5, float("-inf"), None)]
    [0.5, '-Infinity', None]
    """
    if value is None or math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
