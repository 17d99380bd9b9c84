"""Vectors as the products take them: widened from half precision, packed in panels, copied."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from glasshead.engines.streaming.kernels.options import fill, kernel
from glasshead.engines.streaming.kernels.processor import SIDE, SQUARE


@intrinsic
def single_of(typing_context: Any, half: Any, is_bfloat16: Any) -> Any:  # noqa: ARG001 - Numba's protocol
    """Convert the 16 bits of a number of half precision, exactly, in integers that make vectors.

    A bfloat16 is the upper half of a float32. A float16 has a bias of 15, not 127, and 10 bits of
    fraction, not 23; a subnormal one is its fraction times 2⁻²⁴. LLVM's own conversion would be a
    call on processors without one.
    """
    if half != types.int16:
        return None

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        half, is_bfloat16 = arguments
        word, real = ir.IntType(32), ir.FloatType()
        bits = builder.zext(half, word)
        rest = builder.and_(bits, word(0x7FFF))
        fraction = builder.shl(rest, word(13))
        normal = builder.add(fraction, word((127 - 15) << 23))
        not_finite = builder.or_(fraction, word(0x7F800000))
        subnormal = builder.fmul(builder.uitofp(rest, real), ir.Constant(real, 2.0**-24))
        size = builder.select(
            builder.icmp_unsigned(">=", rest, word(0x7C00)),
            not_finite,
            builder.select(
                builder.icmp_unsigned("<", rest, word(0x0400)),
                builder.bitcast(subnormal, word),
                normal,
            ),
        )
        sign = builder.shl(builder.and_(bits, word(0x8000)), word(16))
        whole = builder.select(is_bfloat16, builder.shl(bits, word(16)), builder.or_(size, sign))
        return builder.bitcast(whole, real)

    return types.float32(half, types.boolean), code


@kernel
def widen(halves, count, across, is_bfloat16, numbers):
    """Convert vectors of half precision to rows of `across` numbers, padded with 0."""
    dim = halves.width
    for i in range(count):
        place = i * halves.row
        vector = halves.numbers[place : place + dim]
        row = numbers[i * across : (i + 1) * across]
        if is_bfloat16:
            for d in range(dim):
                row[d] = single_of(vector[d], True)
        else:
            for d in range(dim):
                row[d] = single_of(vector[d], False)
        fill(row[dim:], 0)


@kernel
def pack(matrix, count, width, panels):
    """Pack vectors as panels of `width` vectors each, transposed, the last one padded with 0.

    A product over a panel reads memory in order.
    """
    dim = matrix.width
    for first in range(0, count, width):
        many = min(width, count - first)
        panel = panels[first * dim : (first + width) * dim]
        if many < width:
            fill(panel, 0)
        for lane in range(many):
            place = (first + lane) * matrix.row
            vector = matrix.numbers[place : place + dim]
            for d in range(dim):
                panel[d * width + lane] = vector[d]


@intrinsic
def _copy_pairs(
    typing_context: Any,  # noqa: ARG001 - Numba's protocol
    halves: Any,
    first: Any,
    count: Any,
    above: Any,
    words: Any,
    into: Any,
) -> Any:
    """Copy `count` numbers, whole vectors of 32, as pairs, and return the smallest size less 1.

    0 is the largest then. No compiler makes such code of loops over halves.
    """
    signature = types.int64(halves, first, count, above, words, into)

    def code(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        source, target = (
            context.make_array(sig.args[n])(context, builder, arguments[n]).data for n in (0, 4)
        )
        start, many, place = (
            context.cast(builder, arguments[n], sig.args[n], types.int64) for n in (1, 2, 5)
        )
        word, half = ir.IntType(32), ir.IntType(16)
        pairs, numbers = ir.VectorType(word, SIDE), ir.VectorType(half, 2 * SIDE)

        def splat(number: int, kind: ir.VectorType) -> ir.Constant:
            return ir.Constant(kind, [number] * kind.count)

        turn = builder.select(arguments[3], splat(16, pairs), splat(0, pairs))
        least = cgutils.alloca_once_value(builder, splat(-1, numbers))
        kind = ir.FunctionType(pairs, [pairs] * 3)
        rotate = cgutils.get_or_insert_function(builder.module, kind, "llvm.fshl.v16i32")
        vectors = builder.sdiv(many, ir.IntType(64)(2 * SIDE))
        with cgutils.for_range(builder, vectors) as loop:
            step = builder.mul(loop.index, ir.IntType(64)(SIDE))
            spot = builder.gep(source, [builder.add(start, builder.shl(step, step.type(1)))])
            found = builder.load(builder.bitcast(spot, pairs.as_pointer()), align=2)
            spot = builder.gep(target, [builder.add(place, step)])
            turned = builder.call(rotate, [found, found, turn])
            builder.store(turned, builder.bitcast(spot, pairs.as_pointer()), align=4)
            sizes = builder.and_(builder.bitcast(found, numbers), splat(0x7FFF, numbers))
            sizes = builder.sub(sizes, splat(1, numbers))
            known = builder.load(least)
            smaller = builder.icmp_unsigned("<", sizes, known)
            builder.store(builder.select(smaller, sizes, known), least)
        kind = ir.FunctionType(half, [numbers])
        name = "llvm.vector.reduce.umin.v32i16"
        reduce = cgutils.get_or_insert_function(builder.module, kind, name)
        return builder.zext(builder.call(reduce, [builder.load(least)]), ir.IntType(64))

    return signature, code


@kernel
def pair_up(vectors, count, deep, above, pairs, least):
    """Make rows of pairs of bfloat16, two in a word, filled up with 0.

    Args:
        vectors, count: What is paired.
        deep: The pairs of a row.
        above: Whether the earlier number of a pair is the one above; else words are copied.
        pairs: The result.
        least: Of one number: the bits of the smallest size other than 0, or of infinity.
    """
    dim, step = vectors.width, 2 * SIDE
    lowest = 0x7F7F
    if dim == vectors.row == 2 * deep and dim % step == 0:
        lowest = min(lowest, _copy_pairs(vectors.numbers, 0, count * dim, above != 0, pairs, 0))
    else:
        whole = dim // step * step
        for i in range(count):
            place, row = i * vectors.row, i * deep
            if whole:
                lowest = min(
                    lowest,
                    _copy_pairs(vectors.numbers, place, whole, above != 0, pairs, row),
                )
            for d in range(whole, dim, 2):
                one = np.int64(vectors.numbers[place + d]) & 0xFFFF
                other = np.int64(vectors.numbers[place + d + 1]) & 0xFFFF if d + 1 < dim else 0
                pairs[row + d // 2] = one << 16 | other if above else other << 16 | one
                for number in (one, other):
                    lowest = min(lowest, ((number & 0x7FFF) - 1) & 0xFFFF)
            fill(pairs[row + (dim + 1) // 2 : row + deep], 0)
    fill(pairs[count * deep :], 0)
    least[0] = lowest + 1


@intrinsic
def _pair_vectors(typing_context: Any, low: Any, high: Any, first: Any, words: Any) -> Any:  # noqa: ARG001 - Numba's protocol
    """Make 16 words of halves from a place on; no compiler makes one vector of so short a loop."""
    signature = types.void(low, high, first, words)

    def code(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        halves, whole = (ir.VectorType(ir.IntType(bits), SIDE) for bits in (16, 32))
        below, above, into = (
            context.make_array(sig.args[n])(context, builder, arguments[n]).data for n in (0, 1, 3)
        )
        below, above = (
            builder.zext(
                builder.load(
                    builder.bitcast(builder.gep(x, [arguments[2]]), halves.as_pointer()), align=2
                ),
                whole,
            )
            for x in (below, above)
        )
        made = builder.or_(builder.shl(above, ir.Constant(whole, [16] * SIDE)), below)
        builder.store(made, builder.bitcast(into, whole.as_pointer()), align=4)
        return context.get_dummy_value()

    return signature, code


@kernel
def pair_rows(vectors, count, across, pairs):
    """Pair each two vectors of bfloat16, number by number, the earlier one below.

    Args:
        vectors, count: What is paired.
        across: The words of a row, of which those beyond the vectors' width are 0.
        pairs: The result, as tiles of 16 rows and words, row of tiles by row of tiles, with rows of
            0 up to a whole step of a product on matrix tiles.
    """
    dim = vectors.width
    for i in range((count + SQUARE - 1) // SQUARE * SIDE):
        place, tiles = 2 * i * vectors.row, (i // SIDE * across + i % SIDE) * SIDE
        low = vectors.numbers[place : place + (dim if 2 * i < count else 0)]
        place += vectors.row
        high = vectors.numbers[place : place + (dim if 2 * i + 1 < count else 0)]
        for first in range(0, across, SIDE):
            row = pairs[tiles + first * SIDE : tiles + (first + 1) * SIDE]
            if first + SIDE <= len(high):
                _pair_vectors(low, high, first, row)
                continue
            fill(row, 0)
            for d in range(min(SIDE, len(low) - first)):
                row[d] = np.int32(low[first + d]) & 0xFFFF
            for d in range(min(SIDE, len(high) - first)):
                row[d] |= np.int32(high[first + d]) << 16


@kernel
def copy_rows(matrix, first, count, across, block):
    """Copy vectors into rows of `across` numbers, padded with 0."""
    dim = matrix.width
    for i in range(count):
        place = (first + i) * matrix.row
        vector = matrix.numbers[place : place + dim]
        row = block[i * across : (i + 1) * across]
        for d in range(dim):
            row[d] = vector[d]
        fill(row[dim:], 0)
    fill(block[count * across :], 0)
