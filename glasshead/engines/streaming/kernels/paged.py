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
    KernelGrid,
    KernelRecipe,
    Matrix,
    Panels,
    VisibleGrid,
    Workspace,
)
from glasshead.engines.streaming.kernels.forward import forward_blocks
from glasshead.engines.streaming.kernels.options import as_matrix, kernel
from glasshead.engines.streaming.kernels.packing import single_of
from glasshead.engines.streaming.kernels.sharing import next_of
from glasshead.engines.streaming.kernels.streamed import ROW_STATS, OutputSpec, Results

# The columns of `PagedTask.requests`: the first of its rows, their number, its keys, the position
# of its first query, the first of its blocks, and where its results begin.
(ROWS, QUERIES, KEYS, POSITION, BLOCKS) = range(5)
(ROW_STATISTICS, BY_KEY, TOP, TOP_KEYS, BY_QUERY) = range(5, 10)


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
        request: The request, as of `PagedTask.requests`.
        first: The first key.
        panels: The result, beginning with that key.
    """
    width, dim, size = task.width, task.dim, task.size
    last, table = request[KEYS], request[BLOCKS]
    start = first
    if task.in_rows and not task.halves:
        # A panel lies in a block as it is needed, feature by feature.
        while start + width <= last:
            places = task.order[start % size]
            block = cache + task.blocks[table + start // size] * task.block_bytes
            numbers = _numbers_at(block, task.block_bytes, panels)
            panel = panels[(start - first) * dim : (start - first + width) * dim]
            for d in range(dim):
                part = numbers[places[d] : places[d] + width]
                row = panel[d * width : (d + 1) * width]
                for lane in range(width):
                    row[lane] = part[lane]
            start += width
    for j in range(start, (last + width - 1) // width * width):
        lane = (j - first) % width
        begin = (j - first - lane) * dim
        panel = panels[begin : begin + width * dim]
        if j >= last:
            for d in range(dim):
                panel[d * width + lane] = 0
            continue
        places = task.order[j % size]
        block = cache + task.blocks[table + j // size] * task.block_bytes
        if task.halves:
            bits = _numbers_at(block, task.block_bytes // 2, task.no_halves)
            for d in range(dim):
                panel[d * width + lane] = single_of(bits[places[d]], task.halves == 1)
        else:
            numbers = _numbers_at(block, task.block_bytes, panels)
            for d in range(dim):
                panel[d * width + lane] = numbers[places[d]]


@kernel
def _gather_queries(task, request, layer, head, queries):
    """Copy the queries of a head, each from the memory of its step, into rows."""
    dim = task.dim
    for i in range(request[QUERIES]):
        address, step = task.rows[request[ROWS] + i]
        address += layer * step + head * dim * task.itemsize
        row = queries[i * dim : (i + 1) * dim]
        if task.halves:
            bits = _numbers_at(address, dim, task.no_halves)
            for d in range(dim):
                row[d] = single_of(bits[d], task.halves == 1)
        else:
            numbers = _numbers_at(address, dim, queries)
            for d in range(dim):
                row[d] = numbers[d]


@kernel
def _one_unit(task, request, layer, kv_head, scratch, whole):
    queries, keys, position = request[QUERIES], request[KEYS], request[POSITION]
    dim, width, height = task.dim, task.width, task.height
    real = scratch.dtype.type
    bounds = as_matrix(whole[: 2 * queries], 2, queries)
    for i in range(queries):
        bounds[1, i] = position + i + 1
        bounds[0, i] = max(0, position + i - task.before) if task.before >= 0 else 0
    spans = as_matrix(whole[2 * queries :], len(task.per_key), 2)
    first = bounds[0, 0] // width * width
    stop = (keys + width - 1) // width * width
    place = (stop - first) * dim
    panels = scratch[:place]
    cache = task.caches[layer] + kv_head * task.head_bytes
    _pack_pages(task, cache, request, first, panels)
    # Kernels count keys from the beginning of a text: those before are never read.
    shifted = _numbers_at(panels.ctypes.data - first * dim * panels.itemsize, stop * dim, panels)
    rows = (queries + height - 1) // height * height
    query = scratch[place : place + rows * dim]
    place += rows * dim
    block = scratch[place : place + height * dim]
    place += height * dim
    across = stop - first + width
    scores = scratch[place : place + height * across]
    place += height * across
    groups = scratch[place : place + task.groups]
    place += task.groups
    order = scratch[place : place + task.top]
    place += task.top
    factors = scratch[place : place + height]
    place += height
    diagonals = queries + keys - 1 if len(task.slopes) else 0
    table = scratch[place : place + diagonals]
    nothing = scratch[:0]
    heads, top = task.group * task.kv_heads, task.top
    for head in range(kv_head * task.group, (kv_head + 1) * task.group):
        _gather_queries(task, request, layer, head, query)
        for j in range(diagonals):
            table[j] = -task.slopes[layer, head] * real(abs(queries - 1 - j + position))
        of_head = layer * heads + head
        begin = request[ROW_STATISTICS] + of_head * ROW_STATS * queries
        statistics = as_matrix(task.reals[begin : begin + ROW_STATS * queries], ROW_STATS, queries)
        many = len(task.per_key)
        begin = request[BY_KEY] + of_head * many * queries
        by_key = as_matrix(task.reals[begin : begin + many * queries], many, queries)
        begin = request[TOP] + of_head * queries * top
        largest = as_matrix(task.reals[begin : begin + queries * top], queries, top)
        begin = request[TOP_KEYS] + of_head * queries * top
        places = as_matrix(task.places[begin : begin + queries * top], queries, top)
        some = len(task.per_query)
        begin = request[BY_QUERY] + of_head * some * keys
        by_query = as_matrix(task.sums[begin : begin + some * keys], some, keys)
        recipe = KernelRecipe(
            query=Matrix(query, dim, dim),
            half_query=task.no_pairs,
            panels=Panels(shifted, task.no_pairs, 0, 0),
            keys=keys,
            bounds=bounds,
            bias=KernelGrid(nothing, 0, 0),
            visible=VisibleGrid(task.no_booleans, 0, 0),
            table=table,
            known=nothing,
            scale=task.scale,
            softcap=task.softcap,
            sink=np.float64(task.sinks[layer, head]),
            offset=position,
            rows=task.tile_rows,
        )
        spec = OutputSpec(
            keyed=task.keyed,
            far=task.far,
            per_key=task.per_key,
            top=top,
            per_query=task.per_query,
            diagonal=0,
            maps=task.no_maps,
        )
        results = Results(
            context=as_matrix(nothing, queries, 0),
            rows=statistics,
            by_key=by_key,
            top=largest,
            keys=places,
            by_query=by_query,
            diagonals=task.sums[:0],
            maps=task.sums[:0],
        )
        workspace = Workspace(
            query=block,
            scores=scores,
            near=nothing,
            near_halves=task.no_halves,
            rounded=task.no_halves,
            product=nothing,
            sums=nothing,
            top_groups=groups,
            order=order,
            columns=task.sums[:0],
            factors=factors,
            spans=spans,
        )
        values = Matrix(nothing, 0, 0)
        forward_blocks(
            recipe,
            values,
            task.no_pairs,
            spec,
            results,
            task.no_halves,
            workspace,
            width,
            height,
            0,
            height,
            queries,
        )


@kernel
def paged_units(task, given):
    """Compute the sums of units in as many threads as call this: each takes the next one.

    Args:
        task: The requests, the layers, and where the results go.
        given: The address of two counters: of threads, and of units.
    """
    thread = next_of(given)
    if thread >= len(task.scratch):
        return
    layers, kv_heads = len(task.caches), task.kv_heads
    units = len(task.requests) * layers * kv_heads
    scratch, whole = task.scratch[thread], task.whole[thread]
    while True:
        unit = next_of(given + 8)
        if unit >= units:
            return
        request = task.requests[unit // (layers * kv_heads)]
        layer, kv_head = unit // kv_heads % layers, unit % kv_heads
        _one_unit(task, request, layer, kv_head, scratch, whole)
