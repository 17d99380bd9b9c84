"""Indexing of lazy matrices."""

import operator
from typing import Any

from torch import Tensor

Part = int | slice


def full_index(index: Any, axes: int) -> tuple[Part, ...]:
    """Expand an index to one part per axis, writing out the ellipsis.

    Errors: a TypeError for what is neither a whole number nor a slice, an IndexError for more
    parts than axes.

    >>> full_index((..., 3), axes=3)
    (slice(None, None, None), slice(None, None, None), 3)
    """
    given = index if isinstance(index, tuple) else (index,)
    ellipses = [place for place, part in enumerate(given) if part is Ellipsis]
    if len(ellipses) > 1:
        raise IndexError(f"W[…] takes one ellipsis, and got {len(ellipses)}.")
    if len(given) - len(ellipses) > axes:
        raise IndexError(
            f"W[…] takes an index of at most {axes} axes, and got {len(given) - len(ellipses)}."
        )
    missing = (slice(None),) * (axes - len(given) + len(ellipses))
    place = ellipses[0] if ellipses else len(given)
    before, after = given[:place], given[place + 1 :]
    return (*map(_range_part, before), *missing, *map(_range_part, after))


def range_of(part: Part, length: int, name: str) -> tuple[range, Part]:
    """Return the range along an axis that an index touches, and the index within that range.

    Errors: an IndexError outside of the axis, a ValueError for a slice that goes backwards.

    >>> range_of(slice(-5, None, 2), 11, "keys"), range_of(-1, 11, "keys")
    ((range(6, 11), slice(None, None, 2)), (range(10, 11), 0))
    """
    if isinstance(part, slice):
        start, stop, step = _ends(part, length)
        return range(start, max(start, stop)), slice(None, None, step)
    place = inside(part, length, name)
    return range(place, place + 1), 0


def inside(part: int, length: int, name: str) -> int:
    """Check an index along an axis, and return it counted from 0.

    >>> inside(-1, 11, "keys")
    10
    """
    if not -length <= part < length:
        raise IndexError(f"W[…] has {length} {name}, counted from 0, and got index {part}.")
    return part % length


def checked_range(part: Any, length: int, name: str) -> range:
    """Check a range of step 1 within the length; an empty one ends where it starts.

    Errors: a TypeError for anything but a range, a ValueError for another one.

    >>> checked_range(range(5, 2), 11, "tile(rows)")
    range(5, 5)
    """
    if not isinstance(part, range):
        raise TypeError(
            f"{name} takes a range such as range(0, 10), and got {type(part).__name__}."
        )
    if part.step != 1 or part.start < 0 or max(part.start, part.stop) > length:
        raise ValueError(f"{name} takes a range of step 1 within 0 to {length}, and got {part}.")
    return range(part.start, max(part.start, part.stop))


def _range_part(part: Any) -> Part:
    if isinstance(part, slice):
        return part
    boolean = isinstance(part, bool) or "bool" in str(getattr(part, "dtype", ""))
    try:
        if not boolean:
            return operator.index(part)
    except TypeError:
        pass
    got = f"a tensor of {part.dtype}" if isinstance(part, Tensor) else type(part).__name__
    raise TypeError(f"W[…] takes whole numbers, slices and an ellipsis, and got {got}.")


def _ends(part: slice, length: int) -> tuple[int, int, int]:
    if part.step is not None and _range_part(part.step) < 1:  # type: ignore[operator]
        raise ValueError(f"W[…] takes slices with steps above 0, and got {part.step}.")
    for end in (part.start, part.stop):
        if end is not None:
            _range_part(end)
    return part.indices(length)
