"""Weights of a block: bias, mask and softmax of its scores, and the statistics of each row."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from glasshead.engines.streaming.kernels.exponential import (
    DOUBLE,
    SINGLE,
    STRICT,
    constant,
    exponential,
    exponential_of,
)
from glasshead.engines.streaming.kernels.options import fill, kernel
from glasshead.engines.streaming.kernels.streamed import (
    ENTROPY,
    FACTOR,
    KEY,
    LOG_SUM,
    MANY,
    MANY_KEYS,
    MAX_SCORE,
    MAX_WEIGHT,
    ROW_STATS,
    SCORES,
)
from glasshead.engines.streaming.kernels.tiles import MATRIX_TILES, rounded, rounded_pair
from glasshead.engines.streaming.kernels.vectors import PLACE, TILE, Row, places_of, steps


@intrinsic
def largest_of(typing_context: Any, numbers: Any, first: Any, count: Any) -> Any:  # noqa: ARG001 - Numba's protocol
    """Return the largest of `count` numbers of a flat array from a place on; -inf of none or NaN.

    No compiler makes vector code of a maximum that ignores NaN, nor keeps the maxima of groups in
    registers.
    """

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start, many = places_of(context, builder, signature, arguments, (1, 2))
        row = Row(context, builder, signature.args[0], arguments[0], start)

        def larger(x: Any, known: Any) -> Any:
            return builder.select(builder.fcmp_ordered(">", x, known), x, known)

        def vectors(at: Any, known: list[Any]) -> list[Any]:
            return [
                larger(row.load(builder.add(at, PLACE(n * row.lanes)), row.vector), one)
                for n, one in enumerate(known)
            ]

        def single(at: Any, known: list[Any]) -> list[Any]:
            return [larger(row.load(at, row.real), known[0])]

        nothing = constant(row.vector, -math.inf)
        is_wide = builder.icmp_signed(">=", many, PLACE(row.lanes))
        with builder.if_else(is_wide) as (wide, narrow):
            with wide:
                place, maxima = steps(
                    builder, PLACE(0), many, 4 * row.lanes, [nothing] * 4, vectors
                )
                one = larger(larger(maxima[0], maxima[1]), larger(maxima[2], maxima[3]))
                _, (one,) = steps(builder, place, many, row.lanes, [one], vectors)
                # The last vector overlaps the one before.
                last = builder.sub(many, PLACE(row.lanes))
                most = row.reduced(larger(row.load(last, row.vector), one), larger)
                from_wide = builder.block
            with narrow:
                lowest = ir.Constant(row.real, -math.inf)
                _, (few,) = steps(builder, PLACE(0), many, 1, [lowest], single)
                from_narrow = builder.block
        result = builder.phi(row.real)
        result.add_incoming(most, from_wide)
        result.add_incoming(few, from_narrow)
        return result

    return numbers.dtype(numbers, first, count), code


@intrinsic
def weights_of(
    typing_context: Any,  # noqa: ARG001 - Numba's protocol
    numbers: Any,
    factor: Any,
    top: Any,
    least: Any,
    kept: Any,
    halves: Any,
) -> Any:
    """Replace each x by e^y for y = factor · x - top, and return the sums of e^y and of y e^y.

    A y below `least` counts as `least`. A row takes the same additions wherever it begins, and none
    of them one by one if it fills a vector. The results go to `halves`, rounded to bfloat16, if
    that is not empty; x itself is replaced if it is to be `kept`.
    """
    signature = types.UniTuple(numbers.dtype, 2)(numbers, factor, top, least, kept, halves)

    def code(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        row = Row(context, builder, sig.args[0], arguments[0], PLACE(0))
        half = Row(context, builder, sig.args[5], arguments[5], PLACE(0))
        parts = [
            context.cast(builder, value, kind, numbers.dtype)
            for value, kind in zip(arguments[1:4], sig.args[1:4], strict=True)
        ]
        exponentials = _Exponentials(row, half, parts, arguments[4])
        is_wide = builder.icmp_signed(">=", row.length, PLACE(row.lanes))
        with builder.if_else(is_wide) as (wide, narrow):
            with wide:
                of_wide = exponentials.in_vectors()
                from_wide = builder.block
            with narrow:
                of_narrow = exponentials.one_by_one()
                from_narrow = builder.block
        results = []
        for one, other in zip(of_wide, of_narrow, strict=True):
            results.append(builder.phi(row.real))
            results[-1].add_incoming(one, from_wide)
            results[-1].add_incoming(other, from_narrow)
        return context.make_tuple(builder, sig.return_type, results)

    return signature, code


class _Exponentials:
    """The code of `weights_of`.

    Args:
        row, half: The numbers, and where they go rounded.
        parts: The factor, what is subtracted, and the least y.
        is_kept: Whether the numbers are replaced.
    """

    def __init__(self, row: Row, half: Row, parts: list[Any], is_kept: Any) -> None:
        self.builder, self.row, self.half, self.is_kept = row.builder, row, half, is_kept
        self._parts, self._wide_parts = parts, [row.splat(one) for one in parts]

    def in_vectors(self) -> list[Any]:
        """Replace the numbers of a row that fills a vector, and return the sums."""
        builder, row = self.builder, self.row
        # The last vector overlaps the one before, whose numbers are replaced by then.
        last = builder.sub(row.length, PLACE(row.lanes))
        left = row.load(last, row.vector)
        step, zeros = self._step(row.vector), constant(row.vector, 0.0)
        place, sums = steps(builder, PLACE(0), row.length, 4 * row.lanes, [zeros] * 8, step)
        sums = [self._plus(self._plus(*sums[n::4]), self._plus(*sums[n + 2 :: 4])) for n in (0, 1)]
        place, sums = steps(builder, place, row.length, row.lanes, sums, step)
        p, by_log = self._weight(left)
        self._store([(p, last)])
        is_new = self._lanes_from(builder.sub(place, last))
        return [
            row.reduced(self._plus(total, builder.select(is_new, one, zeros)), self._plus)
            for total, one in zip(sums, (p, by_log), strict=True)
        ]

    def one_by_one(self) -> list[Any]:
        """Replace the few numbers of a row, and return the sums."""
        row, zero = self.row, ir.Constant(self.row.real, 0.0)
        step = self._step(row.real)
        return steps(self.builder, PLACE(0), row.length, 1, [zero, zero], step)[1]

    def _step(self, kind: ir.Type) -> Callable[[Any, list[Any]], list[Any]]:
        """Return what replaces a number or some vectors, and adds to two sums of each."""

        def step(at: Any, sums: list[Any]) -> list[Any]:
            nexts, weights = [], []
            for n in range(0, len(sums), 2):
                place = self.builder.add(at, PLACE(n // 2 * self.row.lanes))
                p, by_log = self._weight(self.row.load(place, kind))
                weights.append((p, place))
                nexts += [self._plus(sums[n], p), self._plus(sums[n + 1], by_log)]
            self._store(weights)
            return nexts

        return step

    def _weight(self, x: Any) -> tuple[Any, Any]:
        """Return e^y and y e^y."""
        builder, row = self.builder, self.row
        factor, top, least = self._wide_parts if x.type == row.vector else self._parts
        y = builder.fsub(builder.fmul(x, factor, flags=STRICT), top, flags=STRICT)
        y = builder.select(builder.fcmp_ordered("<", y, least), least, y)
        p = exponential_of(builder, SINGLE if row.bytes == 4 else DOUBLE, y)
        return p, builder.fmul(p, y, flags=STRICT)

    def _store(self, weights: list[tuple[Any, Any]]) -> None:
        """Write weights to their places, and rounded."""
        builder, row, half = self.builder, self.row, self.half
        with builder.if_then(self.is_kept):
            for p, place in weights:
                row.store(p, place)
        if not MATRIX_TILES or row.dtype != types.float32:
            return
        with builder.if_then(builder.not_(half.is_empty)):
            while len(weights) > 1:
                (low, place), (high, _), *weights = weights
                half.store(rounded_pair(builder, low, high), place)
            for p, place in weights:
                bits = rounded(builder, p if p.type == row.vector else row.splat(p))
                if p.type != row.vector:
                    bits = builder.extract_element(bits, ir.IntType(32)(0))
                half.store(bits, place)

    def _lanes_from(self, first: Any) -> Any:
        """Return which lanes of a vector come from a place on."""
        builder = self.builder
        kind = ir.VectorType(ir.IntType(32), self.row.lanes)
        undefined = ir.Constant(kind, ir.Undefined)
        first = builder.trunc(first, ir.IntType(32))
        one = builder.insert_element(undefined, first, ir.IntType(32)(0))
        firsts = builder.shuffle_vector(one, undefined, constant(kind, 0))
        lanes = ir.Constant(kind, list(range(self.row.lanes)))
        return builder.icmp_signed(">=", lanes, firsts)

    def _plus(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(a, b, flags=STRICT)


@intrinsic
def place_of(typing_context: Any, number: Any, numbers: Any, first: Any, count: Any) -> Any:  # noqa: ARG001 - Numba's protocol
    """Return the place of the first of `count` numbers that equals one; `count` where none does."""
    real = ir.FloatType() if numbers.dtype == types.float32 else ir.DoubleType()
    lanes = TILE.bytes * 8 // numbers.dtype.bitwidth
    vector, bits, i64 = ir.VectorType(real, lanes), ir.IntType(lanes), ir.IntType(64)
    signature = types.int64(numbers.dtype, numbers, first, count)

    def code(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        data = context.make_array(sig.args[1])(context, builder, arguments[1]).data
        start, many = (
            context.cast(builder, value, kind, types.int64)
            for value, kind in zip(arguments[2:], sig.args[2:], strict=True)
        )
        before = builder.block
        found = builder.append_basic_block("found")
        places = []

        def loop(name: str, place: Any, entered: Any, width: int) -> Any:
            """Go on in steps of `width` numbers while these fit and none is found."""
            head, body, after, done = map(
                builder.append_basic_block, (name, f"{name}_body", f"{name}_next", f"{name}_end")
            )
            builder.branch(head)
            builder.position_at_end(head)
            at = builder.phi(i64)
            following = builder.add(at, i64(width))
            builder.cbranch(builder.icmp_signed("<=", following, many), body, done)
            builder.position_at_end(body)
            spot = builder.gep(data, [builder.add(start, at)])
            if width > 1:
                spot = builder.bitcast(spot, vector.as_pointer())
                splat = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
                undefined = ir.Constant(vector, ir.Undefined)
                one = builder.insert_element(undefined, arguments[0], ir.IntType(32)(0))
                wanted = builder.shuffle_vector(one, undefined, splat)
            else:
                wanted = arguments[0]
            value = builder.load(spot, align=numbers.dtype.bitwidth // 8)
            same = builder.fcmp_ordered("==", value, wanted)
            where = i64(0)
            if width > 1:
                mask = builder.bitcast(same, bits)
                same = builder.icmp_unsigned("!=", mask, bits(0))
                lane = builder.cttz(mask, ir.IntType(1)(1))
                where = builder.zext(lane, i64) if lanes < 64 else lane
            places.append((builder.add(at, where), body))
            builder.cbranch(same, found, after)
            builder.position_at_end(after)
            builder.branch(head)
            at.add_incoming(place, entered)
            at.add_incoming(following, after)
            builder.position_at_end(done)
            return at

        place = loop("vectors", i64(0), before, lanes)
        place = loop("last", place, builder.block, 1)
        places.append((many, builder.block))
        builder.branch(found)
        builder.position_at_end(found)
        result = builder.phi(i64)
        for value, block in places:
            result.add_incoming(value, block)
        return result

    return signature, code


@kernel
def cap(scores, softcap):
    """Apply s = softcap · tanh(s / softcap), in vectorized code.

    Far from 0 by e^(-2|y|) for y = s / softcap; near to it, where that would lose the digits, by
    the series of tanh, whose next term is below 4e-15 of the sum.
    """
    real = scores.dtype.type
    one, most, factor = real(1), real(softcap), real(1 / softcap)
    for j in range(len(scores)):
        y = abs(scores[j]) * factor
        power = exponential(real(-2) * y)
        square = y * y
        series = real(62 / 2835) - square * real(1382 / 155925)
        series = real(-17 / 315) + square * series
        series = real(2 / 15) + square * series
        series = real(-1 / 3) + square * series
        size = y * (one + square * series) if y < real(0.1) else (one - power) / (one + power)
        scores[j] = most * (size if scores[j] >= 0 else -size)


@kernel
def add_table(scores, table, first):
    """Add table_(first + last row - i + j) to s_ij, one number a diagonal; -inf hides."""
    hidden = scores.dtype.type(-np.inf)
    last = len(scores) - 1
    for i in range(len(scores)):
        place = first + last - i
        # Columns beyond the table have no key.
        diagonal = table[place : place + scores.shape[1]]
        row = scores[i, : len(diagonal)]
        for j in range(len(row)):
            row[j] = hidden if diagonal[j] == hidden else row[j] + diagonal[j]


@kernel
def add_bias(scores, first, first_key, bias, bounds):
    """Add bias_ij to s_ij; where the bias is -inf so is the sum, whatever the score."""
    hidden = scores.dtype.type(-np.inf)
    for i in range(len(scores)):
        start, stop = bounds[0, first + i], bounds[1, first + i]
        row = scores[i, start - first_key : stop - first_key]
        place = bias.first + (first + i) * bias.row + start
        part = bias.numbers[place : place + len(row)]
        for j in range(len(row)):
            row[j] = hidden if part[j] == hidden else row[j] + part[j]


@kernel
def hide(scores, first, first_key, visible, bounds):
    """Set s_ij = -inf where pair (i, j) is not visible."""
    hidden = scores.dtype.type(-np.inf)
    for i in range(len(scores)):
        start, stop = bounds[0, first + i], bounds[1, first + i]
        row = scores[i, start - first_key : stop - first_key]
        place = visible.first + (first + i) * visible.row + start
        part = visible.numbers[place : place + len(row)]
        for j in range(len(row)):
            row[j] = row[j] if part[j] != 0 else hidden


# A fused product less the largest score, which was rounded, is off by half of the last bit of that:
# too much for scores beyond this size.
SMALL = 64.0


@kernel
def weigh(scores, scale, block, bounds, sink, halves, rows):
    """Turn the scores s of each row into exp(s - max), and sum over them.

    Args:
        scores: `[queries, keys]`, in place; 0 outside of what a row sees.
        scale: What still multiplies the scores, above 0.
        block: The first query and key, whether the result replaces the scores, and whether the key
            of the maximum is recorded.
        bounds: The first key that each query sees, and the one after the last, `[2, queries]` of
            all queries; -inf between them hides, too.
        sink: A score without a key, -inf if there is none.
        halves: The result, rounded to bfloat16, flat; of size 0 where nobody reads it.
        rows: The statistics of each row but the distances, `[9, queries]` of all queries. FACTOR
            turns the scores, as they are left here, into weights.
    """
    real = scores.dtype.type
    zero, one, nothing = real(0), real(1), real(-np.inf)
    least = real(-88.0) if scores.itemsize == 4 else real(-709.0)
    first_key = block.start
    for i in range(len(scores)):
        at = block.first + i
        start, stop = bounds[0, at] - first_key, bounds[1, at] - first_key
        start, stop = (start, stop) if start < stop else (0, 0)
        row = scores[i, start:stop]
        fill(scores[i, :start], zero)
        fill(scores[i, stop:], zero)
        half = halves[i * scores.shape[1] : (i + 1) * scores.shape[1]]
        fill(half[:start], 0)
        fill(half[stop:], 0)
        half = half[start:stop]

        largest = largest_of(row, 0, len(row))

        broken = False
        if largest == -np.inf:
            # Either all hidden or NaN; only this rare case finds out which.
            for j in range(len(row)):
                broken = broken or row[j] != row[j]
        if largest == -np.inf and not broken:
            fill(row, zero)
            fill(half, 0)
            for r in range(ROW_STATS):
                rows[r, at] = 0
            rows[LOG_SUM, at] = rows[MAX_SCORE, at] = nothing
            rows[KEY, at], rows[MANY_KEYS, at] = MANY - 1, -1
            continue

        infinite = largest == np.inf
        if infinite:
            for j in range(len(row)):
                infinite = infinite and row[j] == row[j]

        key = -1
        if block.keyed:
            key = place_of(largest, row, 0, len(row))
            key = -1 if key == len(row) else key + start + first_key

        largest *= scale
        factor = scale
        if scale != one and not abs(largest) <= SMALL:
            factor = one
            for j in range(len(row)):
                row[j] *= scale
        top = max(largest, sink)
        total, by_log = weights_of(row, factor, top, least, block.kept, half)
        whole = total
        if sink != -np.inf:
            whole += real(np.exp(sink - top))
        inverse = one / whole
        log = real(np.log(whole))
        rows[LOG_SUM, at] = top + log
        rows[MAX_SCORE, at] = largest
        rows[MAX_WEIGHT, at] = real(np.exp(largest - top)) * inverse
        rows[ENTROPY, at] = (log * total - by_log) * inverse
        rows[SCORES, at] = (by_log + top * total) * inverse
        rows[FACTOR, at] = inverse
        if np.isnan(total):
            # Where scores are NaN, the first of them counts as the largest.
            rows[MAX_SCORE, at] = rows[MAX_WEIGHT, at] = total
            if infinite:
                rows[LOG_SUM, at] = rows[MAX_SCORE, at] = largest
            for j in range(len(row)):
                if np.isnan(row[j]):
                    key = j + start + first_key
                    break
        rows[KEY, at], rows[MANY_KEYS, at] = key % MANY, key // MANY
