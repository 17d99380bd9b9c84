"""Backward pass over the blocks of one head: weights are recomputed, row by row."""

import numpy as np

from glasshead.engines.streaming.kernels.exponential import exponential
from glasshead.engines.streaming.kernels.forward import hull, score
from glasshead.engines.streaming.kernels.options import as_matrix, fill, kernel
from glasshead.engines.streaming.kernels.packing import copy_rows
from glasshead.engines.streaming.kernels.processor import SQUARE
from glasshead.engines.streaming.kernels.products import (
    Operand,
    multiply_rows,
    times_matrix,
    times_panels,
)
from glasshead.engines.streaming.kernels.sums import add_diagonals
from glasshead.engines.streaming.kernels.tiles import (
    add_paired_columns,
    open_tiles,
    release_tiles,
    round_block,
    times_paired_rows,
)


@kernel
def backward_blocks(
    recipe,
    key,
    values,
    row_stats,
    given,
    gradients,
    pairs,
    workspace,
    width,
    height,
    first_row,
    step,
    last_row,
):
    """Compute the gradients of blocks of at most `height` queries, one every `step` rows.

    Args:
        recipe: The inputs that define the scores.
        key: The keys, in rows whose width is a multiple of a product's tile.
        values: The values; of size 0 where no gradient of the context arrives.
        row_stats: The row statistics of `weigh`: the largest score, and the factor that turns
            exp(s - the larger of it and the sink) into weights, `[2, queries]`.
        given, gradients: Incoming gradients, and output arrays.
        pairs: The vectors as pairs of rows, which are multiplied on matrix tiles; of size 0 if
            numbers are.
        workspace: Scratch memory for a block.
        width, height: The keys of a panel, and the queries of a block.
        first_row, step, last_row: Which queries.
    """
    across = key.width
    real = workspace.query.dtype.type
    tiled = recipe.panels.tiled or values.tiled
    if tiled:
        open_tiles()
    for first in range(first_row, last_row, step):
        last = min(first + height, last_row)
        start, stop = hull(recipe.bounds, first, last, width)
        if start == stop:
            continue
        keys = stop - start
        scores = score(
            recipe,
            real(recipe.scale),
            first,
            last,
            start,
            keys,
            keys,
            width,
            across,
            workspace.query,
            workspace.scores,
            workspace.capped,
        )
        rows = len(scores)
        flat = workspace.gradient[: rows * keys]
        wide = len(workspace.context) // height
        if given.context.width:
            if not len(pairs.key):
                context = workspace.context[: rows * wide]
                copy_rows(given.context, first, last - first, wide, context)
            times_panels(
                workspace.context,
                given.half_context,
                first,
                rows,
                wide,
                given.context.width,
                values,
                start,
                keys,
                width,
                real(1),
                flat,
                keys,
            )
        else:
            fill(flat, 0)
        gradient = as_matrix(flat, rows, keys)
        _gradient_of_scores(
            scores, gradient, first, last, start, recipe, row_stats, given, gradients.sink
        )
        if len(gradients.table):
            add_diagonals(
                gradient[: last - first],
                workspace.ones,
                gradients.table[recipe.bounds.shape[1] - last + start :],
            )
        if len(gradients.bias.numbers):
            _add_to_bias(gradient, first, last, start, recipe.bounds, gradients.bias)
        if recipe.softcap > 0:
            factor = real(1 / recipe.softcap)
            for j in range(len(flat)):
                tangent = workspace.capped[j] * factor
                # A score of which nothing depends may be NaN.
                flat[j] = flat[j] * (real(1) - tangent * tangent) if flat[j] != 0 else real(0)
        if len(pairs.key):
            apart = keys + SQUARE
            if keys % (2 * SQUARE):
                apart = keys
            round_block(workspace.scores, rows, keys, real(1), workspace.rounded, apart)
            add_paired_columns(
                workspace.rounded,
                rows,
                apart,
                keys,
                workspace.turned,
                pairs.context,
                first,
                wide,
                gradients.value,
                start,
            )
            round_block(flat, rows, keys, real(recipe.scale), workspace.rounded, apart)
            add_paired_columns(
                workspace.rounded,
                rows,
                apart,
                keys,
                workspace.turned,
                pairs.query,
                first,
                across,
                gradients.key,
                start,
            )
            times_paired_rows(
                workspace.rounded,
                rows,
                apart,
                start,
                keys,
                pairs.key,
                across,
                workspace.product,
                False,
            )
            _copy_product(workspace.product, across, real(1), gradients.query[first:last])
            continue
        if given.context.width:
            _add_transposed(
                workspace.scores, rows, keys, workspace.context, wide, gradients.value, start, width
            )
        for j in range(rows * across):
            workspace.query[j] *= real(recipe.scale)
        _add_transposed(flat, rows, keys, workspace.query, across, gradients.key, start, width)
        times_matrix(flat, rows, keys, start, recipe.keys, key, workspace.product, width)
        _copy_product(workspace.product, across, real(recipe.scale), gradients.query[first:last])
    if tiled:
        release_tiles()


@kernel
def _copy_product(product, across, factor, into):
    """Copy factor times a product, whose rows have `across` numbers."""
    for i in range(len(into)):
        row, copy = product[i * across : i * across + into.shape[1]], into[i]
        for d in range(len(copy)):
            copy[d] = row[d] * factor


@kernel
def _gradient_of_scores(scores, gradient, first, last, first_key, recipe, row_stats, given, sink):
    """Turn scores into weights, and gradients of weights into gradients of scores, in place.

    With u_j the gradient of p_j, that of s_j is p_j (u_j - Σ_k p_k u_k + that of the logsumexp).
    A logsumexp alone would not do: next to scores of 1e9, the logarithm of a sum is rounded away.
    """
    real = scores.dtype.type
    zero = real(0)
    least = real(-88.0) if scores.itemsize == 4 else real(-709.0)
    for i in range(len(scores)):
        start = stop = 0
        largest = top = inverse = zero
        if first + i < last:
            largest = row_stats[0, first + i]
            top = max(largest, real(recipe.sink))
            inverse = row_stats[1, first + i]
            start, stop = (
                recipe.bounds[0, first + i] - first_key,
                recipe.bounds[1, first + i] - first_key,
            )
            start, stop = (start, stop) if start < stop and largest != -np.inf else (0, 0)
        row, change = scores[i, start:stop], gradient[i, start:stop]
        fill(scores[i, :start], zero)
        fill(scores[i, stop:], zero)
        fill(gradient[i, :start], zero)
        fill(gradient[i, stop:], zero)
        if start == stop:
            continue
        for r in range(len(given.per_key)):
            factor = given.by_key[r, first + i]
            column = given.per_key[r, first_key + start : first_key + stop]
            if factor != 0:
                for j in range(len(row)):
                    change[j] += factor * column[j]
        entropy = given.entropy[first + i]
        constant = entropy * (real(np.log(inverse)) + real(1))
        mean = zero
        for j in range(len(row)):
            x = row[j] - top
            x = max(x, least)
            p = exponential(x) * inverse
            u = change[j] - (entropy * x + constant)
            row[j] = p
            change[j] = u
            mean += p * u
        rest = given.logsumexp[first + i] - mean
        for j in range(len(row)):
            change[j] = row[j] * (change[j] + rest)
        if len(sink):
            sink[0] += np.exp(recipe.sink - top) * inverse * rest


@kernel
def _add_to_bias(gradient, first, last, first_key, bounds, bias):
    """Add the gradients of scores to the bias's, summed where the bias broadcasts."""
    for i in range(first, last):
        start, stop = bounds[0, i], bounds[1, i]
        place = bias.first + i * bias.row + start
        into = bias.numbers[place : place + stop - start]
        row = gradient[i - first, start - first_key : stop - first_key]
        for j in range(len(row)):
            into[j] += row[j]


@kernel
def _add_transposed(block, rows, keys, vectors, across, sums, first_key, width):
    """Add blockᵀ · vectors to `sums`, from the row `first_key` on."""
    for j in range(0, keys, width):
        for d in range(0, across, width):
            turned, right = Operand(block, j, 1, keys), Operand(vectors, d, across, 1)
            into = Operand(sums, (first_key + j) * across + d, across, 1)
            multiply_rows(turned, width, right, rows, into, True, 1)
