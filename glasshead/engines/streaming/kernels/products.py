"""Products of packed vectors, a tile of registers at a time."""

import math
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from glasshead.engines.streaming.kernels.arguments import Operand
from glasshead.engines.streaming.kernels.options import together
from glasshead.engines.streaming.kernels.processor import at_hand
from glasshead.engines.streaming.kernels.tiles import fields_of, times_paired_panels
from glasshead.engines.streaming.kernels.vectors import PLACE, steps

TILE, HALF_PRODUCTS = at_hand().tile, at_hand().half_products
ROWS = TILE.rows


def _tile_of(rows: int) -> Any:
    """Return the product of one tile of so many rows."""

    @intrinsic
    def multiply(
        typing_context: Any,  # noqa: ARG001 - Numba's protocol
        a: Any,
        b: Any,
        depth: Any,
        c: Any,
        add: Any,
        scale: Any,
    ) -> Any:
        """Compute C = scale · A B, or C = scale · (C + A B), for one tile of C.

        The operands are each an `Operand`; rows of B and C are contiguous. Scaling the sum, rather
        than what is summed, rounds as `(q @ k.T) * scale` does. A and B may hold pairs of bfloat16,
        which give the same bits as if they were widened.
        """

        def code(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
            left, right, into = (
                _Numbers(context, builder, sig.args[n], arguments[n]) for n in (0, 1, 3)
            )
            if left.is_paired and not (HALF_PRODUCTS and into.dtype == types.float32):
                # Nobody packs pairs for these kernels.
                return context.get_dummy_value()
            many = context.cast(builder, arguments[2], sig.args[2], types.int64)
            tile = [(i, v * into.lanes) for i in range(rows) for v in range(TILE.vectors)]
            zeros = ir.Constant(into.vector, [0.0] * into.lanes)
            before = builder.block
            with builder.if_then(arguments[4]):
                held = [into.load(i, v) for i, v in tile]
                inside = builder.block
            sums = []
            for value in held:
                sums.append(builder.phi(into.vector))
                sums[-1].add_incoming(zeros, before)
                sums[-1].add_incoming(value, inside)
            add_products = _add_pairs if left.is_paired else _add_numbers

            def step(k: Any, sums: list[Any]) -> list[Any]:
                vectors = [right.load(k, v * into.lanes) for v in range(TILE.vectors)]
                nexts = []
                for i in range(rows):
                    one = left.splat(left.number(i, k))
                    for v, vector in enumerate(vectors):
                        known = sums[i * TILE.vectors + v]
                        nexts.append(add_products(builder, known, one, vector))
                return nexts

            def some_steps(k: Any, sums: list[Any]) -> list[Any]:
                for n in range(TILE.unrolled):
                    sums = step(builder.add(k, PLACE(n)), sums)
                return sums

            k = PLACE(0)
            if TILE.unrolled > 1:
                k, sums = steps(builder, k, many, TILE.unrolled, sums, some_steps)
            _, sums = steps(builder, k, many, 1, sums, step)
            factor = context.cast(builder, arguments[5], sig.args[5], into.dtype)
            factors = into.splat(factor)
            for (i, v), total in zip(tile, sums, strict=True):
                into.store(builder.fmul(total, factors), i, v)
            return context.get_dummy_value()

        return types.void(a, b, depth, c, add, scale), code

    return multiply


class _Numbers:
    """Numbers of an `Operand` in memory, and their vectors."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        self.builder, self.dtype = builder, kind.types[0].dtype
        self.is_paired = self.dtype == types.int32
        real = context.get_data_type(self.dtype)
        self.bytes = context.get_abi_sizeof(real)
        self.lanes = TILE.bytes // self.bytes
        self.vector = ir.VectorType(real, self.lanes)
        data, first, self.row, self.column = fields_of(context, builder, kind, value)
        self.data = builder.gep(data, [first])

    def _place(self, i: Any, j: Any) -> Any:
        i, j = (PLACE(n) if isinstance(n, int) else n for n in (i, j))
        row = self.builder.mul(self.row, i)
        return self.builder.gep(self.data, [self.builder.add(row, j)])

    def number(self, i: Any, k: Any) -> Any:
        """Load a number of row i and column k."""
        place = self._place(i, self.builder.mul(self.column, k))
        return self.builder.load(place, align=self.bytes)

    def splat(self, number: Any) -> Any:
        """Return a vector of one number."""
        splat = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        undefined = ir.Constant(self.vector, ir.Undefined)
        one = self.builder.insert_element(undefined, number, ir.IntType(32)(0))
        return self.builder.shuffle_vector(one, undefined, splat)

    def _spot(self, i: Any, j: Any) -> Any:
        return self.builder.bitcast(self._place(i, j), self.vector.as_pointer())

    def load(self, i: Any, j: Any) -> Any:
        """Load a vector of row i, from column j on."""
        return self.builder.load(self._spot(i, j), align=self.bytes)

    def store(self, value: Any, i: Any, j: Any) -> None:
        """Store a vector in row i, from column j on."""
        self.builder.store(value, self._spot(i, j), align=self.bytes)


# The rows of a taller tile, never 0: it is a step.
_TALL = TILE.tall or ROWS
# What is left of rows that fill tiles fills tiles.
_TALL_STEP = math.lcm(ROWS, _TALL)
_multiply_tile, _multiply_tall = _tile_of(ROWS), _tile_of(_TALL)


@together
def multiply_rows(a, rows, b, depth, c, add, scale):
    """Compute C = scale · A B, or C = scale · (C + A B), for rows that fill tiles.

    C is as wide as a tile. The operands are each an `Operand`.
    """
    tall = rows // _TALL_STEP * _TALL_STEP if _TALL > ROWS else 0
    for i in range(0, tall, _TALL):
        left = Operand(a.numbers, a.first + i * a.row, a.row, a.column)
        into = Operand(c.numbers, c.first + i * c.row, c.row, 1)
        _multiply_tall(left, b, depth, into, add, scale)
    for i in range(tall, rows, ROWS):
        left = Operand(a.numbers, a.first + i * a.row, a.row, a.column)
        into = Operand(c.numbers, c.first + i * c.row, c.row, 1)
        _multiply_tile(left, b, depth, into, add, scale)


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
        panel = Operand(panels, (first_key + j) * dim, width, 1)
        into = Operand(product, j, row, 1)
        multiply_rows(Operand(block, 0, across, 1), rows, panel, dim, into, False, scale)


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
            vectors = Operand(matrix.numbers, (first + k) * matrix.row + j, matrix.row, 1)
            into = Operand(product, j, matrix.width, 1)
            multiply_rows(Operand(block, k, across, 1), rows, vectors, depth, into, k > 0, 1)
