"""Weights of a block: bias, mask and softmax of its scores, and the statistics of each row."""

import math
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from glasshead.engines.streaming.kernels.options import fill, kernel
from glasshead.engines.streaming.kernels.products import TILE
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


class _Format(NamedTuple):
    """Constants of a floating-point format that the exponential needs.

    Attributes:
        real, whole: The type, and the integer as wide.
        mantissa, bias: The bits of the fraction, and of 2⁰ in the exponent's field.
        log2_high, log2_low: ln 2 in two parts, of which the first times a small integer is exact.
        series: Of the polynomial of e^r with the least relative error on |r| <= ln(2)/2, by
            Remez' exchange, the constant 1 first: 3e-9, and 6e-20.
        least: Below it, the result is 0.
    """

    real: ir.Type
    whole: ir.IntType
    mantissa: int
    bias: int
    log2_high: float
    log2_low: float
    series: tuple[float, ...]
    least: float


_SINGLE = _Format(
    ir.FloatType(),
    ir.IntType(32),
    23,
    127,
    0.693359375,
    -2.12194440054690583e-4,
    (
        *(1.0, 1.0, 0.50000004357462656294, 0.16666364808738956911, 0.041664773315148213547),
        *(0.0083790590356911787929, 0.0014061422676135338258),
    ),
    -87.3,
)
_DOUBLE = _Format(
    ir.DoubleType(),
    ir.IntType(64),
    52,
    1023,
    6.93147180369123816490e-01,
    1.90821492927058770002e-10,
    (
        *(1.0, 1.0, 0.49999999999999999805, 0.16666666666666713087, 0.041666666666667032792),
        *(0.0083333333333040228239, 0.001388888888869895936, 0.00019841269920585434309),
        *(2.4801587703064168462e-05, 2.7557214829795848557e-06, 2.7556940385556964264e-07),
        *(2.5118115489641349194e-08, 2.1020651066039177489e-09),
    ),
    -708.0,
)
# No reassociation: it would remove the addition that rounds to an integer.
_STRICT = ("contract",)


@intrinsic
def exponential(typing_context: Any, x: Any) -> Any:  # noqa: ARG001 - Numba's protocol
    """Compute e^x for x <= 0, to about an ulp; 0 where it would be subnormal, NaN where x is.

    x = n ln 2 + r, so that e^x = 2ⁿ e^r; e^r is a polynomial, 2ⁿ an exponent's field. The
    C library's function is a call, which no compiler turns into vector code.
    """
    if x not in (types.float32, types.float64):
        return None
    of = _SINGLE if x == types.float32 else _DOUBLE
    as_float = np.float32 if x == types.float32 else np.float64

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        def number(value: float) -> ir.Constant:
            return ir.Constant(of.real, float(as_float(value)))

        def times_plus(a: Any, b: Any, c: Any) -> Any:
            return builder.fadd(builder.fmul(a, b, flags=_STRICT), c, flags=_STRICT)

        (value,) = arguments
        # Adding 1.5 · 2^mantissa leaves the nearest integer in the last bits.
        magic = number(1.5 * 2.0**of.mantissa)
        rounded = times_plus(value, number(1 / math.log(2)), magic)
        n = builder.fsub(rounded, magic, flags=_STRICT)
        r = times_plus(n, number(-of.log2_high), value)
        r = times_plus(n, number(-of.log2_low), r)
        result = number(of.series[-1])
        for factor in reversed(of.series[:-1]):
            result = times_plus(result, r, number(factor))
        exponent = builder.add(builder.bitcast(rounded, of.whole), of.whole(of.bias))
        two_to_n = builder.bitcast(builder.shl(exponent, of.whole(of.mantissa)), of.real)
        result = builder.fmul(result, two_to_n, flags=_STRICT)
        return builder.select(
            builder.fcmp_ordered("<", value, number(of.least)), number(0.0), result
        )

    return x(x), code


@intrinsic
def largest_of(typing_context: Any, numbers: Any, first: Any, count: Any) -> Any:  # noqa: ARG001 - Numba's protocol
    """Return the largest of `count` numbers of a flat array, from `first` on; -inf of none or NaN.

    No compiler makes vector code of a maximum that ignores NaN, nor keeps the maxima of groups in
    registers.
    """
    real = ir.FloatType() if numbers.dtype == types.float32 else ir.DoubleType()
    lanes = TILE.bytes * 8 // numbers.dtype.bitwidth
    vector, i64 = ir.VectorType(real, lanes), ir.IntType(64)
    signature = numbers.dtype(numbers, first, count)

    def code(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        data = context.make_array(sig.args[0])(context, builder, arguments[0]).data
        start, many = (
            context.cast(builder, value, kind, types.int64)
            for value, kind in zip(arguments[1:], sig.args[1:], strict=True)
        )

        def larger(x: Any, known: Any) -> Any:
            return builder.select(builder.fcmp_ordered(">", x, known), x, known)

        def loop(name: str, place: Any, known: list[Any], kind: ir.Type, width: int) -> Any:
            """Go on in steps of all `known`, which hold `width` numbers each, while these fit."""
            before = builder.block
            head, body, done = map(
                builder.append_basic_block, (name, f"{name}_body", f"{name}_end")
            )
            builder.branch(head)
            builder.position_at_end(head)
            at, maxima = builder.phi(i64), [builder.phi(kind) for _ in known]
            following = builder.add(at, i64(len(known) * width))
            builder.cbranch(builder.icmp_signed("<=", following, many), body, done)
            builder.position_at_end(body)
            nexts = []
            for n, one in enumerate(maxima):
                spot = builder.gep(data, [builder.add(start, builder.add(at, i64(n * width)))])
                spot = builder.bitcast(spot, kind.as_pointer())
                nexts.append(larger(builder.load(spot, align=numbers.dtype.bitwidth // 8), one))
            builder.branch(head)
            for phi, value, following_value in zip(
                (at, *maxima), (place, *known), (following, *nexts), strict=True
            ):
                phi.add_incoming(value, before)
                phi.add_incoming(following_value, body)
            builder.position_at_end(done)
            return at, maxima

        nothing = ir.Constant(vector, [float("-inf")] * lanes)
        place, maxima = loop("four", i64(0), [nothing] * 4, vector, lanes)
        together = larger(larger(maxima[0], maxima[1]), larger(maxima[2], maxima[3]))
        place, (together,) = loop("one", place, [together], vector, lanes)
        result = builder.extract_element(together, ir.IntType(32)(0))
        for lane in range(1, lanes):
            result = larger(builder.extract_element(together, ir.IntType(32)(lane)), result)
        _, (result,) = loop("last", place, [result], real, 1)
        return result

    return signature, code


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
_SMALL = 64.0


@kernel
def weigh(scores, scale, first, first_key, bounds, sink, keyed, rows):
    """Turn the scores s of each row into exp(s - max), and sum over them.

    Args:
        scores: `[queries, keys]`, in place; 0 outside of what a row sees.
        scale: What still multiplies the scores, above 0.
        first, first_key: The query of the first row and the key of the first column.
        bounds: The first key that each query sees, and the one after the last, `[2, queries]` of
            all queries; -inf between them hides, too.
        sink: A score without a key, -inf if there is none.
        keyed: Whether the key of the maximum is recorded.
        rows: The statistics of each row but the distances, `[9, queries]` of all queries. FACTOR
            turns the scores, as they are left here, into weights.
    """
    real = scores.dtype.type
    zero, one, nothing = real(0), real(1), real(-np.inf)
    least = real(-88.0) if scores.itemsize == 4 else real(-709.0)
    for i in range(len(scores)):
        at = first + i
        start, stop = bounds[0, at] - first_key, bounds[1, at] - first_key
        start, stop = (start, stop) if start < stop else (0, 0)
        row = scores[i, start:stop]
        fill(scores[i, :start], zero)
        fill(scores[i, stop:], zero)

        largest = largest_of(row, 0, len(row))

        broken = False
        if largest == -np.inf:
            # Either all hidden or NaN; only this rare case finds out which.
            for j in range(len(row)):
                broken = broken or row[j] != row[j]
        if largest == -np.inf and not broken:
            fill(row, zero)
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
        if keyed:
            key = place_of(largest, row, 0, len(row))
            key = -1 if key == len(row) else key + start + first_key

        largest *= scale
        factor = scale
        if scale != one and not abs(largest) <= _SMALL:
            factor = one
            for j in range(len(row)):
                row[j] *= scale
        top = max(largest, sink)
        total = real(0)
        by_log = real(0)
        for j in range(len(row)):
            x = row[j] * factor - top
            x = max(x, least)
            p = exponential(x)
            row[j] = p
            total += p
            by_log += p * x
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
