"""Sums over the weights of a block, along rows and columns: what `streamed` lists."""

import numpy as np

from glasshead.engines.streaming.kernels.options import as_matrix, fill, kernel, together
from glasshead.engines.streaming.kernels.streamed import FACTOR
from glasshead.engines.streaming.kernels.vectors import ROWS_ADDED, add_rows


@together
def reduces(spec, results):
    """Return whether a reduction but the mean distance reads the weights of a block."""
    return (
        results.top.shape[1] > 0
        or len(spec.per_key) > 0
        or len(spec.per_query) > 0
        or len(results.diagonals) > 0
        or len(spec.maps) > 0
    )


@together
def reduce_block(recipe, spec, results, workspace, weights, first, last, first_key):
    """Compute what is asked for, but distances, of weights that their factors are still to scale.

    Args:
        recipe: The inputs that define the scores.
        spec, results: Output specification, and output arrays.
        workspace: Scratch memory, with where the rows of R begin and end.
        weights: `[queries, keys]` of the block; 0 outside of what a row sees.
        first, last, first_key: Its first query, the one after its last, and its first key.
    """
    factors = results.rows[FACTOR, first:last]
    queries, stop = recipe.bounds.shape[1], first_key + weights.shape[1]
    if results.top.shape[1]:
        largest(
            weights,
            factors,
            first_key,
            workspace.top_groups,
            workspace.order,
            results.top[first:last],
            results.keys[first:last],
        )
    for r in range(len(spec.per_key)):
        sum_by_key(
            weights,
            factors,
            first_key,
            spec.per_key[r],
            workspace.spans[r],
            results.by_key[r, first:last],
        )
    for left in range(len(spec.per_query)):
        more = spec.per_query[left]
        some = False
        for i in range(first, last):
            workspace.factors[i - first] = factors[i - first] * more[i]
            some = some or more[i] != 0
        if some:
            add_columns(weights, workspace.factors, results.by_query[left, first_key:stop])
    if len(results.diagonals):
        add_diagonals(weights, factors, results.diagonals[queries - last + first_key :])
    place = 0
    for m in range(len(spec.maps)):
        rows, columns = spec.maps[m]
        cells = as_matrix(results.maps[place : place + rows * columns], rows, columns)
        add_blocks(
            weights,
            factors,
            first,
            queries,
            first_key,
            recipe.keys,
            workspace.columns[: stop - first_key],
            cells,
        )
        place += rows * columns


@kernel
def span_rows(rows, spans):
    """Find where each row begins and ends to be other than 0; both 0 where it is 0."""
    for r in range(len(rows)):
        row, first, last = rows[r], len(rows[r]), 0
        for j in range(len(row)):
            if row[j] != 0:
                first, last = min(first, j), j + 1
        spans[r, 0], spans[r, 1] = min(first, last), last


@kernel
def sum_by_key(weights, factors, first_key, per_key, span, sums):
    """Compute sums_i = factors_i · Σ_j weights_ij · per_key_j, over the keys of the span."""
    low = max(span[0] - first_key, 0)
    high = min(span[1] - first_key, weights.shape[1])
    for i in range(len(weights)):
        total = weights.dtype.type(0)
        if low < high:
            row, key = weights[i, low:high], per_key[first_key + low : first_key + high]
            for j in range(len(row)):
                total += row[j] * key[j]
        sums[i] = total * factors[i]


@kernel
def sum_distances(weights, factors, first_position, sums):
    """Compute sums_i = factors_i · Σ_j weights_ij · |first_position + i - j|."""
    real = weights.dtype.type
    for i in range(len(weights)):
        row = weights[i]
        total = real(0)
        place = real(first_position + i)
        for j in range(len(row)):
            total += row[j] * abs(place - real(np.int32(j)))
        sums[i] = total * factors[i]


@kernel
def largest(weights, factors, first_key, groups, order, top, keys):
    """Find the largest weights of each row and their keys; of equals, the lower key first.

    The maxima of strided groups of keys are vectorized. The k largest weights are at least the
    k-th largest of these maxima, so that only groups that reach it are searched.

    Args:
        weights: `[queries, keys]`.
        factors: What turns scores of a row into weights, `[queries]`.
        first_key: The number of the first column.
        groups: Scratch memory for the maxima, at least k.
        order: Scratch memory for the k largest of them.
        top, keys: `[queries, k]`; 0 and -1 where there is no weight.
    """
    width, k = len(groups), len(order)
    zero = weights.dtype.type(0)
    for i in range(len(weights)):
        row = weights[i]
        fill(groups, zero)
        full = len(row) // width
        for g in range(full):
            part = row[g * width : (g + 1) * width]
            for j in range(width):
                groups[j] = max(groups[j], part[j])
        part = row[full * width :]
        for j in range(len(part)):
            groups[j] = max(groups[j], part[j])

        fill(order, zero)
        for j in range(width):
            if groups[j] > order[k - 1]:
                place = k - 1
                while place > 0 and order[place - 1] < groups[j]:
                    order[place] = order[place - 1]
                    place -= 1
                order[place] = groups[j]
        bound = order[k - 1]

        values, found = top[i], keys[i]
        fill(values, zero)
        fill(found, -1)
        for j in range(width):
            if groups[j] < bound or groups[j] == 0:
                continue
            for g in range(j, len(row), width):
                p = row[g]
                if p < bound or p == 0 or not p >= values[k - 1]:
                    continue
                key = g + first_key
                place = k
                while place > 0 and (
                    values[place - 1] < p or (values[place - 1] == p and found[place - 1] > key)
                ):
                    place -= 1
                if place == k:
                    continue
                for later in range(k - 1, place, -1):
                    values[later] = values[later - 1]
                    found[later] = found[later - 1]
                values[place] = p
                found[place] = key
        for place in range(k):
            values[place] *= factors[i]
            if found[place] >= 0 and np.isnan(values[place]):
                found[place] = -1


@kernel
def add_columns(weights, factors, sums):
    """Add Σ_i factors_i · weights_ij to sums_j, some rows at a time, in float64 between."""
    rows = len(weights)
    for first in range(0, rows, ROWS_ADDED):
        count = min(ROWS_ADDED, rows - first)
        done = add_rows(weights, factors, first, count, sums)
        for j in range(done, len(sums)):
            near = weights.dtype.type(0)
            for i in range(first, first + count):
                near += factors[i] * weights[i, j]
            sums[j] += np.float64(near)


@kernel
def add_diagonals(weights, factors, sums):
    """Add factors_i · weights_ij to sums_(last - i + j), in a table that ends with the last key."""
    last = len(weights) - 1
    for i in range(len(weights)):
        diagonal = sums[last - i : last - i + weights.shape[1]]
        row = weights[i, : len(diagonal)]
        factor = factors[i]
        for j in range(len(row)):
            diagonal[j] += np.float64(factor * row[j])


@kernel
def add_blocks(weights, factors, first, queries, first_key, keys, room, cells):
    """Add Σ_ij factors_i · weights_ij over each cell's queries and keys to cells_(r, c).

    Row r of `cells` begins with query r · queries // rows, column c with key c · keys // columns.

    Args:
        weights: `[queries, keys]` of the block.
        factors: What makes weights of a row.
        first, first_key: The block's first query and key.
        queries, keys: How many there are in all.
        room: For the sums of a few rows, in float64, `[keys]` of the block.
        cells: `[rows, columns]`, in float64.
    """
    rows, columns = cells.shape
    i = 0
    while i < len(weights):
        r = ((first + i + 1) * rows + queries - 1) // queries - 1
        end = min(len(weights), (r + 1) * queries // rows - first)
        fill(room, 0.0)
        add_columns(weights[i:end], factors[i:end], room)
        begin = ((first_key + 1) * columns + keys - 1) // keys - 1
        for c in range(begin, columns):
            low = max(c * keys // columns - first_key, 0)
            high = min((c + 1) * keys // columns - first_key, len(room))
            if low >= len(room):
                break
            part = room[low:high]
            total = 0.0
            for j in range(len(part)):
                total += part[j]
            cells[r, c] += total
        i = end
