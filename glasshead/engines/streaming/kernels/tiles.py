"""Products of pairs of bfloat16 on matrix tiles (AMX), with sums in float32.

TDPBF16PS adds, for 16 pairs, the products of the lower numbers in one chain of fused multiply-adds
and those of the upper numbers in another, and then both to the sum. What is subnormal counts as 0.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from glasshead.engines.streaming.kernels.arguments import Operand
from glasshead.engines.streaming.kernels.options import together
from glasshead.engines.streaming.kernels.processor import SIDE, SQUARE, at_hand

MATRIX_TILES = at_hand().matrix_tiles
# How many vectors pass by at a time: they and the numbers of a square stay in the L1 cache.
_DEPTH = 256
_WORD, _BYTE = ir.IntType(64), ir.IntType(8)


def _call(builder: Any, name: str, *arguments: Any) -> None:
    """Call an instruction of the tiles, whose numbers are constants."""
    kind = ir.FunctionType(ir.VoidType(), [one.type for one in arguments])
    builder.call(
        cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.{name}"), arguments
    )


@intrinsic
def open_tiles(typing_context: Any) -> Any:  # noqa: ARG001 - Numba's protocol
    """Make eight tiles of 16 rows of 64 bytes."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        if MATRIX_TILES:
            # Palette 1; the bytes of each tile's rows, in 16 bits each; their number, in 8.
            words = [1, 0, *[0x0040_0040_0040_0040] * 2, 0, 0, 0x1010_1010_1010_1010, 0]
            layout = cgutils.alloca_once(builder, ir.ArrayType(_WORD, 8))
            builder.store(ir.Constant(ir.ArrayType(_WORD, 8), words), layout)
            _call(builder, "ldtilecfg", builder.bitcast(layout, _BYTE.as_pointer()))
        return context.get_dummy_value()

    return types.void(), code


@intrinsic
def release_tiles(typing_context: Any) -> Any:  # noqa: ARG001 - Numba's protocol
    """Give the tiles back, which the system would otherwise save with the thread."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        if MATRIX_TILES:
            _call(builder, "tilerelease")
        return context.get_dummy_value()

    return types.void(), code


def fields_of(context: Any, builder: Any, kind: Any, operand: Any) -> list[Any]:
    """Return the pointer to the array of an `Operand`, its first place, and its steps."""
    (array, *places), (of_array, *kinds) = cgutils.unpack_tuple(builder, operand), kind.types
    data = context.make_array(of_array)(context, builder, array).data
    return [
        data,
        *(
            context.cast(builder, place, one, types.int64)
            for place, one in zip(places, kinds, strict=True)
        ),
    ]


@intrinsic
def _multiply_square(typing_context: Any, a: Any, b: Any, steps: Any, c: Any, add: Any) -> Any:  # noqa: ARG001 - Numba's protocol
    """Compute C = A B, or C = C + A B, for 32 rows and columns of C.

    A, B and C are each an `Operand`. A, of pairs or of their halves, has rows; a step takes 16
    pairs of each, which are a column apart. B has tiles, each contiguous: one below the other for
    each step.
    """
    signature = types.void(a, b, steps, c, add)
    of_a, of_c = a.types[0], c.types[0]

    def code(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        if not MATRIX_TILES or of_c.dtype != types.float32:
            # Nobody packs pairs for these kernels.
            return context.get_dummy_value()
        pa, fa, ra, sa = fields_of(context, builder, sig.args[0], arguments[0])
        pb, fb, sb, right_b = fields_of(context, builder, sig.args[1], arguments[1])
        count = context.cast(builder, arguments[2], sig.args[2], types.int64)
        pc, fc, rc, _ = fields_of(context, builder, sig.args[3], arguments[3])

        def number(tile: int) -> ir.Constant:
            return ir.Constant(_BYTE, tile)

        def at(pointer: Any, place: Any) -> Any:
            return builder.bitcast(builder.gep(pointer, [place]), _BYTE.as_pointer())

        def stride(row: Any, size: int = 4) -> Any:
            return builder.mul(row, _WORD(size))

        def below(place: Any, row: Any) -> Any:
            return builder.add(place, builder.mul(row, _WORD(SIDE)))

        # Tiles 0 to 3 are C's, row by row.
        corners = [first for one in (fc, below(fc, rc)) for first in (one, _right_of(builder, one))]
        with builder.if_else(arguments[4]) as (continued, fresh):
            with continued:
                for tile, place in enumerate(corners):
                    _call(builder, "tileloadd64", number(tile), at(pc, place), stride(rc))
            with fresh:
                for tile in range(4):
                    _call(builder, "tilezero", number(tile))
        upper, lower, left, right = 4, 5, 6, 7
        with cgutils.for_range(builder, count) as loop:
            first = builder.add(fa, builder.mul(loop.index, sa))
            square = builder.add(fb, builder.mul(loop.index, sb))
            step_of_a, step_of_b = stride(ra, of_a.dtype.bitwidth // 8), _WORD(4 * SIDE)
            for tile, pointer, place, step in (
                (upper, pa, first, step_of_a),
                (left, pb, square, step_of_b),
                (right, pb, builder.add(square, right_b), step_of_b),
                (lower, pa, below(first, ra), step_of_a),
            ):
                _call(builder, "tileloadd64", number(tile), at(pointer, place), step)
            for tile, (one, other) in enumerate(
                ((upper, left), (upper, right), (lower, left), (lower, right))
            ):
                _call(builder, "tdpbf16ps", number(tile), number(one), number(other))
        for tile, place in enumerate(corners):
            _call(builder, "tilestored64", number(tile), at(pc, place), stride(rc))
        return context.get_dummy_value()

    return signature, code


@intrinsic
def _multiply_by_panels(typing_context: Any, a: Any, b: Any, panels: Any, c: Any) -> Any:  # noqa: ARG001 - Numba's protocol
    """Compute C = A B for 32 rows of A of one or two steps, which stay in tiles.

    A, B and C are each an `Operand`. A has rows of 16 or 32 pairs, and B panels of 16 columns:
    `panels` of them.
    """
    signature = types.void(a, b, panels, c)

    def code(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        if not MATRIX_TILES or c.types[0].dtype != types.float32:
            return context.get_dummy_value()
        (pa, fa, ra, _), (pb, fb, *_), (pc, fc, rc, _) = (
            fields_of(context, builder, sig.args[n], arguments[n]) for n in (0, 1, 3)
        )
        count = context.cast(builder, arguments[2], sig.args[2], types.int64)

        def number(tile: int) -> ir.Constant:
            return ir.Constant(_BYTE, tile)

        def at(pointer: Any, place: Any) -> Any:
            return builder.bitcast(builder.gep(pointer, [place]), _BYTE.as_pointer())

        def below(place: Any, row: Any) -> Any:
            return builder.add(place, builder.mul(row, _WORD(SIDE)))

        of_a, of_c = (builder.mul(row, _WORD(4)) for row in (ra, rc))

        def emit(steps: int) -> None:
            # The sums of 16 rows are tile 0 and 1; a step of B is 2 or 3, and of A 4 and 6 or 5
            # and 7.
            for step in range(steps):
                for half, place in enumerate((fa, below(fa, ra))):
                    spot = at(pa, builder.add(place, _WORD(SIDE * step)))
                    _call(builder, "tileloadd64", number(4 + 2 * half + step), spot, of_a)
            with cgutils.for_range(builder, count) as loop:
                panel = builder.add(fb, builder.mul(loop.index, builder.mul(ra, _WORD(SIDE))))
                for step in range(steps):
                    spot = at(pb, builder.add(panel, _WORD(SIDE * SIDE * step)))
                    _call(builder, "tileloadd64", number(2 + step), spot, _WORD(4 * SIDE))
                    for half in range(2):
                        if not step:
                            _call(builder, "tilezero", number(half))
                        left = number(4 + 2 * half + step)
                        _call(builder, "tdpbf16ps", number(half), left, number(2 + step))
                place = builder.add(fc, builder.mul(loop.index, _WORD(SIDE)))
                _call(builder, "tilestored64", number(0), at(pc, place), of_c)
                _call(builder, "tilestored64", number(1), at(pc, below(place, rc)), of_c)

        with builder.if_else(builder.icmp_signed("==", ra, _WORD(SIDE))) as (one, two):
            with one:
                emit(1)
            with two:
                emit(2)
        return context.get_dummy_value()

    return signature, code


def _right_of(builder: Any, place: Any) -> Any:
    """Return the place of the tile on the right of another."""
    return builder.add(place, _WORD(SIDE))


def _two_vectors(builder: Any, numbers: Any, place: Any) -> list[Any]:
    """Return pointers to the two vectors that 32 numbers of float32 from a place on are."""
    kind = ir.VectorType(ir.FloatType(), SIDE).as_pointer()
    return [
        builder.bitcast(builder.gep(numbers, [one]), kind)
        for one in (place, _right_of(builder, place))
    ]


def _splat(builder: Any, one: Any) -> Any:
    """Return a vector of 16 times one number of float32."""
    undefined = ir.Constant(ir.VectorType(ir.FloatType(), SIDE), ir.Undefined)
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), SIDE), [0] * SIDE)
    first = builder.insert_element(undefined, one, ir.IntType(32)(0))
    return builder.shuffle_vector(first, undefined, zeros)


@intrinsic
def _scale(typing_context: Any, numbers: Any, place: Any, factor: Any) -> Any:  # noqa: ARG001 - Numba's protocol
    """Multiply 32 numbers from a place on; of a loop as short no compiler makes vector code."""
    signature = types.void(numbers, place, factor)

    def code(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        if numbers.dtype == types.float32:
            data = context.make_array(sig.args[0])(context, builder, arguments[0]).data
            start = context.cast(builder, arguments[1], sig.args[1], types.int64)
            one = context.cast(builder, arguments[2], sig.args[2], types.float32)
            factors = _splat(builder, one)
            for spot in _two_vectors(builder, data, start):
                builder.store(builder.fmul(builder.load(spot, align=4), factors), spot, align=4)
        return context.get_dummy_value()

    return signature, code


def rounded(builder: Any, vector: Any) -> Any:
    """Return 16 numbers of float32 rounded to bfloat16, by their bits."""
    # Integers, as LLVM before version 16 takes no bfloat16 here, and later ones convert them.
    kind = ir.FunctionType(ir.VectorType(ir.IntType(16), SIDE), [vector.type])
    name = "llvm.x86.avx512bf16.cvtneps2bf16.512"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [vector])


def rounded_pair(builder: Any, low: Any, high: Any) -> Any:
    """Return 32 numbers of float32 rounded to bfloat16, by their bits, those of `low` first."""
    kind = ir.FunctionType(ir.VectorType(ir.IntType(16), 2 * SIDE), [high.type, low.type])
    name = "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [high, low])


@intrinsic
def _round_sixteen(
    typing_context: Any,  # noqa: ARG001 - Numba's protocol
    numbers: Any,
    first: Any,
    factor: Any,
    halves: Any,
    into: Any,
) -> Any:
    """Round 16 numbers from a place on, times a factor, to bfloat16."""
    signature = types.void(numbers, first, factor, halves, into)

    def code(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        if not MATRIX_TILES or numbers.dtype != types.float32:
            return context.get_dummy_value()
        source, target = (
            context.make_array(sig.args[n])(context, builder, arguments[n]).data for n in (0, 3)
        )
        start, place = (
            context.cast(builder, arguments[n], sig.args[n], types.int64) for n in (1, 4)
        )
        one = context.cast(builder, arguments[2], sig.args[2], types.float32)
        kind = ir.VectorType(ir.FloatType(), SIDE)
        spot = builder.bitcast(builder.gep(source, [start]), kind.as_pointer())
        scaled = builder.fmul(builder.load(spot, align=4), _splat(builder, one))
        made = rounded(builder, scaled)
        spot = builder.bitcast(builder.gep(target, [place]), made.type.as_pointer())
        builder.store(made, spot, align=2)
        return context.get_dummy_value()

    return signature, code


@together
def round_rows(product, across, factors, room, width, context):
    """Compute context_i = factors_i · product_i in bfloat16, in rows of `width` numbers.

    The product has rows of `across` numbers. `room` is for the last few of a row.
    """
    for i in range(len(factors)):
        for d in range(0, width - SIDE + 1, SIDE):
            _round_sixteen(product, i * across + d, factors[i], context, i * width + d)
        rest = width % SIDE
        if rest:
            _round_sixteen(product, i * across + width - rest, factors[i], room, 0)
            for d in range(rest):
                context[(i + 1) * width - rest + d] = room[d]


@together
def times_paired_panels(block, first, rows, deep, panels, first_key, keys, scale, product, across):
    """Compute scale · block · vectorsᵀ, `[rows, keys]`, for rows of `deep` pairs from the first.

    The vectors are packed in panels of a tile's width. The product has rows of `across` numbers.
    """
    if deep <= 2 * SIDE and scale == 1:
        right = Operand(panels, first_key * deep, deep, 1)
        for i in range(0, rows, SQUARE):
            left = Operand(block, (first + i) * deep, deep, 1)
            _multiply_by_panels(left, right, keys // SIDE, Operand(product, i * across, across, 1))
        return
    for j in range(0, keys, SQUARE):
        right = Operand(panels, (first_key + j) * deep, SIDE * SIDE, SIDE * deep)
        for i in range(0, rows, SQUARE):
            left = Operand(block, (first + i) * deep, deep, SIDE)
            into = Operand(product, i * across + j, across, 1)
            _multiply_square(left, right, deep // SIDE, into, False)
            if scale != 1:
                for r in range(i, i + SQUARE):
                    _scale(product, r * across + j, scale)


@together
def times_paired_rows(block, rows, across, first, keys, pairs, width, product, add):
    """Compute block · vectors, `[rows, width]`, for a block of bfloat16 in rows of `across`.

    The vectors, as many as `keys` from the first one on, are given as `pair_rows` makes them. `add`
    says whether the result is added to the product.
    """
    for k in range(0, keys, _DEPTH):
        depth = min(_DEPTH, keys - k)
        for i in range(0, rows, SQUARE):
            left = Operand(block, i * across + k, across, SQUARE)
            for d in range(0, width, SQUARE):
                place = (first + k) // 2 * width + SIDE * d
                right = Operand(pairs, place, SIDE * width, SIDE * SIDE)
                into = Operand(product, i * width + d, width, 1)
                _multiply_square(left, right, depth // SQUARE, into, add or k > 0)


@intrinsic
def _turn(
    typing_context: Any,  # noqa: ARG001
    halves: Any,
    place: Any,
    across: Any,
    words: Any,
    first: Any,
    deep: Any,
) -> Any:
    """Make 16 columns of 32 rows of bfloat16 to rows of 16 pairs, the earlier row's number below.

    Args:
        halves, place, across: The block, its first number, and how far apart its rows are.
        words, first, deep: The result, its first word, and how far apart its rows are.
    """
    signature = types.void(halves, place, across, words, first, deep)

    def code(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        if not MATRIX_TILES:
            return context.get_dummy_value()
        half, whole = (ir.VectorType(ir.IntType(bits), SIDE) for bits in (16, 32))
        data, into = (
            context.make_array(sig.args[n])(context, builder, arguments[n]).data for n in (0, 3)
        )
        start, row, at, step = (
            context.cast(builder, arguments[n], sig.args[n], types.int64) for n in (1, 2, 4, 5)
        )
        rows = []
        for n in range(SQUARE):
            spot = builder.gep(data, [builder.add(start, builder.mul(row, _WORD(n)))])
            one = builder.load(builder.bitcast(spot, half.as_pointer()), align=2)
            rows.append(builder.zext(one, whole))
        high = ir.Constant(whole, [16] * SIDE)
        rows = [
            builder.or_(low, builder.shl(above, high))
            for low, above in zip(rows[::2], rows[1::2], strict=True)
        ]
        # Words whose row and column differ in one bit change places, bit by bit.
        for bit in (8, 4, 2, 1):
            kind = ir.VectorType(ir.IntType(32), SIDE)
            stay = [lane if not lane & bit else SIDE + lane - bit for lane in range(SIDE)]
            move = [lane + bit if not lane & bit else SIDE + lane for lane in range(SIDE)]
            for n in range(SIDE):
                if not n & bit:
                    pair = rows[n], rows[n + bit]
                    rows[n], rows[n + bit] = (
                        builder.shuffle_vector(*pair, ir.Constant(kind, lanes))
                        for lanes in (stay, move)
                    )
        for n, one in enumerate(rows):
            spot = builder.gep(into, [builder.add(at, builder.mul(step, _WORD(n)))])
            builder.store(one, builder.bitcast(spot, whole.as_pointer()), align=4)
        return context.get_dummy_value()

    return signature, code


@together
def round_block(block, rows, keys, factor, halves, across):
    """Round factor · block, `[rows, keys]`, to bfloat16 in rows of `across` numbers."""
    for i in range(rows):
        for j in range(0, keys, SIDE):
            _round_sixteen(block, i * keys + j, factor, halves, i * across + j)


@together
def add_paired_columns(halves, rows, across, keys, turned, pairs, first, width, sums, first_key):
    """Add blockᵀ · vectors to `sums`, from the row `first_key` on, for a block of bfloat16.

    The vectors, as many as the block's rows from the first one on, are given as `pair_rows` makes
    them.
    """
    deep = rows // 2
    for j in range(0, keys, SQUARE):
        for i in range(0, rows, SQUARE):
            for side in range(0, SQUARE, SIDE):
                _turn(halves, i * across + j + side, across, turned, side * deep + i // 2, deep)
        for d in range(0, width, SQUARE):
            right = Operand(pairs, first // 2 * width + SIDE * d, SIDE * width, SIDE * SIDE)
            into = Operand(sums, (first_key + j) * width + d, width, 1)
            _multiply_square(Operand(turned, 0, deep, SIDE), right, rows // SQUARE, into, True)
