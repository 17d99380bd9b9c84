"""Matrix products of small blocks, with their sums held in registers."""

from typing import Any, NamedTuple

from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic


class _Tile(NamedTuple):
    """A product's tile: so many rows, and so many vectors of so many bytes side by side."""

    rows: int
    vectors: int
    bytes: int


def _tile() -> _Tile:
    """What fits the registers of this machine, half of which at most hold sums."""
    features = binding.get_host_cpu_features()
    if features.get("avx512f"):
        return _Tile(8, 2, 64)
    return _Tile(4, 2, 32) if features.get("avx") else _Tile(6, 2, 16)


TILE = _tile()
ROWS = TILE.rows


def columns_of(itemsize: int) -> int:
    """How many columns a tile has, of numbers of so many bytes."""
    return TILE.vectors * TILE.bytes // itemsize


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
    """C = scale · A B, or C = scale · (C + A B), for one tile of C.

    A, B and C are flat arrays. Each begins at its first place; a step down a row of A, B and C is
    so many places, one to the next column of A too. Scaling the sum, rather than what is summed,
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
    """How many bytes a number takes."""
    return 4 if isinstance(real, ir.FloatType) else 8
