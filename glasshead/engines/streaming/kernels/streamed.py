"""The reductions that the kernels compute: one table, from which all that carries them follows.

A row names a reduction of `statistics.reductions`, what it asks of the kernels, the arrays that
they fill for it, how the parts of several threads are merged, and how its result is taken from
them. The kernels that fill them are in `sums`. `OutputSpec` and `Results`, the operator's schema,
the programs and the price of a plan are made of the rows.

This file imports neither PyTorch nor Numba: kernels are built without the one, and run without the
other.
"""

import math
from collections import namedtuple
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from glasshead.engines.streaming.kernels.layouts import ArrayLayout, RealMatrix, WholeMatrix

# The statistics of each row that `weigh` computes, by their places.
(LOG_SUM, MAX_SCORE, MAX_WEIGHT, ENTROPY, SCORES, DISTANCES, FACTOR, KEY, MANY_KEYS) = range(9)
ROW_STATS = 9
# float32 holds integers up to 2^24: the key of the maximum is MANY_KEYS · MANY + KEY.
MANY = 2**20


class Asked(NamedTuple):
    """A field of `OutputSpec`: what reductions of one class ask for together.

    Attributes:
        name: The field's name.
        kind: "flag": whether there is one whose attributes are all true; "most": the largest
            number of any; "each": the numbers of each, one after the other; "rows": operands, as
            rows of one.
        of: The attributes of a reduction that it is made of.
        along: What the rows of an operand run along, "queries" or "keys".
    """

    name: str
    kind: str
    of: tuple[str, ...] = ()
    along: str = ""

    def count(self, reduction: Any) -> int:
        """Return the size that a reduction gives to the axis which is named after the field."""
        given = [getattr(reduction, name) for name in self.of]
        if self.kind == "rows":
            return given[0].shape[-1]
        return math.prod(given)

    def counted(self, value: Any) -> int:
        """Return the size of that axis for all reductions, from the field's value."""
        if self.kind == "rows":
            return 0 if value is None else value.shape[-2]
        if self.kind == "each":
            step = len(self.of)
            return sum(math.prod(value[n : n + step]) for n in range(0, len(value), step))
        return value


# Of each kind: its type for an operator and for a kernel, and what asks for nothing.
_KINDS: dict[str, tuple[str, Any, Any]] = {
    "flag": ("int", int, 0),
    "most": ("int", int, 0),
    "each": ("int[]", WholeMatrix, ()),
    "rows": ("Tensor?", RealMatrix, None),
}


class Array(NamedTuple):
    """A field of `Results`: an array that the kernels fill.

    Attributes:
        name: The field's name.
        dtype: "real" for that of the problem, "float64" or "int64".
        sizes: Its axes after batch and heads: those of `sizes_of` by name.
        merged: "" for numbers that each query has for itself; "sum" or "max" for what queries put
            together, a stripe of them each in an array of its own.
        empty: The number that stands where no query sees a key.
    """

    name: str
    dtype: str
    sizes: tuple[str, ...]
    merged: str = ""
    empty: int = 0

    def shape(self, sizes: dict[str, int]) -> tuple[int, ...]:
        """Return its shape for one head: of no size where its flag is not set."""
        flag = _FLAGS.get(self.name)
        if flag is not None and not sizes[flag]:
            return (0,) * len(self.sizes)
        return tuple(sizes[name] for name in self.sizes)


class Streamed(NamedTuple):
    """A reduction that the kernels compute.

    Attributes:
        reduction: The name of its class.
        result: Takes its result from `Results`, for the reduction and its part of what is stacked.
        asked: What it asks for; None for what the kernels compute of every row.
        arrays: What they fill for it, of no size if it is not asked for.
        operations: The cost of a pair beside its softmax, in operations of a product: measured on
            a processor with AVX-512 (benchmarks/observe.py).
    """

    reduction: str
    result: Callable[[Any, Any, slice], tuple[Any, ...]]
    asked: Asked | None = None
    arrays: tuple[Array, ...] = ()
    operations: int = 0


def _of_rows(place: int) -> Callable[[Any, Any, slice], tuple[Any, ...]]:
    """Return what takes a statistic of each row."""
    return lambda found, _one, _part: (found.rows[:, :, place],)


def _largest(found: Any, one: Any, _part: slice) -> tuple[Any, ...]:
    weight, score = found.rows[:, :, MAX_WEIGHT], found.rows[:, :, MAX_SCORE]
    if not one.keyed:
        return weight, weight.new_full((), -1).long().expand(weight.shape), score
    key, many = found.rows[:, :, KEY].long(), found.rows[:, :, MANY_KEYS].long()
    return weight, key + MANY * many, score


def _block_map(found: Any, one: Any, part: slice) -> tuple[Any, ...]:
    """Take a map, and divide each row of blocks by its number of queries."""
    cells = found.maps[..., part].unflatten(-1, (one.rows, one.columns))
    queries, stops = found.rows.shape[-1], cells.new_ones(one.rows).long().cumsum(0)
    sizes = stops * queries // one.rows - (stops - 1) * queries // one.rows
    return (cells / sizes.clamp(min=1)[:, None],)


STREAMED = (
    Streamed("LogSum", _of_rows(LOG_SUM)),
    Streamed("EntropySum", _of_rows(ENTROPY)),
    Streamed("ScoreSum", _of_rows(SCORES)),
    Streamed("Largest", _largest, Asked("keyed", "flag", ("keyed",)), operations=3),
    Streamed("DistanceSum", _of_rows(DISTANCES), Asked("far", "flag"), operations=8),
    Streamed(
        "TimesKeys",
        lambda found, _one, part: (found.by_key[:, :, part].transpose(-1, -2),),
        Asked("per_key", "rows", ("per_key",), along="keys"),
        (Array("by_key", "real", ("per_key", "queries")),),
        operations=8,
    ),
    Streamed(
        "LargestWeights",
        lambda found, one, _part: (found.top[..., : one.k], found.keys[..., : one.k]),
        Asked("top", "most", ("k",)),
        (
            Array("top", "real", ("queries", "top")),
            Array("keys", "int64", ("queries", "top"), empty=-1),
        ),
        operations=30,
    ),
    Streamed(
        "TimesQueries",
        lambda found, _one, part: (found.by_query[:, :, part].transpose(-1, -2),),
        Asked("per_query", "rows", ("per_query",), along="queries"),
        (Array("by_query", "float64", ("per_query", "keys"), merged="sum"),),
        operations=8,
    ),
    Streamed(
        "DiagonalSum",
        lambda found, _one, _part: (found.diagonals,),
        Asked("diagonal", "flag"),
        (Array("diagonals", "float64", ("diagonals",), merged="sum"),),
        operations=15,
    ),
    Streamed(
        "BlockSum",
        _block_map,
        Asked("maps", "each", ("rows", "columns")),
        (Array("maps", "float64", ("maps",), merged="sum"),),
        operations=12,
    ),
)
ASKED = tuple(one.asked for one in STREAMED if one.asked is not None)
ARRAYS = (
    Array("context", "real", ("queries", "value_dim")),
    Array("rows", "real", ("row_stats", "queries")),
    *(array for one in STREAMED for array in one.arrays),
)
_FLAGS = {
    array.name: one.asked.name
    for one in STREAMED
    for array in one.arrays
    if one.asked is not None and one.asked.kind == "flag"
}
# Of a problem: numbers, those of "each" in a flat tuple, and operands `[#batch, #heads, r, …]`.
# Of one head, as kernels take it: those of "each" as `[n, numbers]`, and operands `[r, …]`.
OutputSpec = namedtuple(  # noqa: PYI024 - its fields are the table's
    "OutputSpec",
    [one.name for one in ASKED],
    defaults=[_KINDS[one.kind][2] for one in ASKED],
)
OutputSpec.__annotations__ = {one.name: _KINDS[one.kind][1] for one in ASKED}
# Of a problem, `[batch, heads, …]` each, or of one head.
Results = namedtuple("Results", [one.name for one in ARRAYS])  # noqa: PYI024
Results.__annotations__ = {
    one.name: Annotated[Any, ArrayLayout(one.dtype, len(one.sizes))] for one in ARRAYS
}
# The types of an `OutputSpec` for an operator.
SCHEMA = ", ".join(f"{_KINDS[one.kind][0]} {one.name}" for one in ASKED)


def sizes_of(spec: Any, queries: int, keys: int, value_dim: int) -> dict[str, int]:
    """Return the sizes of the arrays' axes by name, for a request."""
    sizes = {"queries": queries, "keys": keys, "value_dim": value_dim, "row_stats": ROW_STATS}
    sizes["diagonals"] = queries + keys - 1
    for one, value in zip(ASKED, spec, strict=True):
        sizes[one.name] = one.counted(value)
    return sizes
