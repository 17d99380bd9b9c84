"""Products of packed vectors, a tile of registers at a time."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from glasshead.engines.streaming.kernels.options import together
from glasshead.engines.streaming.kernels.processor import at_hand
from glasshead.engines.streaming.kernels.tiles import times_paired_panels

TILE, HALF_PRODUCTS = at_hand().tile, at_hand().half_products
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

    A and B may hold pairs of bfloat16, which give the same bits as if they were widened.
    """
    real = ir.FloatType() if c.dtype == types.float32 else ir.DoubleType()
    lanes = TILE.bytes // real_bytes(real)
    vector = ir.VectorType(real, lanes)
    paired = a.dtype == types.int32
    factors = ir.VectorType(ir.IntType(32), lanes) if paired else vector
    signature = types.void(
        a, a_first, a_row, a_column, b, b_first, b_row, depth, c, c_first, c_row, add, scale
    )

    def code(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        if paired and not (HALF_PRODUCTS and c.dtype == types.float32):
            # Nobody packs pairs for these kernels.
            return context.get_dummy_value()
        values = list(arguments)
        for place in (0, 4, 8):
            values[place] = context.make_array(sig.args[place])(
                context, builder, values[place]
            ).data
        for place in (1, 2, 3, 5, 6, 7, 9, 10):
            values[place] = context.cast(builder, values[place], sig.args[place], types.int64)
        pa, fa, ra, ca, pb, fb, rb, n, pc, fc, rc, more, factor = values
        factor = context.cast(builder, factor, sig.args[12], c.dtype)
        i64 = ir.IntType(64)

        def vector_at(pointer: Any, place: Any, kind: ir.Type = vector) -> Any:
            return builder.bitcast(builder.gep(pointer, [place]), kind.as_pointer())

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
            builder.load(
                vector_at(pb, builder.add(row, i64(v * lanes)), factors), align=real_bytes(real)
            )
            for v in range(TILE.vectors)
        ]
        column = builder.add(fa, builder.mul(k, ca))
        splat = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
        undefined = ir.Constant(factors, ir.Undefined)
        add_products = _add_pairs if paired else _add_numbers
        nexts = []
        for i in range(TILE.rows):
            place = builder.add(column, builder.mul(ra, i64(i)))
            left = builder.load(builder.gep(pa, [place]), align=real_bytes(real))
            one = builder.insert_element(undefined, left, ir.IntType(32)(0))
            left = builder.shuffle_vector(one, undefined, splat)
            nexts += [
                add_products(builder, sums[i * TILE.vectors + v], left, right[v])
                for v in range(TILE.vectors)
            ]
        following = builder.add(k, i64(1))
        k.add_incoming(following, loop)
        for value, total in zip(sums, nexts, strict=True):
            value.add_incoming(total, loop)
        builder.cbranch(builder.icmp_signed("<", following, n), loop, done)
        builder.position_at_end(done)
        undefined = ir.Constant(vector, ir.Undefined)
        one = builder.insert_element(undefined, factor, ir.IntType(32)(0))
        scales = builder.shuffle_vector(one, undefined, splat)
        for (i, v), total in zip(tile, nexts, strict=True):
            builder.store(
                builder.fmul(total, scales),
                vector_at(pc, place_in_c(i, v)),
                align=real_bytes(real),
            )
        return context.get_dummy_value()

    return signature, code


def real_bytes(real: ir.Type) -> int:
    """Return the bytes of one number."""
    return 4 if isinstance(real, ir.FloatType) else 8


def _add_numbers(builder: Any, total: Any, left: Any, right: Any) -> Any:
    """Add products of numbers."""
    product = builder.fmul(left, right, flags=("contract",))
    return builder.fadd(total, product, flags=("contract",))


def _add_pairs(builder: Any, total: Any, left: Any, right: Any) -> Any:
    """Add the products of the upper bfloat16 of each word, then those of the lower (VDPBF16PS).

    Each sum is rounded as that of a fused multiply-add, but what is subnormal counts as 0.
    """
    # Words, as LLVM before version 16 takes no bfloat16 here, and later ones convert them.
    kind = ir.FunctionType(total.type, [total.type, left.type, right.type])
    name = "llvm.x86.avx512bf16.dpbf16ps.512"
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(function, [total, left, right])


@together
def times_panels(
    block, pairs, first, rows, across, dim, panels, first_key, keys, width, scale, product, row
):
    """Compute scale · block · vectorsᵀ, `[rows, keys]`; vectors are packed, rows fill tiles.

    Where the vectors are pairs, the block is that from row `first` of `pairs` on. The product has
    rows of `row` numbers.
    """
    if panels.tiled:
        times_paired_panels(
            pairs,
            first,
            rows,
            panels.deep,
            panels.pairs,
            first_key,
            keys,
            scale,
            product,
            row,
        )
    elif len(panels.pairs):
        _times(
            pairs[first * panels.deep :],
            rows,
            panels.deep,
            panels.deep,
            panels.pairs,
            first_key,
            keys,
            width,
            scale,
            product,
            row,
        )
    else:
        _times(
            block, rows, across, dim, panels.numbers, first_key, keys, width, scale, product, row
        )


@together
def _times(block, rows, across, dim, panels, first_key, keys, width, scale, product, row):
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
                i * row + j,
                row,
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
