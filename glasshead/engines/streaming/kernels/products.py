"""Vectors, widened, packed and copied, and their products, a tile of registers at a time."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from glasshead.engines.streaming.kernels.options import fill, kernel, together
from glasshead.engines.streaming.kernels.processor import at_hand

TILE = at_hand().tile
ROWS = TILE.rows


@intrinsic
def multiply_tile(
    typing_context: Any,  # noqa: ARG001 - Numba's protocol
    a: Any,
    a_first: Any,
    a_row: Any,
    a_column: Any,
    b: Any,
    b_first: Any,
    b_row: Any,
    depth: Any,
    c: Any,
    c_first: Any,
    c_row: Any,
    add: Any,
    scale: Any,
) -> Any:
    """Compute C = scale · A B, or C = scale · (C + A B), for one tile of C.

    A, B and C are flat arrays, given with the index of their first number, the stride of their
    rows, and for A that of its columns. Scaling the sum, rather than what is summed,
    rounds as `(q @ k.T) * scale` does.
    """
    real = ir.FloatType() if a.dtype == types.float32 else ir.DoubleType()
    lanes = TILE.bytes // (4 if a.dtype == types.float32 else 8)
    vector = ir.VectorType(real, lanes)
    signature = types.void(
        a, a_first, a_row, a_column, b, b_first, b_row, depth, c, c_first, c_row, add, scale
    )

    def code(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        values = list(arguments)
        for place in (0, 4, 8):
            values[place] = context.make_array(sig.args[place])(
                context, builder, values[place]
            ).data
        for place in (1, 2, 3, 5, 6, 7, 9, 10):
            values[place] = context.cast(builder, values[place], sig.args[place], types.int64)
        pa, fa, ra, ca, pb, fb, rb, n, pc, fc, rc, more, factor = values
        number = types.float32 if a.dtype == types.float32 else types.float64
        factor = context.cast(builder, factor, sig.args[12], number)
        i64 = ir.IntType(64)

        def vector_at(pointer: Any, place: Any) -> Any:
            return builder.bitcast(builder.gep(pointer, [place]), vector.as_pointer())

        def place_in_c(i: int, v: int) -> Any:
            return builder.add(fc, builder.add(builder.mul(rc, i64(i)), i64(v * lanes)))

        tile = [(i, v) for i in range(TILE.rows) for v in range(TILE.vectors)]
        zero = ir.Constant(vector, [0.0] * lanes)
        before = builder.block
        with builder.if_then(more):
            held = [
                builder.load(vector_at(pc, place_in_c(i, v)), align=real_bytes(real))
                for i, v in tile
            ]
            inside = builder.block
        begin = builder.block
        firsts = []
        for value in held:
            first = builder.phi(vector)
            first.add_incoming(zero, before)
            first.add_incoming(value, inside)
            firsts.append(first)

        loop = builder.append_basic_block("depth")
        done = builder.append_basic_block("done")
        builder.branch(loop)
        builder.position_at_end(loop)
        k = builder.phi(i64)
        k.add_incoming(i64(0), begin)
        sums = []
        for first in firsts:
            value = builder.phi(vector)
            value.add_incoming(first, begin)
            sums.append(value)
        row = builder.add(fb, builder.mul(k, rb))
        right = [
            builder.load(vector_at(pb, builder.add(row, i64(v * lanes))), align=real_bytes(real))
            for v in range(TILE.vectors)
        ]
        column = builder.add(fa, builder.mul(k, ca))
        splat = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
        undefined = ir.Constant(vector, ir.Undefined)
        nexts = []
        for i in range(TILE.rows):
            place = builder.add(column, builder.mul(ra, i64(i)))
            left = builder.load(builder.gep(pa, [place]), align=real_bytes(real))
            one = builder.insert_element(undefined, left, ir.IntType(32)(0))
            left = builder.shuffle_vector(one, undefined, splat)
            for v in range(TILE.vectors):
                product = builder.fmul(left, right[v], flags=("contract",))
                total = builder.fadd(sums[i * TILE.vectors + v], product, flags=("contract",))
                nexts.append(total)
        following = builder.add(k, i64(1))
        k.add_incoming(following, loop)
        for value, total in zip(sums, nexts, strict=True):
            value.add_incoming(total, loop)
        builder.cbranch(builder.icmp_signed("<", following, n), loop, done)
        builder.position_at_end(done)
        one = builder.insert_element(undefined, factor, ir.IntType(32)(0))
        factors = builder.shuffle_vector(one, undefined, splat)
        for (i, v), total in zip(tile, nexts, strict=True):
            builder.store(
                builder.fmul(total, factors),
                vector_at(pc, place_in_c(i, v)),
                align=real_bytes(real),
            )
        return context.get_dummy_value()

    return signature, code


def real_bytes(real: ir.Type) -> int:
    """Return the bytes of one number."""
    return 4 if isinstance(real, ir.FloatType) else 8


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


@together
def times_panels(block, rows, across, dim, panels, first_key, keys, width, scale, product):
    """Compute scale · block · vectorsᵀ, `[rows, keys]`; vectors are packed, rows fill tiles."""
    for j in range(0, keys, width):
        panel = (first_key + j) * dim
        for i in range(0, rows, ROWS):
            multiply_tile(
                block,
                i * across,
                across,
                1,
                panels,
                panel,
                width,
                dim,
                product,
                i * keys + j,
                keys,
                False,
                scale,
            )


# How many vectors stay in the L1 cache while a block passes over them.
_DEPTH = 128


@together
def times_matrix(block, rows, across, first, count, matrix, product, width):
    """Compute block · vectors, `[rows, dim]`, for `count` vectors from the first one on.

    They pass by in parts that stay in the nearest cache.
    """
    deep = min(across, count - first)
    for k in range(0, deep, _DEPTH):
        depth = min(_DEPTH, deep - k)
        for j in range(0, matrix.width, width):
            place = (first + k) * matrix.row + j
            for i in range(0, rows, ROWS):
                multiply_tile(
                    block,
                    i * across + k,
                    across,
                    1,
                    matrix.numbers,
                    place,
                    matrix.row,
                    depth,
                    product,
                    i * matrix.width + j,
                    matrix.width,
                    k > 0,
                    1,
                )
