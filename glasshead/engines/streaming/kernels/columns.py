"""Sums down the columns of a block."""

import numpy as np

from glasshead.engines.streaming.kernels.compiling import fill, kernel


@kernel
def add_columns(weights, factors, sums):
    """sums_j += Σ_i factors_i · weights_ij, eight rows at a time, in float64 between."""
    rows, last = len(weights), len(weights) - 1
    zero = weights.dtype.type(0)
    for first in range(0, rows, 8):
        f0 = factors[first]
        f1 = factors[first + 1] if first + 1 < rows else zero
        f2 = factors[first + 2] if first + 2 < rows else zero
        f3 = factors[first + 3] if first + 3 < rows else zero
        f4 = factors[first + 4] if first + 4 < rows else zero
        f5 = factors[first + 5] if first + 5 < rows else zero
        f6 = factors[first + 6] if first + 6 < rows else zero
        f7 = factors[first + 7] if first + 7 < rows else zero
        w0 = weights[first]
        w1 = weights[min(first + 1, last)]
        w2 = weights[min(first + 2, last)]
        w3 = weights[min(first + 3, last)]
        w4 = weights[min(first + 4, last)]
        w5 = weights[min(first + 5, last)]
        w6 = weights[min(first + 6, last)]
        w7 = weights[min(first + 7, last)]
        for j in range(len(sums)):
            near = (f0 * w0[j] + f1 * w1[j]) + (f2 * w2[j] + f3 * w3[j])
            far = (f4 * w4[j] + f5 * w5[j]) + (f6 * w6[j] + f7 * w7[j])
            sums[j] += np.float64(near + far)


@kernel
def add_diagonals(weights, factors, sums):
    """sums_(last - i + j) += factors_i · weights_ij, in a table that ends with the last key."""
    last = len(weights) - 1
    for i in range(len(weights)):
        diagonal = sums[last - i : last - i + weights.shape[1]]
        row = weights[i, : len(diagonal)]
        factor = factors[i]
        for j in range(len(row)):
            diagonal[j] += np.float64(factor * row[j])


@kernel
def add_blocks(weights, factors, first, queries, first_key, keys, room, cells):
    """cells_(r, c) += Σ_ij factors_i · weights_ij over the queries and keys of that cell.

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
