"""The kernel: one pass over blocks of q·kᵀ, and sums of the weights along rows and columns.

It is imported where it is launched only: Triton takes a CUDA device, or its interpreter.
"""

import triton
import triton.language as tl

from glasshead.engines.streaming.kernels.streamed import (
    DISTANCES,
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

# Kernels read globals as constants only.
_LOG_SUM, _MAX_SCORE, _MAX_WEIGHT = map(tl.constexpr, (LOG_SUM, MAX_SCORE, MAX_WEIGHT))
_ENTROPY, _SCORES, _DISTANCES = map(tl.constexpr, (ENTROPY, SCORES, DISTANCES))
_FACTOR, _KEY, _MANY_KEYS = map(tl.constexpr, (FACTOR, KEY, MANY_KEYS))
_ROW_STATS, _MANY, _NO_KEY = map(tl.constexpr, (ROW_STATS, MANY, 2**30))
# Of a request with paged keys: the numbers that a program reads.
REQUEST = (
    "queries",
    "keys",
    "position",
    "rows_before",
    "columns_before",
    "queries_before",
    "pages_before",
)
_QUERIES, _KEYS, _POSITION, _ROWS, _COLUMNS, _ADDRESSES, _PAGES = map(
    tl.constexpr, range(len(REQUEST))
)
_REQUEST = tl.constexpr(len(REQUEST))


@triton.jit
def _cap(scores, softcap):
    """Apply s = softcap · tanh(s / softcap), to the digits that float32 has.

    Near 0, where 1 - e^(-2|y|) would lose them, by the series of tanh.
    """
    y = tl.abs(scores) / softcap
    power = tl.exp(-2.0 * y)
    square = y * y
    series = 62.0 / 2835.0 - square * (1382.0 / 155925.0)
    series = -17.0 / 315.0 + square * series
    series = 2.0 / 15.0 + square * series
    series = -1.0 / 3.0 + square * series
    size = tl.where(y < 0.1, y * (1.0 + square * series), (1.0 - power) / (1.0 + power))
    return softcap * tl.where(scores < 0.0, -size, size)


@triton.jit
def _block_of(places, length, blocks):
    """Return which of the blocks of a length holds each place: block b begins at b·n // blocks."""
    return ((places.to(tl.int64) + 1) * blocks + length - 1) // length - 1


@triton.jit
def reduce_weights(
    # Inputs.
    query,
    key,
    bounds,
    offsets,
    visible,
    bias,
    table,
    sink,
    per_key,
    key_spans,
    per_query,
    # What is known of the rows, and the results.
    shifts,
    rows,
    by_key,
    top,
    top_keys,
    by_query,
    cells,
    # Sizes and numbers.
    heads,
    group,
    queries,
    keys,
    first_query,
    last_query,
    visible_first_query,
    visible_first_key,
    map_rows,
    map_columns,
    scale,
    softcap,
    # Strides; of the others, the last axis is contiguous.
    query_batch,
    query_head,
    query_row,
    key_batch,
    key_head,
    key_row,
    bounds_batch,
    offsets_batch,
    visible_batch,
    visible_head,
    visible_row,
    visible_key,
    bias_batch,
    bias_head,
    bias_row,
    bias_key,
    table_batch,
    table_head,
    sink_head,
    per_key_batch,
    per_key_head,
    spans_batch,
    spans_head,
    per_query_batch,
    per_query_head,
    # Of paged keys.
    units,
    requests,
    pages,
    layers,
    places,
    page_step,
    reach,
    # What is compiled.
    DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK_QUERIES: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    HAS_VISIBLE: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_TABLE: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_SINK: tl.constexpr,
    ROWS: tl.constexpr,
    SHIFTED: tl.constexpr,
    KEYED: tl.constexpr,
    FAR: tl.constexpr,
    RIGHT: tl.constexpr,
    LEFT: tl.constexpr,
    TOP: tl.constexpr,
    MAP: tl.constexpr,
    PAGED: tl.constexpr,
    SIZE: tl.constexpr,
    STEP: tl.constexpr,
    ALIGNED: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """Reduce the weights of a block of queries, of one head, over the keys that they see.

    Args:
        query: `[batch, heads, queries, dim]`; key: `[batch, kv_heads, keys, dim]`.
        bounds: The first key of each query and the one after the last, `[#batch, 2, queries]`.
        offsets: The position of query 0 among the keys, `[#batch]`.
        visible: From `visible_first_query` and `visible_first_key` on; bias, table and sink: as
            in `RecipeTensors`.
        per_key: Columns of R by rows, `[#batch, #heads, RIGHT, keys]`; key_spans: where each is
            other than 0, `[#batch, #heads, RIGHT, 2]`.
        per_query: Columns of L by rows, `[#batch, #heads, LEFT, queries]`.
        shifts: With SHIFTED, what is subtracted from the scores of each row, `[batch, heads,
            queries]`: a logsumexp that a kernel gave, with ROWS; without, what an earlier pass
            wrote there. Without SHIFTED, it is written.
        rows: The statistics of each row, `[batch, heads, 9, queries]`: written with ROWS, else
            FACTOR is read.
        by_key: P·R, `[batch, heads, RIGHT, queries]`.
        top, top_keys: The TOP largest scores of each row in any order, and their keys.
        by_query: Pᵀ·L, `[batch, heads, LEFT, keys]`, and cells, `[batch, heads, map_rows,
            map_columns]`: added to, in float64.
        first_query, last_query: Which queries.
        ROWS: Whether to sum along rows, LOG_SUM to MAX_WEIGHT; KEYED and FAR add those named so.
        MAP: 0: no map; 1: few columns of a map fall into a block; 2: many.
        PAGED: Whether queries are of many requests, whose keys lie in blocks of a cache. A batch
            is then a layer, and masks are causal, or windows of `reach` keys before a query's own.
            Results of a request, `[layers, heads, …]`, come after those of the requests before.
        units: A request and a block of its queries for every `places` programs, a place being a
            head of a layer; requests: the numbers of `REQUEST`; pages: the blocks of all requests.
        layers: Where the cache of each layer begins, in numbers after `key`.
        query: With PAGED, of each query its address in the first layer, and the bytes to the next.
        table, sink: With PAGED, the slope of a bias by distance, and the sink, of each place.
        SIZE, page_step: The tokens of a block, and the numbers from a block to the next.
        STEP: The numbers from a feature of a key to the next.
        ALIGNED: Whether layers begin at multiples of 16.
        WIDEN: Whether products are of float32.
    """
    program = tl.program_id(0)
    right_row, left_row = keys, queries
    if PAGED:
        unit = units + program // places * 2
        block = tl.load(unit + 1).to(tl.int32)
        place = (program % places).to(tl.int64)
        batch, head = place // heads, place % heads
        request = requests + tl.load(unit) * _REQUEST
        queries = tl.load(request + _QUERIES).to(tl.int32)
        keys = tl.load(request + _KEYS).to(tl.int32)
        first_query, last_query = 0, queries
        offset = tl.load(request + _POSITION).to(tl.int32)
        rows_before = tl.load(request + _ROWS)
        shifts += rows_before
        rows += rows_before * _ROW_STATS
        by_key += rows_before * RIGHT
        top += rows_before * TOP
        top_keys += rows_before * TOP
        by_query += tl.load(request + _COLUMNS) * LEFT
        query += tl.load(request + _ADDRESSES) * 2
        pages += tl.load(request + _PAGES)
        if HAS_TABLE:
            table += place
        if HAS_SINK:
            sink += batch * heads
    else:
        blocks = tl.cdiv(last_query - first_query, BLOCK_QUERIES)
        # The last queries of a causal mask see most: they begin first.
        block = blocks - 1 - program % blocks
        place = (program // blocks).to(tl.int64)
        batch, head = place // heads, place % heads
        offset = tl.load(offsets + batch * offsets_batch)

    i = first_query + block * BLOCK_QUERIES + tl.arange(0, BLOCK_QUERIES)
    inside = i < last_query
    if PAGED:
        start = tl.where(inside, tl.maximum(offset + i - reach, 0), 0)
        stop = tl.where(inside, offset + i + 1, 0)
    else:
        of_rows = bounds + batch * bounds_batch + i
        start = tl.load(of_rows, mask=inside, other=0).to(tl.int32)
        stop = tl.load(of_rows + queries, mask=inside, other=0).to(tl.int32)
    seeing = start < stop
    low = tl.min(tl.where(seeing, start, keys), 0)
    high = tl.max(tl.where(seeing, stop, 0), 0)
    # Blocks of keys between these two are seen by every query.
    whole_from, whole_to = tl.max(start, 0), tl.min(stop, 0)

    d = tl.arange(0, BLOCK_DIM)
    if PAGED:
        address = tl.load(query + 2 * i, mask=inside, other=0)
        address += tl.load(query + 2 * i + 1, mask=inside, other=0) * batch + head * query_head
        rows_at = address.to(tl.pointer_type(key.dtype.element_ty))[:, None]
        layer_at = tl.load(layers + batch)
        if ALIGNED:
            layer_at = tl.multiple_of(layer_at, 16)
        keys_at = key + layer_at + (head // group) * key_head
    else:
        rows_at = query + batch * query_batch + head * query_head
        rows_at += i.to(tl.int64)[:, None] * query_row
        keys_at = key + batch * key_batch + (head // group) * key_head
    q = tl.load(rows_at + d[None, :], mask=inside[:, None] & (d < DIM)[None, :], other=0.0)
    if WIDEN:
        q = q.to(tl.float32)
    position = (i + offset).to(tl.float32)
    if MAP > 0:
        map_row = _block_of(i, queries, map_rows)
        first_map_row = tl.min(tl.where(inside, map_row, map_rows), 0).to(tl.int32)
        last_map_row = tl.max(tl.where(inside, map_row, 0), 0).to(tl.int32)

    nothing = tl.full([BLOCK_QUERIES], float("-inf"), tl.float32)
    zero = tl.zeros([BLOCK_QUERIES], tl.float32)
    shift, total, by_log, distance = nothing, zero, zero, zero
    best, best_key = nothing, tl.zeros([BLOCK_QUERIES], tl.int32) - 1
    factor = zero
    if SHIFTED:
        shift = tl.load(shifts + place * queries + i, mask=inside, other=0.0)
        # Kernels give rows that see nothing any number.
        shift = tl.where(tl.abs(shift) < float("inf"), shift, 0.0)
        if not ROWS:
            factors = rows + (place * _ROW_STATS + _FACTOR) * queries
            factor = tl.load(factors + i, mask=inside, other=0.0)
    if RIGHT > 0:
        columns = tl.arange(0, RIGHT)
        sums = tl.zeros([BLOCK_QUERIES, RIGHT], tl.float32)
    if TOP > 0:
        slots = tl.arange(0, TOP)
        scores = tl.full([BLOCK_QUERIES, TOP], float("-inf"), tl.float32)
        score_keys = tl.zeros([BLOCK_QUERIES, TOP], tl.int32) - 1

    for first in range(low // BLOCK_KEYS * BLOCK_KEYS, high, BLOCK_KEYS):
        j = first + tl.arange(0, BLOCK_KEYS)
        there = j < keys
        if PAGED:
            page = tl.load(pages + j // SIZE, mask=there, other=0)
            key_at = page * page_step + (j % SIZE).to(tl.int64) * key_row
        else:
            key_at = j.to(tl.int64) * key_row
        k = tl.load(
            keys_at + key_at[None, :] + d[:, None] * STEP,
            mask=(d < DIM)[:, None] & there[None, :],
            other=0.0,
        )
        if WIDEN:
            k = k.to(tl.float32)
        s = tl.dot(q, k, input_precision="ieee") * scale
        if HAS_SOFTCAP:
            s = _cap(s, softcap)
        if HAS_TABLE:
            if PAGED:
                t = -tl.load(table) * tl.abs(position[:, None] - j.to(tl.float32)[None, :])
            else:
                diagonals = table + batch * table_batch + head * table_head + queries - 1
                t = tl.load(
                    diagonals + (j[None, :] - i[:, None]),
                    mask=inside[:, None] & there[None, :],
                    other=0.0,
                )
            s = tl.where(t == float("-inf"), t, s + t)
        if HAS_BIAS:
            pairs = bias + batch * bias_batch + head * bias_head
            b = tl.load(
                pairs + i.to(tl.int64)[:, None] * bias_row + j.to(tl.int64)[None, :] * bias_key,
                mask=inside[:, None] & there[None, :],
                other=0.0,
            )
            s = tl.where(b == float("-inf"), b, s + b)
        if (first < whole_from) | (first + BLOCK_KEYS > whole_to):
            shown = (j[None, :] >= start[:, None]) & (j[None, :] < stop[:, None])
            s = tl.where(shown, s, float("-inf"))
        if HAS_VISIBLE:
            # Beyond the bounds there may be no pair to read.
            shown = (j[None, :] >= start[:, None]) & (j[None, :] < stop[:, None])
            pairs = visible + batch * visible_batch + head * visible_head
            v = tl.load(
                pairs
                + (i - visible_first_query).to(tl.int64)[:, None] * visible_row
                + (j - visible_first_key).to(tl.int64)[None, :] * visible_key,
                mask=shown,
                other=0,
            )
            s = tl.where(v != 0, s, float("-inf"))

        if not SHIFTED:
            largest = tl.maximum(shift, tl.max(s, 1))
            base = tl.where(largest == float("-inf"), 0.0, largest)
            before = tl.where(shift == float("-inf"), 0.0, shift - base)
            shift = largest
            rescale = tl.exp(before)
            by_log = rescale * (by_log + total * before)
            total *= rescale
            distance *= rescale
            if RIGHT > 0:
                sums *= rescale[:, None]
        x = s - tl.where(shift == float("-inf"), 0.0, shift)[:, None]
        p = tl.exp(x)

        if ROWS:
            total += tl.sum(p, 1)
            # 0 · -inf would be NaN.
            by_log += tl.sum(p * tl.maximum(x, -200.0), 1)
        else:
            p *= factor[:, None]
        if KEYED:
            # Where scores are NaN, the first of them counts as the largest.
            ranked = tl.where(s == s, s, float("inf"))
            largest_here = tl.max(ranked, 1)
            found = tl.min(tl.where(ranked == largest_here[:, None], j[None, :], _NO_KEY), 1)
            best_key = tl.where(largest_here > best, found, best_key)
            best = tl.maximum(best, largest_here)
        if FAR:
            distance += tl.sum(p * tl.abs(position[:, None] - j.to(tl.float32)[None, :]), 1)
        if RIGHT > 0:
            right = per_key + batch * per_key_batch + head * per_key_head
            spans = key_spans + batch * spans_batch + head * spans_head
            for r in tl.static_range(RIGHT):
                if (first < tl.load(spans + 2 * r + 1)) & (
                    first + BLOCK_KEYS > tl.load(spans + 2 * r)
                ):
                    of_key = tl.load(right + r * right_row + j, mask=there, other=0.0)
                    by_row = tl.sum(p * of_key[None, :], 1)
                    sums += tl.where(columns[None, :] == r, by_row[:, None], 0.0)
        if TOP > 0:
            left = tl.where(s == s, s, float("-inf"))
            most = tl.max(left, 1)
            least = tl.min(scores, 1)
            while tl.max((most > least).to(tl.int32), 0) > 0:
                at = tl.min(tl.where(left == most[:, None], j[None, :], _NO_KEY), 1)
                # Of equal scores the one with the highest key leaves.
                last = tl.where(scores == least[:, None], score_keys, -2)
                last_key = tl.max(last, 1)
                empty = tl.min(tl.where(score_keys < 0, slots[None, :], TOP), 1)
                known = (last == last_key[:, None]) & (empty == TOP)[:, None]
                here = (known | (slots[None, :] == empty[:, None])) & (most > least)[:, None]
                scores = tl.where(here, most[:, None], scores)
                score_keys = tl.where(here, at[:, None], score_keys)
                left = tl.where(j[None, :] == at[:, None], float("-inf"), left)
                most = tl.max(left, 1)
                least = tl.min(scores, 1)
        if LEFT > 0:
            for l in tl.static_range(LEFT):
                factors_at = per_query + batch * per_query_batch + head * per_query_head
                of_query = tl.load(factors_at + l * left_row + i, mask=inside, other=0.0)
                by_column = tl.sum(p * of_query[:, None], 0).to(tl.float64)
                tl.atomic_add(by_query + (place * LEFT + l) * keys + j, by_column, mask=there)
        if MAP > 0:
            for row in range(first_map_row, last_map_row + 1):
                in_row = inside & (map_row == row)
                strip = tl.sum(tl.where(in_row[:, None], p, 0.0), 0).to(tl.float64)
                column = _block_of(j, keys, map_columns).to(tl.int32)
                cells_at = cells + (place * map_rows + row) * map_columns
                if MAP == 2:
                    tl.atomic_add(cells_at + column, strip, mask=there)
                else:
                    last_column = tl.max(tl.where(there, column, 0), 0)
                    for one in range(tl.min(column, 0), last_column + 1):
                        in_cell = tl.sum(tl.where(column == one, strip, 0.0), 0)
                        tl.atomic_add(cells_at + one, in_cell)

    if ROWS:
        result = rows + place * _ROW_STATS * queries + i
        empty = total == 0.0
        if HAS_SINK:
            score = tl.load(sink + head * sink_head)
            over = tl.maximum(shift, score)
            before = tl.where(empty, 0.0, shift - over)
            rescale = tl.exp(before)
            by_log = rescale * (by_log + total * before)
            total *= rescale
            distance *= rescale
            if RIGHT > 0:
                sums *= rescale[:, None]
            shift = over
            whole = total + tl.exp(score - over)
        else:
            whole = total
        # A row that sees nothing has weights 0, entropy 0 and logsumexp -inf.
        factor = tl.where(empty, 0.0, 1.0 / tl.where(empty, 1.0, whole))
        log = tl.log(tl.where(empty, 1.0, whole))
        shift = tl.where(empty, 0.0, shift)
        lse = tl.where(empty, float("-inf"), shift + log)
        tl.store(result + _LOG_SUM * queries, lse, mask=inside)
        tl.store(result + _ENTROPY * queries, (log * total - by_log) * factor, mask=inside)
        # In this order nothing overflows where a finite constant masks a row.
        mean_score = by_log * factor + shift * (total * factor)
        tl.store(result + _SCORES * queries, mean_score, mask=inside)
        tl.store(result + _FACTOR * queries, factor, mask=inside)
        if not SHIFTED:
            tl.store(shifts + place * queries + i, shift, mask=inside)
        if FAR:
            tl.store(result + _DISTANCES * queries, distance * factor, mask=inside)
        if KEYED:
            best_key = tl.where(empty, -1, best_key)
            # Halves of a key that float32 holds: -1 is _MANY · -1 + _MANY - 1.
            many = tl.where(empty, -1, best_key // _MANY)
            weight = tl.where(empty, 0.0, tl.exp(best - shift) * factor)
            best = tl.where(total == total, best, total)
            weight = tl.where(total == total, weight, total)
            tl.store(result + _MAX_SCORE * queries, best, mask=inside)
            tl.store(result + _MAX_WEIGHT * queries, weight, mask=inside)
            tl.store(result + _KEY * queries, (best_key - many * _MANY).to(tl.float32), mask=inside)
            tl.store(result + _MANY_KEYS * queries, many.to(tl.float32), mask=inside)
        if RIGHT > 0:
            sums *= factor[:, None]
        if TOP > 0:
            at = (place * queries + i)[:, None] * TOP + slots[None, :]
            # A weight, unlike the factor, is of the scores that are left.
            weight = tl.exp(scores - shift[:, None]) * factor[:, None]
            tl.store(top + at, tl.where(score_keys < 0, 0.0, weight), mask=inside[:, None])
            tl.store(top_keys + at, score_keys, mask=inside[:, None])
    if RIGHT > 0:
        into = by_key + (place * RIGHT + columns)[None, :] * queries + i[:, None]
        tl.store(into, sums, mask=inside[:, None])


# Triton's interpreter computes on the CPU, where its products of bfloat16 are wrong.
INTERPRETED = not isinstance(reduce_weights, triton.runtime.JITFunction)
_names = reduce_weights.arg_names[: reduce_weights.arg_names.index("DIM")]
_numbers, _paged = _names.index("heads"), _names.index("units")
_TENSORS = {*_names[:_numbers], *_names[_paged : _names.index("places")]}
# The arguments of a launch that reads no operand: it replaces those that it reads.
UNREAD = {name: None if name in _TENSORS else 0 for name in _names}
# Those about paged keys, in order.
NOT_PAGED = [UNREAD[name] for name in _names[_paged:]]
