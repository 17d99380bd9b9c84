"""Memory layout of the kernels' arguments: arrays and numbers, as fields of named tuples.

A kernel is called with the address of a block of 8 bytes a number: an integer, a float, or of an
array its address and its sizes. Both sides read the layout from the annotations of the fields.
"""

from functools import cache
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints


class ArrayLayout(NamedTuple):
    """Layout of an array, which is contiguous: its dtype, "real" for the kernel's own, and axes."""

    dtype: str
    axes: int


# An array of NumPy, or what stands for one.
Reals = Annotated[Any, ArrayLayout("real", 1)]
RealMatrix = Annotated[Any, ArrayLayout("real", 2)]
Doubles = Annotated[Any, ArrayLayout("float64", 1)]
DoubleMatrix = Annotated[Any, ArrayLayout("float64", 2)]
Whole = Annotated[Any, ArrayLayout("int64", 1)]
WholeMatrix = Annotated[Any, ArrayLayout("int64", 2)]
Halves = Annotated[Any, ArrayLayout("int16", 1)]
HalfPairs = Annotated[Any, ArrayLayout("int32", 1)]
Booleans = Annotated[Any, ArrayLayout("bool", 1)]


@cache
def parts_of(kind: Any) -> tuple[Any, ...] | None:
    """Return the types of a named tuple's fields; None for what is no tuple."""
    if not hasattr(kind, "_fields"):
        return None
    return tuple(get_type_hints(kind, include_extras=True).values())


def layout_of(kind: Any) -> ArrayLayout | None:
    """Return the layout of an array's type; None for a number's."""
    return next((part for part in get_args(kind) if isinstance(part, ArrayLayout)), None)
