"""Blocks of queries and keys: packing, products, scores, and the forward pass over them."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from glasshead.engines.streaming.kernels.arguments import (
    DISTANCES,
    FACTOR,
    KEY,
    LOG_SUM,
    MANY,
    MANY_KEYS,
    MAX_SCORE,
)
from glasshead.engines.streaming.kernels.options import as_matrix, fill, kernel, together
from glasshead.engines.streaming.kernels.processor import at_hand
from glasshead.engines.streaming.kernels.weigh import (
    add_bias,
    add_blocks,
    add_columns,
    add_diagonals,
    add_table,
    cap,
    hide,
    largest,
    sum_by_key,
    sum_distances,
    weigh,
)

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


# How many vectors stay in the L1 cache while a block passes over them.
_DEPTH = 128


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


@kernel
def hull(bounds, first, last, width):
    """Return the range of keys that the queries see, widened to whole panels."""
    start, stop = -1, 0
    for i in range(first, last):
        if bounds[0, i] < bounds[1, i]:
            start = bounds[0, i] if start < 0 else min(start, bounds[0, i])
            stop = max(stop, bounds[1, i])
    if start < 0:
        return 0, 0
    return start // width * width, (stop + width - 1) // width * width


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


@together
def score(recipe, first, last, first_key, keys, width, across, query, scores, capped):
    """Compute the scores of a block up to the normalizer; hidden pairs within bounds are -inf.

    q is copied to `query`, in rows of `across` numbers; the capped scores are kept in `capped`,
    if that is not empty. Returns the scores as a matrix, of which the rows beyond the
    last query hold anything.
    """
    count = last - first
    rows = (count + ROWS - 1) // ROWS * ROWS
    dim = recipe.query.width
    real = query.dtype.type
    copy_rows(recipe.query, first, count, across, query[: rows * across])
    flat = scores[: rows * keys]
    times_panels(
        query,
        rows,
        across,
        dim,
        recipe.panels,
        first_key,
        keys,
        width,
        real(recipe.scale),
        flat,
    )
    if recipe.softcap > 0:
        cap(flat, recipe.softcap)
        for j in range(min(len(flat), len(capped))):
            capped[j] = flat[j]
    matrix = as_matrix(flat, rows, keys)
    seen = matrix[:count]
    if len(recipe.table):
        add_table(seen, recipe.table, recipe.bounds.shape[1] - last + first_key)
    if len(recipe.bias.numbers):
        add_bias(seen, first, first_key, recipe.bias, recipe.bounds)
    if len(recipe.visible.numbers):
        hide(seen, first, first_key, recipe.visible, recipe.bounds)
    return matrix


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


@kernel
def forward_blocks(
    recipe, value, spec, results, workspace, width, height, first_row, step, last_row
):
    """Compute context and sums of blocks of at most `height` queries, one every `step` rows.

    Args:
        recipe: The inputs that define the scores, which round as the reference's do.
        value: The values; of size 0 where no context is computed.
        spec, results: Output specification, and output arrays.
        workspace: Scratch memory for a block.
        width: The keys of a panel.
        height: The queries of a block.
        first_row, step, last_row: Which queries.
    """
    for first in range(first_row, last_row, step):
        last = min(first + height, last_row)
        start, stop = hull(recipe.bounds, first, last, width)
        if start == stop:
            fill(results.rows[LOG_SUM, first:last], -np.inf)
            fill(results.rows[MAX_SCORE, first:last], -np.inf)
            fill(results.rows[KEY, first:last], MANY - 1)
            fill(results.rows[MANY_KEYS, first:last], -1)
            continue
        scores = score(
            recipe,
            first,
            last,
            start,
            stop - start,
            width,
            recipe.query.width,
            workspace.query,
            workspace.scores,
            workspace.query[:0],
        )
        weights = scores[: last - first]
        weigh(
            weights,
            first,
            start,
            recipe.bounds,
            weights.dtype.type(recipe.sink),
            workspace.groups,
            spec.keyed,
            results.rows,
        )
        factors = results.rows[FACTOR, first:last]
        if len(value.numbers):
            _mix(
                workspace.scores,
                scores,
                last - first,
                start,
                recipe.keys,
                value,
                factors,
                workspace.product,
                width,
                results.context[first:last],
            )
        if results.top.shape[1]:
            largest(
                weights,
                factors,
                start,
                workspace.top_groups,
                workspace.order,
                results.top[first:last],
                results.keys[first:last],
            )
        if spec.far:
            position = first + recipe.offset - start
            sum_distances(weights, factors, position, results.rows[DISTANCES, first:last])
        for r in range(len(spec.per_key)):
            sum_by_key(
                weights,
                factors,
                start,
                spec.per_key[r],
                spec.spans[r],
                results.by_key[r, first:last],
            )
        for left in range(len(spec.per_query)):
            more = spec.per_query[left]
            some = False
            for i in range(first, last):
                workspace.factors[i - first] = factors[i - first] * more[i]
                some = some or more[i] != 0
            if some:
                add_columns(weights, workspace.factors, results.by_query[left, start:stop])
        if len(results.diagonals):
            add_diagonals(
                weights, factors, results.diagonals[recipe.bounds.shape[1] - last + start :]
            )
        place = 0
        for m in range(len(spec.maps)):
            rows, columns = spec.maps[m]
            cells = as_matrix(results.maps[place : place + rows * columns], rows, columns)
            add_blocks(
                weights,
                factors,
                first,
                recipe.bounds.shape[1],
                start,
                recipe.keys,
                workspace.columns[: stop - start],
                cells,
            )
            place += rows * columns


@together
def _mix(flat, scores, count, start, keys, value, factors, product, width, context):
    """Compute context_i = factors_i · Σ_j scores_ij value_j."""
    rows, across = scores.shape
    times_matrix(flat, rows, across, start, keys, value, product, width)
    for i in range(count):
        row = product[i * value.width : i * value.width + context.shape[1]]
        into = context[i]
        factor = factors[i]
        for d in range(len(into)):
            into[d] = row[d] * factor
