"""Rows of scores as vectors of the processor: their maxima, their weights, and sums by lane."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from glasshead.engines.streaming.kernels.arguments import FAR, LOGS, MAXIMA, TOTALS
from glasshead.engines.streaming.kernels.exponential import (
    DOUBLE,
    SINGLE,
    STRICT,
    constant,
    power_of_two,
)
from glasshead.engines.streaming.kernels.processor import at_hand
from glasshead.engines.streaming.kernels.tiles import MATRIX_TILES, rounded_pair

TILE = at_hand().tile
PLACE = ir.IntType(64)


class Start(NamedTuple):
    """Numbers of a flat array from a place on."""

    numbers: Any
    first: int


class Powers(NamedTuple):
    """Weights p = 2^t of scores x, for t = factor · x - top.

    Attributes:
        factor, top: As above.
        distance: That of the first key, negative if it is later than its query.
    """

    factor: float
    top: float
    distance: float


class Wanted(NamedTuple):
    """Results of weighing a row.

    Attributes:
        kept: Whether its weights are written.
        far: Whether their distances are summed.
        raised: Whether the maxima are raised by the scores.
    """

    kept: bool
    far: bool
    raised: bool


def steps(
    builder: Any,
    place: Any,
    many: Any,
    step: int,
    values: list[Any],
    body: Callable[[Any, list[Any]], list[Any]],
) -> tuple[Any, list[Any]]:
    """Go on from a place as long as a step is within `many`, and return the place and the values.

    `body` makes the values that follow from a place and its values.
    """
    before = builder.block
    head, inside, done = map(builder.append_basic_block, ("steps", "step", "stepped"))
    builder.branch(head)
    builder.position_at_end(head)
    at, held = builder.phi(PLACE), [builder.phi(value.type) for value in values]
    following = builder.add(at, PLACE(step))
    builder.cbranch(builder.icmp_signed("<=", following, many), inside, done)
    builder.position_at_end(inside)
    nexts = body(at, held)
    after = builder.block
    builder.branch(head)
    for phi, first, later in zip((at, *held), (place, *values), (following, *nexts), strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(later, after)
    builder.position_at_end(done)
    return at, held


class Row:
    """Numbers of a flat array in memory from a place on, as vectors of the processor."""

    def __init__(self, context: Any, builder: Any, kind: Any, array: Any, first: Any) -> None:
        made = context.make_array(kind)(context, builder, array)
        self.length = builder.extract_value(made.shape, 0)
        self.is_empty = builder.icmp_signed("==", self.length, PLACE(0))
        self.builder, self.data = builder, builder.gep(made.data, [first])
        self.dtype, self.bytes = kind.dtype, kind.dtype.bitwidth // 8
        self.lanes = TILE.bytes // self.bytes
        self.real = ir.FloatType() if kind.dtype == types.float32 else ir.DoubleType()
        self.vector = ir.VectorType(self.real, self.lanes)

    @classmethod
    def of(cls, context: Any, builder: Any, kind: Any, start: Any) -> "Row":
        """Return the numbers of a `Start`."""
        array, first = cgutils.unpack_tuple(builder, start)
        first = context.cast(builder, first, kind.types[1], types.int64)
        return cls(context, builder, kind.types[0], array, first)

    def spot(self, place: Any, kind: ir.Type) -> Any:
        """Return the pointer to what begins at a place."""
        return self.builder.bitcast(self.builder.gep(self.data, [place]), kind.as_pointer())

    def load(self, place: Any, kind: ir.Type) -> Any:
        """Load a number or a vector."""
        return self.builder.load(self.spot(place, kind), align=self.bytes)

    def store(self, value: Any, place: Any) -> None:
        """Store a number or a vector."""
        self.builder.store(value, self.spot(place, value.type), align=self.bytes)

    def splat(self, number: Any) -> Any:
        """Return a vector of one number."""
        undefined = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(undefined, number, ir.IntType(32)(0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(first, undefined, zeros)

    def absolute(self, vector: Any) -> Any:
        """Return the sizes of the numbers of a vector."""
        bits = ir.VectorType(ir.IntType(8 * self.bytes), self.lanes)
        rest = constant(bits, (1 << (8 * self.bytes - 1)) - 1)
        sizes = self.builder.and_(self.builder.bitcast(vector, bits), rest)
        return self.builder.bitcast(sizes, self.vector)

    def reduced(self, value: Any, merge: Callable[[Any, Any], Any]) -> Any:
        """Return what merging all numbers of a vector gives, half by half."""
        half = self.lanes
        while half > 1:
            half //= 2
            places = [min(lane + half, self.lanes - 1) for lane in range(self.lanes)]
            upper = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), places)
            undefined = ir.Constant(self.vector, ir.Undefined)
            value = merge(value, self.builder.shuffle_vector(value, undefined, upper))
        return self.builder.extract_element(value, ir.IntType(32)(0))


def places_of(
    context: Any, builder: Any, signature: Any, arguments: Any, which: tuple[int, ...]
) -> list[Any]:
    """Return integers among arguments, in 64 bits."""
    return [context.cast(builder, arguments[n], signature.args[n], types.int64) for n in which]


@intrinsic
def raise_maxima(typing_context: Any, numbers: Any, first: Any, count: Any, sums: Any, place: Any):  # noqa: ARG001 - Numba's protocol
    """Raise the maxima of a row by `count` numbers, whole pairs of vectors; NaN counts as less.

    Args:
        numbers, first, count: The numbers of a flat array from a place on.
        sums, place: Where the vectors of the row begin.
    """
    signature = types.void(numbers, first, count, sums, place)

    def code(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        start, many, into = places_of(context, builder, sig, arguments, (1, 2, 4))
        row = Row(context, builder, sig.args[0], arguments[0], start)
        kept = Row(context, builder, sig.args[3], arguments[3], into)

        def body(at: Any, known: list[Any]) -> list[Any]:
            return [
                _larger(builder, row.load(builder.add(at, PLACE(n * row.lanes)), row.vector), one)
                for n, one in enumerate(known)
            ]

        place = PLACE(MAXIMA * row.lanes)
        start = [kept.load(place, row.vector), constant(row.vector, -math.inf)]
        _, found = steps(builder, PLACE(0), many, 2 * row.lanes, start, body)
        kept.store(_larger(builder, *found), place)
        return context.get_dummy_value()

    return signature, code


def _larger(builder: Any, x: Any, known: Any) -> Any:
    """Return the larger of two, the known one where the other is NaN."""
    return builder.select(builder.fcmp_ordered(">", x, known), x, known)


@intrinsic
def largest_lane(typing_context: Any, numbers: Any, first: Any) -> Any:  # noqa: ARG001 - Numba's protocol
    """Return the largest number of the vector of a flat array that begins at a place."""
    return _merged(numbers, first, _larger)


@intrinsic
def sum_of_lanes(typing_context: Any, numbers: Any, first: Any) -> Any:  # noqa: ARG001 - Numba's protocol
    """Return the sum of the vector of a flat array that begins at a place."""
    return _merged(numbers, first, lambda builder, x, y: builder.fadd(x, y, flags=STRICT))


def _merged(numbers: Any, first: Any, merge: Callable[[Any, Any, Any], Any]) -> Any:
    """Return what merges the numbers of a vector, as an intrinsic states it."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (start,) = places_of(context, builder, signature, arguments, (1,))
        row = Row(context, builder, signature.args[0], arguments[0], start)
        value = row.load(PLACE(0), row.vector)
        return row.reduced(value, lambda x, y: merge(builder, x, y))

    return numbers.dtype(numbers, first), code


@intrinsic
def weigh_vectors(
    typing_context: Any,  # noqa: ARG001 - Numba's protocol
    scores: Any,
    count: Any,
    powers: Any,
    wanted: Any,
    into: Any,
    halves: Any,
    sums: Any,
) -> Any:
    """Compute the weights of a row, but a factor, and add to the row's vectors.

    Args:
        scores, count: The `Start` of the scores, whole pairs of vectors; -inf is hidden.
        powers, wanted: The weights, and what is wanted of them.
        into: The `Start` of the weights if they are kept, which may be that of the scores.
        halves: That of the weights, rounded to bfloat16; of no numbers if nobody reads them.
        sums: That of the vectors of the row: the sums of p and of p t, and those of `wanted`.
    """
    signature = types.void(scores, count, powers, wanted, into, halves, sums)

    def code(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        (many,) = places_of(context, builder, sig, arguments, (1,))
        row, target, half, held = (
            Row.of(context, builder, sig.args[n], arguments[n]) for n in (0, 4, 5, 6)
        )
        factor, top, distance = (
            row.splat(context.cast(builder, value, kind, row.dtype))
            for value, kind in zip(
                cgutils.unpack_tuple(builder, arguments[2]), powers.types, strict=True
            )
        )
        flags = list(zip(Wanted._fields, cgutils.unpack_tuple(builder, arguments[3]), strict=True))
        if MATRIX_TILES and row.dtype == types.float32:
            flags.insert(0, ("halved", builder.not_(half.is_empty)))
        for chosen in _each_way(builder, flags):
            weighing = _Weighing(row, target, half, held, **{"halved": False} | chosen)
            weighing.emit(many, factor, top, distance)
        return context.get_dummy_value()

    return signature, code


class _Weighing:
    """The code that weighs a row, for one choice of what is wanted.

    Args:
        row, target, half, held: Scores, weights, rounded weights, and the vectors of the row.
        halved, kept, far, raised: Whether weights are rounded, and as of `Wanted`.
    """

    def __init__(
        self,
        row: Row,
        target: Row,
        half: Row,
        held: Row,
        *,
        halved: bool,
        kept: bool,
        far: bool,
        raised: bool,
    ) -> None:
        self.builder, self.row = row.builder, row
        self.target, self.half, self.held = target, half, held
        self.halved, self.kept = halved, kept
        # What the row sums up, by two vectors each.
        self.kinds = [TOTALS, LOGS, *[FAR] * far, *[MAXIMA] * raised]

    def emit(self, many: Any, factor: Any, top: Any, distance: Any) -> None:
        """Weigh `many` scores, and add to what the row has summed up."""
        builder, row = self.builder, self.row
        held = [self.held.load(PLACE(kind * row.lanes), row.vector) for kind in self.kinds]
        lowest, zeros = constant(row.vector, -math.inf), constant(row.vector, 0.0)
        held += [lowest if kind == MAXIMA else zeros for kind in self.kinds]
        lanes = ir.Constant(row.vector, [float(lane) for lane in range(row.lanes)])

        def body(at: Any, values: list[Any]) -> list[Any]:
            *values, away = values
            weights, nexts = [], []
            for n in range(2):
                one = dict(zip(self.kinds, values[n * len(self.kinds) :], strict=False))
                spot = builder.add(at, PLACE(n * row.lanes))
                weights.append(self._weigh(spot, factor, top, away, one))
                if FAR in self.kinds:
                    away = builder.fsub(away, constant(row.vector, float(row.lanes)))
                nexts += [one[kind] for kind in self.kinds]
            if self.halved:
                self.half.store(rounded_pair(builder, *weights), at)
            return [*nexts, away]

        start = [*held, builder.fsub(distance, lanes)]
        _, values = steps(builder, PLACE(0), many, 2 * row.lanes, start, body)
        for n, kind in enumerate(self.kinds):
            one, other = values[n], values[n + len(self.kinds)]
            whole = _larger(builder, one, other) if kind == MAXIMA else builder.fadd(one, other)
            self.held.store(whole, PLACE(kind * row.lanes))

    def _weigh(self, spot: Any, factor: Any, top: Any, away: Any, sums: dict[int, Any]) -> Any:
        """Return the weights of a vector of scores, and add them to the sums by kind."""
        builder, row = self.builder, self.row
        x = row.load(spot, row.vector)
        t = builder.fsub(builder.fmul(x, factor, flags=STRICT), top, flags=STRICT)
        p, is_some = power_of_two(builder, SINGLE if row.bytes == 4 else DOUBLE, t)
        sums[TOTALS] = builder.fadd(sums[TOTALS], p, flags=STRICT)
        # Where p is 0, t may be -inf.
        by_log = self._multiply_add(p, t, sums[LOGS])
        sums[LOGS] = builder.select(is_some, by_log, sums[LOGS])
        if FAR in sums:
            sums[FAR] = self._multiply_add(p, row.absolute(away), sums[FAR])
        if MAXIMA in sums:
            sums[MAXIMA] = _larger(builder, x, sums[MAXIMA])
        if self.kept:
            self.target.store(p, spot)
        return p

    def _multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        return self.builder.fadd(self.builder.fmul(a, b, flags=STRICT), c, flags=STRICT)


def _each_way(builder: Any, flags: Sequence[tuple[str, Any]]) -> Iterator[dict[str, bool]]:
    """Yield each choice of flags where the code that takes it is to be built."""
    if not flags:
        yield {}
        return
    (name, flag), *others = flags
    with builder.if_else(flag) as branches:
        for chosen, branch in zip((True, False), branches, strict=True):
            with branch:
                for rest in _each_way(builder, others):
                    yield {name: chosen} | rest


# Rows that are added together: more take more registers, and fewer more sums in float64.
ROWS_ADDED = 16 if TILE.bytes == 64 else 8


@intrinsic
def add_rows(
    typing_context: Any,  # noqa: ARG001 - Numba's protocol
    weights: Any,
    factors: Any,
    first: Any,
    count: Any,
    sums: Any,
) -> Any:
    """Add Σ_i factors_i · weights_ij to sums_j, for at most `ROWS_ADDED` rows i from the first on.

    The sum of the rows is added in float64. Returns how many columns are done, whole vectors.
    """
    signature = types.int64(weights, factors, first, count, sums)

    def code(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        start, many = places_of(context, builder, sig, arguments, (2, 3))
        matrix = context.make_array(sig.args[0])(context, builder, arguments[0])
        columns = builder.extract_value(matrix.shape, 1)
        given = context.make_array(sig.args[1])(context, builder, arguments[1])
        target = context.make_array(sig.args[4])(context, builder, arguments[4])
        length = builder.extract_value(target.shape, 0)
        rows, parts = [], []
        for n in range(ROWS_ADDED):
            is_there = builder.icmp_signed("<", PLACE(n), many)
            at = builder.add(start, builder.select(is_there, PLACE(n), PLACE(0)))
            row = Row(context, builder, sig.args[0], arguments[0], builder.mul(at, columns))
            factor = builder.load(builder.gep(given.data, [at]))
            factor = builder.select(is_there, factor, ir.Constant(row.real, 0.0))
            rows.append(row)
            parts.append(row.splat(factor))
        doubles = ir.VectorType(ir.DoubleType(), rows[0].lanes)

        def body(at: Any, values: list[Any]) -> list[Any]:
            chains: list[Any] = [None] * 4
            for n, (row, part) in enumerate(zip(rows, parts, strict=True)):
                product = builder.fmul(row.load(at, row.vector), part, flags=STRICT)
                known = chains[n % 4]
                chains[n % 4] = (
                    product if known is None else builder.fadd(known, product, flags=STRICT)
                )
            near = builder.fadd(builder.fadd(*chains[:2]), builder.fadd(*chains[2:]))
            wide = near if near.type == doubles else builder.fpext(near, doubles)
            spot = builder.bitcast(builder.gep(target.data, [at]), doubles.as_pointer())
            builder.store(builder.fadd(builder.load(spot, align=8), wide), spot, align=8)
            return values

        done, _ = steps(builder, PLACE(0), length, rows[0].lanes, [], body)
        return done

    return signature, code
