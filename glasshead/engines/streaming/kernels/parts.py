"""Blocks of queries on matrix tiles whose keys pass by in parts that stay in the nearest caches.

What a row sums up is relative to a reference that is near its largest score so far. Where a score
exceeds it by far, the sums are scaled to a new one, which is rare.
"""

import numpy as np

from glasshead.engines.streaming.kernels.options import as_matrix, fill, kernel, together
from glasshead.engines.streaming.kernels.processor import AT_A_TIME, SQUARE
from glasshead.engines.streaming.kernels.products import times_panels
from glasshead.engines.streaming.kernels.streamed import (
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
from glasshead.engines.streaming.kernels.tiles import times_paired_rows
from glasshead.engines.streaming.kernels.weigh import SMALL, largest_of, place_of, weights_of

# The keys of a part, and how far apart its rows are.
_PART, _ROW = AT_A_TIME - SQUARE, AT_A_TIME
# How far a score may exceed the reference.
_FAR = 4.0
# Until a block of rows is finished, where its rows keep what they are to become.
_REFERENCE, _LARGEST, _TOTAL, _BY_LOG, _BROKEN = LOG_SUM, MAX_SCORE, FACTOR, ENTROPY, MAX_WEIGHT


@together
def attend_in_parts(
    recipe, pairs, across, keyed, kept, workspace, width, first, last, start, stop, row, rows
):
    """Compute the weights of a block of at most 32 queries, but a factor of each row, and P·V.

    Args:
        recipe: The inputs that define the scores: products and a scale above 0.
        pairs, across: The values as pairs of rows of `across` words; of size 0 if there are none.
        keyed: Whether the key of the maximum is recorded.
        kept: Whether the weights are left in `workspace.scores`.
        workspace: Scratch memory for the block.
        width: The keys of a panel.
        first, last: The first query and the one after the last.
        start, stop: The range of keys, in whole panels.
        row: How far apart rows of weights are that are kept.
        rows: The statistics of each row but the distances, `[9, queries]` of all queries. FACTOR
            turns weights as they are left into weights: see `settle`.

    Returns the weights as a matrix, of no numbers if they are not kept.
    """
    count = last - first
    real = workspace.scores.dtype.type
    scale, sink = real(recipe.scale), real(recipe.sink)
    for i in range(first, last):
        rows[_REFERENCE, i] = sink
        rows[_LARGEST, i] = real(-np.inf)
        rows[_TOTAL, i] = rows[_BY_LOG, i] = rows[_BROKEN, i] = real(0)
        rows[KEY, i], rows[MANY_KEYS, i] = MANY - 1, -1
    for key in range(start, stop, _PART):
        keys = min(_PART, stop - key)
        place, apart = (key - start, row) if kept else (0, _ROW)
        numbers = workspace.scores[place:]
        times_panels(
            workspace.query,
            recipe.half_query,
            first,
            SQUARE,
            recipe.query.width,
            recipe.query.width,
            recipe.panels,
            key,
            keys,
            width,
            real(1),
            numbers,
            apart,
        )
        for i in range(count):
            at = first + i
            begin, end = max(recipe.bounds[0, at] - key, 0), min(recipe.bounds[1, at] - key, keys)
            begin, end = (begin, end) if begin < end else (0, 0)
            if end - begin < keys:
                half = workspace.rounded[i * _ROW : i * _ROW + keys]
                fill(half[:begin], 0)
                fill(half[end:], 0)
                if kept:
                    left = numbers[i * apart : i * apart + keys]
                    fill(left[:begin], real(0))
                    fill(left[end:], real(0))
            if begin < end:
                _add_part(
                    numbers,
                    i * apart + begin,
                    end - begin,
                    workspace.rounded,
                    i * _ROW + begin,
                    workspace.scores[i * apart : i * apart + place],
                    workspace.product[i * across : (i + 1) * across],
                    scale,
                    at,
                    key + begin,
                    keyed,
                    kept,
                    rows,
                )
        if len(pairs):
            times_paired_rows(
                workspace.rounded,
                SQUARE,
                _ROW,
                key,
                keys,
                pairs,
                across,
                workspace.product,
                key > start,
            )
    for i in range(first, last):
        _finish_row(i, sink, rows)
    flat = workspace.scores[: count * row if kept else 0]
    weights = as_matrix(flat, count if kept else 0, row)
    if kept:
        for i in range(count):
            fill(weights[i, stop - start :], real(0))
    return weights


@together
def _add_part(
    scores, place, count, halves, half, before, product, scale, at, key, keyed, kept, rows
):
    """Turn a row's scores of some keys into weights, and add them to its sums.

    Args:
        scores, place, count: Those of the keys from `key` on, which the row sees.
        halves, half: Where the weights as bfloat16 go, if there is room for them.
        before: The weights of the row's earlier keys, if they are kept.
        product: The row's product with the values of earlier keys.
        scale: What multiplies the scores.
        at, key: The query, and the first key.
        keyed, kept, rows: As of `attend_in_parts`.
    """
    real = scores.dtype.type
    zero, nothing = real(0), real(-np.inf)
    largest = largest_of(scores, place, count)
    if largest == np.inf:
        for j in range(place, place + count):
            if np.isnan(scores[j]):
                rows[_BROKEN, at] = real(1)
    so_far, reference = rows[_TOTAL, at], rows[_REFERENCE, at]
    if keyed and not np.isnan(so_far) and largest * scale > rows[_LARGEST, at]:
        found = key + place_of(largest, scores, place, count)
        rows[KEY, at], rows[MANY_KEYS, at] = found % MANY, found // MANY
    largest *= scale
    factor = scale
    if not abs(largest) <= SMALL:
        factor = real(1)
        for j in range(place, place + count):
            scores[j] *= scale
    rows[_LARGEST, at] = max(rows[_LARGEST, at], largest)
    if largest > reference + real(_FAR):
        if so_far > zero:
            change = reference - largest
            shrunk = real(np.exp(change))
            rows[_BY_LOG, at] = shrunk * (rows[_BY_LOG, at] + change * so_far)
            so_far *= shrunk
            for d in range(len(product)):
                product[d] *= shrunk
            if kept:
                for j in range(len(before)):
                    before[j] *= shrunk
        rows[_REFERENCE, at] = reference = largest
    top = zero if reference == nothing else reference
    total, by_log = weights_of(scores, place, count, factor, top, real(-88.0), kept, halves, half)
    rows[_TOTAL, at] = so_far + total
    rows[_BY_LOG, at] += by_log
    if np.isnan(total):
        if largest != np.inf:
            rows[_BROKEN, at] = real(1)
        if not np.isnan(so_far):
            # Where scores are NaN, the first of them counts as the largest.
            for j in range(count):
                if np.isnan(scores[place + j]):
                    rows[KEY, at], rows[MANY_KEYS, at] = (key + j) % MANY, (key + j) // MANY
                    break


@kernel
def _finish_row(at, sink, rows):
    """Turn what a row has summed up into its statistics."""
    real = rows.dtype.type
    zero, nothing = real(0), real(-np.inf)
    reference, largest = rows[_REFERENCE, at], rows[_LARGEST, at]
    total, by_log, broken = rows[_TOTAL, at], rows[_BY_LOG, at], rows[_BROKEN, at]
    if largest == nothing and total == zero:
        for r in range(ROW_STATS):
            if r not in (KEY, MANY_KEYS):
                rows[r, at] = zero
        rows[LOG_SUM, at] = rows[MAX_SCORE, at] = nothing
        return
    whole = total
    if sink != nothing:
        whole += real(np.exp(sink - reference))
    inverse = real(1) / whole
    log = real(np.log(whole))
    rows[LOG_SUM, at] = reference + log
    rows[MAX_SCORE, at] = largest
    rows[MAX_WEIGHT, at] = real(np.exp(largest - reference)) * inverse
    rows[ENTROPY, at] = (log * total - by_log) * inverse
    rows[SCORES, at] = (by_log + reference * total) * inverse
    rows[FACTOR, at] = inverse
    if np.isnan(total):
        rows[MAX_SCORE, at] = rows[MAX_WEIGHT, at] = total
        if broken == zero:
            rows[LOG_SUM, at] = rows[MAX_SCORE, at] = largest


@kernel
def settle(rows, first, last, sink):
    """Make FACTOR what turns exp(s - the larger of the largest score and the sink) into weights.

    While the sink is the larger one, it is the reference.
    """
    for i in range(first, last):
        if rows[MAX_SCORE, i] >= sink:
            rows[FACTOR, i] = rows[MAX_WEIGHT, i]
