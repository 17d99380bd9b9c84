"""What is taken from each row of weights."""

import numpy as np

from glasshead.engines.streaming.kernels.compiling import fill, kernel


@kernel
def sum_by_key(weights, factors, first_key, per_key, span, sums):
    """sums_i = factors_i · Σ_j weights_ij · per_key_j, over the keys of the span."""
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
    """sums_i = factors_i · Σ_j weights_ij · |first_position + i - j|."""
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
    """The largest weights of each row and their keys; of equals, the lower key first.

    The maxima of strided groups of keys are vector code. As many groups as are asked for hold a
    weight of at least the k-th largest of these maxima, so that only such groups are looked into.

    Args:
        weights: `[queries, keys]`.
        factors: What makes weights of a row, `[queries]`.
        first_key: The number of the first column.
        groups: Room for the maxima, at least as many as k.
        order: Room for the largest of them, k.
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
