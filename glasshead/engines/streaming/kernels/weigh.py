"""Scores of a block become weights, and each row's sums over them are taken on the way."""

import numpy as np

from glasshead.engines.streaming.kernels.compiling import fill, kernel
from glasshead.engines.streaming.kernels.exponential import exponential
from glasshead.engines.streaming.said import (
    ENTROPY,
    FACTOR,
    KEY,
    LOG_SUM,
    MANY,
    MANY_KEYS,
    MAX_SCORE,
    MAX_WEIGHT,
    SAID,
    SCORES,
)


@kernel
def weigh(scores, first, first_key, bounds, sink, groups, keyed, rows):
    """Turn the scores s of each row into exp(s - max), and sum over them.

    Args:
        scores: `[queries, keys]`, in place; 0 outside of what a row sees.
        first, first_key: The query of the first row and the key of the first column.
        bounds: The first key that each query sees, and the one after the last, `[2, queries]` of
            all queries; -inf between them hides, too.
        sink: A score without a key, -inf if there is none.
        groups: Room for the maxima of keys that are so many apart, as many as are wanted.
        keyed: Whether the key of the maximum is wanted.
        rows: What is said of each row, `[9, queries]` of all queries: all but the distances. FACTOR
            is what makes weights of the scores as they are left here.
    """
    real = scores.dtype.type
    zero, nothing = real(0), real(-np.inf)
    least = real(-88.0) if scores.itemsize == 4 else real(-709.0)
    for i in range(len(scores)):
        at = first + i
        start, stop = bounds[0, at] - first_key, bounds[1, at] - first_key
        start, stop = (start, stop) if start < stop else (0, 0)
        row = scores[i, start:stop]
        fill(scores[i, :start], zero)
        fill(scores[i, stop:], zero)

        # The maxima of strided groups are vector code where the maximum of a row is not.
        fill(groups, nothing)
        width = len(groups)
        full = len(row) // width
        for g in range(full):
            part = row[g * width : (g + 1) * width]
            for j in range(width):
                groups[j] = max(groups[j], part[j])
        part = row[full * width :]
        for j in range(len(part)):
            groups[j] = max(groups[j], part[j])
        largest = nothing
        for j in range(width):
            largest = max(largest, groups[j])

        broken = False
        if largest == -np.inf:
            # Hidden all of it, or of no number; the two are told apart where it is rare.
            for j in range(len(row)):
                broken = broken or row[j] != row[j]
        if largest == -np.inf and not broken:
            fill(row, zero)
            for r in range(SAID):
                rows[r, at] = 0
            rows[LOG_SUM, at] = rows[MAX_SCORE, at] = nothing
            rows[KEY, at], rows[MANY_KEYS, at] = MANY - 1, -1
            continue

        key = -1
        if keyed:
            key = len(row)
            for j in range(width):
                if groups[j] == largest:
                    for g in range(j, len(row), width):
                        if row[g] == largest:
                            key = min(key, g)
                            break
            key = -1 if key == len(row) else key + start + first_key

        top = max(largest, sink)
        total = real(0)
        by_log = real(0)
        for j in range(len(row)):
            x = row[j] - top
            x = max(x, least)
            p = exponential(x)
            row[j] = p
            total += p
            by_log += p * x
        whole = total
        if sink != -np.inf:
            whole += real(np.exp(sink - top))
        inverse = real(1) / whole
        log = real(np.log(whole))
        rows[LOG_SUM, at] = top + log
        rows[MAX_SCORE, at] = largest
        rows[MAX_WEIGHT, at] = real(np.exp(largest - top)) * inverse
        rows[ENTROPY, at] = (log * total - by_log) * inverse
        rows[SCORES, at] = (by_log + top * total) * inverse
        rows[FACTOR, at] = inverse
        if np.isnan(total):
            # Where a score is not a number, it is the first such that counts as the largest.
            rows[MAX_SCORE, at] = rows[MAX_WEIGHT, at] = total
            for j in range(len(row)):
                if np.isnan(row[j]):
                    key = j + start + first_key
                    break
        rows[KEY, at], rows[MANY_KEYS, at] = key % MANY, key // MANY
