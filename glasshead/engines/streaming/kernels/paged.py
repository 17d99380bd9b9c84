"""Queries of many requests against keys in the blocks of a paged cache, without copies between.

A unit of work is a key head of a layer of a request. Its keys are packed straight from the cache,
by the request's block table, and its queries are read where each step left them.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from glasshead.engines.streaming.kernels.arguments import (
    BLOCKS,
    BY_KEY,
    BY_QUERY,
    KEYS,
    POSITION,
    QUERIES,
    ROW_STATISTICS,
    ROWS,
    TOP,
    TOP_KEYS,
    Blocks,
    ForwardOutputs,
    KernelGrid,
    KernelRecipe,
    Matrix,
    PagedHead,
    Panels,
    Values,
    VisibleGrid,
    Workspace,
)
from glasshead.engines.streaming.kernels.forward import forward_blocks
from glasshead.engines.streaming.kernels.options import as_matrix, kernel, together
from glasshead.engines.streaming.kernels.packing import single_of
from glasshead.engines.streaming.kernels.products import TILE
from glasshead.engines.streaming.kernels.sharing import next_of
from glasshead.engines.streaming.kernels.streamed import ROW_STATS, Results

# The keys that are packed at once: as many float32 as a vector holds.
LANES = TILE.bytes // 4


@intrinsic
def _numbers_at(typing_context: Any, address: Any, count: Any, like: Any) -> Any:  # noqa: ARG001 - Numba's protocol
    """View memory as numbers of the type of an array's."""
    kind = types.Array(like.dtype, 1, "C")

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        made = context.make_array(kind)(context, builder)
        data = context.get_data_type(like.dtype)
        itemsize = ir.IntType(64)(context.get_abi_sizeof(data))
        count = context.cast(builder, arguments[1], signature.args[1], types.int64)
        populate_array(
            made,
            data=builder.inttoptr(arguments[0], data.as_pointer()),
            shape=[count],
            strides=[itemsize],
            itemsize=itemsize,
            meminfo=None,
        )
        return made._getvalue()  # noqa: SLF001 - Numba has no other name for it

    return kind(types.int64, count, like), code


@kernel
def _pack_pages(task, cache, request, first, panels):
    """Pack the keys of a request from a panel's first one on, the last panel padded with 0.

    Args:
        task: The task.
        cache: The address of the first number of the key head, in block 0.
        request: The request, as of `PagedQueries.requests`.
        first: The first key.
        panels: The result, beginning with that key.
    """
    keys, width, (size, dim) = task.keys, task.room.width, task.keys.order.shape
    blocks = task.queries.blocks[request[BLOCKS] :]
    for start in range(first, (request[KEYS] + width - 1) // width * width, LANES):
        lane = (start - first) % width
        panel = panels[(start - first - lane) * dim + lane :]
        if keys.step and start + LANES <= request[KEYS]:
            block = cache + blocks[start // size] * keys.block_bytes
            _pack_run(task, block, keys.order[start % size], panel)
            continue
        for j in range(start, start + LANES):
            column = panel[j - start :]
            if j < request[KEYS]:
                block = cache + blocks[j // size] * keys.block_bytes
                _pack_key(task, block, keys.order[j % size], column)
            else:
                for d in range(dim):
                    column[d * width] = 0


@kernel
def _pack_run(task, block, places, panel):
    """Pack keys that are a step apart in a block, as many as a vector has lanes."""
    keys, width = task.keys, task.room.width
    bits = _numbers_at(block, keys.block_bytes // 2, task.nothing.halves)
    numbers = _numbers_at(block, keys.block_bytes, panel)
    for d in range(len(places)):
        first, row = places[d], panel[d * width : d * width + LANES]
        # The compiler makes a vector of each loop, as it knows the step.
        if keys.halves == 1 and keys.step == 2:
            pairs = bits[first : first + 2 * LANES]
            for lane in range(LANES):
                row[lane] = single_of(pairs[2 * lane], True)
        elif keys.halves:
            for lane in range(LANES):
                row[lane] = single_of(bits[first + keys.step * lane], keys.halves == 1)
        elif keys.step == 1:
            part = numbers[first : first + LANES]
            for lane in range(LANES):
                row[lane] = part[lane]
        else:
            for lane in range(LANES):
                row[lane] = numbers[first + keys.step * lane]


@kernel
def _pack_key(task, block, places, column):
    """Pack a key, whose numbers lie anywhere in a block."""
    keys, width = task.keys, task.room.width
    if keys.halves:
        bits = _numbers_at(block, keys.block_bytes // 2, task.nothing.halves)
        for d in range(len(places)):
            column[d * width] = single_of(bits[places[d]], keys.halves == 1)
    else:
        numbers = _numbers_at(block, keys.block_bytes, column)
        for d in range(len(places)):
            column[d * width] = numbers[places[d]]


@kernel
def _gather_queries(task, of, head):
    """Copy the queries of a head, each from the memory of its step, into rows."""
    queries, dim, kind = task.queries, task.keys.order.shape[1], task.keys.halves
    for i in range(of.request[QUERIES]):
        address, step = queries.rows[of.request[ROWS] + i]
        address += of.layer * step + head * dim * queries.itemsize
        row = of.query[i * dim : (i + 1) * dim]
        if kind:
            bits = _numbers_at(address, dim, task.nothing.halves)
            for d in range(dim):
                row[d] = single_of(bits[d], kind == 1)
        else:
            numbers = _numbers_at(address, dim, of.query)
            for d in range(dim):
                row[d] = numbers[d]


@together
def _laid_out(task, request, layer, scratch, whole):
    """Divide the memory of a thread for the heads of a request, and bound what its queries see."""
    queries, keys, position = request[QUERIES], request[KEYS], request[POSITION]
    room, before, dim = task.room, task.queries.before, task.keys.order.shape[1]
    width, height = room.width, room.height
    bounds = as_matrix(whole[: 2 * queries], 2, queries)
    for i in range(queries):
        bounds[1, i] = position + i + 1
        bounds[0, i] = max(0, position + i - before) if before >= 0 else 0
    first, stop = bounds[0, 0] // width * width, (keys + width - 1) // width * width
    panels, rest = scratch[: (stop - first) * dim], scratch[(stop - first) * dim :]
    # Kernels count keys from the beginning of a text: those before are never read.
    start = panels.ctypes.data - first * dim * panels.itemsize
    rows = (queries + height - 1) // height * height
    query, rest = rest[: rows * dim], rest[rows * dim :]
    block, rest = rest[: height * dim], rest[height * dim :]
    across = stop - first + width
    scores, rest = rest[: height * across], rest[height * across :]
    groups, rest = rest[: room.groups], rest[room.groups :]
    top = task.spec.top
    order, rest = rest[:top], rest[top:]
    factors, rest = rest[:height], rest[height:]
    diagonals = queries + keys - 1 if len(task.rule.slopes) else 0
    workspace = Workspace(
        query=block,
        scores=scores,
        near=scratch[:0],
        near_halves=task.nothing.halves,
        rounded=task.nothing.halves,
        product=scratch[:0],
        sums=scratch[:0],
        top_groups=groups,
        order=order,
        columns=task.results.sums[:0],
        factors=factors,
        spans=as_matrix(whole[2 * queries :], len(task.spec.per_key), 2),
    )
    return PagedHead(
        layer=layer,
        request=request,
        panels=panels,
        shifted=_numbers_at(start, stop * dim, panels),
        query=query,
        bounds=bounds,
        table=rest[:diagonals],
        workspace=workspace,
    )


@together
def _recipe_of(task, of, head):
    """Return the inputs of a head, whose queries and keys are in place."""
    rule, dim, nothing = task.rule, task.keys.order.shape[1], of.table[:0]
    queries, position = of.request[QUERIES], of.request[POSITION]
    for j in range(len(of.table)):
        distance = of.table.dtype.type(abs(queries - 1 - j + position))
        of.table[j] = -rule.slopes[of.layer, head] * distance
    return KernelRecipe(
        query=Matrix(of.query, dim, dim),
        half_query=task.nothing.pairs,
        panels=Panels(of.shifted, task.nothing.pairs, 0, 0),
        keys=of.request[KEYS],
        bounds=of.bounds,
        bias=KernelGrid(nothing, 0, 0),
        visible=VisibleGrid(task.nothing.booleans, 0, 0),
        table=of.table,
        known=nothing,
        scale=rule.scale,
        softcap=rule.softcap,
        sink=np.float64(rule.sinks[of.layer, head]),
        offset=position,
        rows=task.room.tile_rows,
    )


@together
def _matrix_of(numbers, begin, number, rows, columns):
    """View a matrix of a head, whose request's begin at a place."""
    begin += number * rows * columns
    return as_matrix(numbers[begin : begin + rows * columns], rows, columns)


@together
def _results_of(task, of, head):
    """Return the arrays of a head."""
    reals, places, sums = task.results
    request, spec = of.request, task.spec
    queries, keys = request[QUERIES], request[KEYS]
    number = of.layer * task.group * task.keys.heads + head
    return Results(
        context=as_matrix(reals[:0], queries, 0),
        rows=_matrix_of(reals, request[ROW_STATISTICS], number, ROW_STATS, queries),
        by_key=_matrix_of(reals, request[BY_KEY], number, len(spec.per_key), queries),
        top=_matrix_of(reals, request[TOP], number, queries, spec.top),
        keys=_matrix_of(places, request[TOP_KEYS], number, queries, spec.top),
        by_query=_matrix_of(sums, request[BY_QUERY], number, len(spec.per_query), keys),
        diagonals=sums[:0],
        maps=sums[:0],
    )


@kernel
def _one_unit(task, request, layer, kv_head, scratch, whole):
    """Compute the heads of a request's layer that read one key head."""
    of = _laid_out(task, request, layer, scratch, whole)
    width, height = task.room.width, task.room.height
    cache = task.keys.caches[layer] + kv_head * task.keys.head_bytes
    _pack_pages(task, cache, request, of.bounds[0, 0] // width * width, of.panels)
    values = Values(Matrix(scratch[:0], 0, 0), task.nothing.pairs)
    blocks = Blocks(width, height, 0, height, request[QUERIES])
    for head in range(kv_head * task.group, (kv_head + 1) * task.group):
        _gather_queries(task, of, head)
        outputs = ForwardOutputs(_results_of(task, of, head), task.nothing.halves)
        recipe = _recipe_of(task, of, head)
        forward_blocks(recipe, values, task.spec, outputs, of.workspace, blocks)


@kernel
def paged_units(task, given):
    """Compute the sums of units in as many threads as call this: each takes the next one.

    Args:
        task: The requests, the layers, and where the results go.
        given: The address of two counters: of threads, and of units.
    """
    thread = next_of(given)
    if thread >= len(task.room.numbers):
        return
    requests, heads = task.queries.requests, task.keys.heads
    each = len(task.keys.caches) * heads
    while True:
        unit = next_of(given + 8)
        if unit >= len(requests) * each:
            return
        request, layer, kv_head = (
            requests[unit // each],
            unit // heads % (each // heads),
            unit % heads,
        )
        _one_unit(task, request, layer, kv_head, task.room.numbers[thread], task.room.whole[thread])
