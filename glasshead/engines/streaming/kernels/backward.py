"""Backward pass over the blocks of one head: weights are recomputed, row by row."""

import numpy as np

from glasshead.engines.streaming.kernels.arguments import Operand
from glasshead.engines.streaming.kernels.exponential import exponential
from glasshead.engines.streaming.kernels.forward import apart, hull, score
from glasshead.engines.streaming.kernels.options import as_matrix, fill, kernel, together
from glasshead.engines.streaming.kernels.packing import copy_rows
from glasshead.engines.streaming.kernels.parts import Block
from glasshead.engines.streaming.kernels.processor import SQUARE
from glasshead.engines.streaming.kernels.products import (
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
def backward_blocks(recipe, vectors, row_stats, given, gradients, workspace, blocks):
    """Compute the gradients of blocks of queries.

    Args:
        recipe: The inputs that define the scores.
        vectors: Keys and values, as they are multiplied by.
        row_stats: The row statistics of `weigh`: the largest score, and the factor that turns
            exp(s - the larger of it and the sink) into weights, `[2, queries]`.
        given, gradients: Incoming gradients, and output arrays.
        workspace: Scratch memory for a block.
        blocks: Which queries.
    """
    real, pairs = workspace.query.dtype.type, vectors.pairs
    tiled = recipe.panels.tiled or vectors.values.tiled
    if tiled:
        open_tiles()
    for first in range(blocks.first_row, blocks.last_row, blocks.step):
        last = min(first + blocks.height, blocks.last_row)
        start, stop = hull(recipe.bounds, first, last, blocks.width)
        if start == stop:
            continue
        # On matrix tiles, the rows are as far apart as there are keys until they are rounded.
        row = stop - start if len(pairs.key) else apart(stop - start, blocks.width)
        block = Block(first, last, start, stop, blocks.width, row, True, False, False)
        scores = score(
            recipe,
            real(recipe.scale),
            block,
            vectors.key.width,
            workspace.query,
            workspace.scores,
            workspace.capped,
        )
        rows = len(scores)
        flat, wide = workspace.gradient[: rows * row], len(workspace.context) // blocks.height
        _gradient_of_weights(
            given, vectors.values, len(pairs.key) > 0, workspace, block, wide, flat
        )
        gradient = as_matrix(flat, rows, row)
        _gradient_of_scores(scores, gradient, block, recipe, row_stats, given, gradients.sink)
        if len(gradients.table):
            add_diagonals(
                gradient[: last - first],
                workspace.ones,
                gradients.table[recipe.bounds.shape[1] - last + start :],
            )
        if len(gradients.bias.numbers):
            _add_to_bias(gradient, first, last, start, recipe.bounds, gradients.bias)
        if recipe.softcap > 0:
            _uncap(flat, workspace.capped, real(1 / recipe.softcap))
        if len(pairs.key):
            _add_on_tiles(vectors, real(recipe.scale), workspace, block, rows, wide, gradients)
            factor = real(1)
        else:
            if given.context.width:
                _add_transposed(
                    workspace.scores, rows, workspace.context, wide, gradients.value, block
                )
            factor = real(recipe.scale)
            _add_numbers(vectors.key, factor, workspace, block, rows, recipe.keys, gradients.key)
        _copy_product(workspace.product, vectors.key.width, factor, gradients.query[first:last])
    if tiled:
        release_tiles()


@together
def _gradient_of_weights(given, values, paired, workspace, block, wide, flat):
    """Compute dO·Vᵀ of a block, flat; 0 if no gradient of the context arrives.

    `paired` says whether all vectors are pairs, and `wide` how far apart rows of dO are.
    """
    count, rows = block.last - block.first, len(flat) // block.row
    if not given.context.width:
        fill(flat, 0)
        return
    if not paired:
        copy_rows(given.context, block.first, count, wide, workspace.context[: rows * wide])
    times_panels(
        workspace.context,
        given.half_context,
        block.first,
        rows,
        wide,
        given.context.width,
        values,
        block.start,
        block.stop - block.start,
        block.width,
        flat.dtype.type(1),
        flat,
        block.row,
    )


@together
def _add_on_tiles(vectors, scale, workspace, block, rows, wide, gradients):
    """Add a block to the gradients of values and keys on matrix tiles, and compute the queries'."""
    across, keys, one = vectors.key.width, block.row, workspace.scores.dtype.type(1)
    apart = keys + SQUARE * (keys % (2 * SQUARE) == 0)
    halves, turned = workspace.rounded, workspace.turned
    first, start, pairs = block.first, block.start, vectors.pairs
    round_block(workspace.scores, rows, keys, one, halves, apart)
    add_paired_columns(
        halves, rows, apart, keys, turned, pairs.context, first, wide, gradients.value, start
    )
    round_block(workspace.gradient, rows, keys, scale, halves, apart)
    add_paired_columns(
        halves, rows, apart, keys, turned, pairs.query, first, across, gradients.key, start
    )
    times_paired_rows(halves, rows, apart, start, keys, pairs.key, across, workspace.product, False)


@together
def _add_numbers(key, scale, workspace, block, rows, keys, gradient):
    """Add a block to the gradient of keys, and compute that of its queries but a scale."""
    query, flat = workspace.query, workspace.gradient
    for j in range(rows * key.width):
        query[j] *= scale
    _add_transposed(flat, rows, query, key.width, gradient, block)
    last = min(block.stop, keys)
    times_matrix(flat, rows, block.row, block.start, last, key, workspace.product, block.width)


@kernel
def _uncap(gradient, capped, factor):
    """Turn gradients of capped scores, whose softcap is 1 / factor, into those of scores."""
    zero, one = gradient.dtype.type(0), gradient.dtype.type(1)
    for j in range(len(gradient)):
        tangent = capped[j] * factor
        # A score of which nothing depends may be NaN.
        gradient[j] = gradient[j] * (one - tangent * tangent) if gradient[j] != 0 else zero


@kernel
def _copy_product(product, across, factor, into):
    """Copy factor times a product, whose rows have `across` numbers."""
    for i in range(len(into)):
        row, copy = product[i * across : i * across + into.shape[1]], into[i]
        for d in range(len(copy)):
            copy[d] = row[d] * factor


@kernel
def _gradient_of_scores(scores, gradient, block, recipe, row_stats, given, sink):
    """Turn scores into weights, and gradients of weights into gradients of scores, in place.

    With u_j the gradient of p_j, that of s_j is p_j (u_j - Σ_k p_k u_k + that of the logsumexp).
    A logsumexp alone would not do: next to scores of 1e9, the logarithm of a sum is rounded away.
    """
    first, last, first_key = block.first, block.last, block.start
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
def _add_transposed(weights, rows, vectors, across, sums, block):
    """Add weightsᵀ · vectors of a block to `sums`, whose rows have `across` numbers."""
    width = block.width
    for j in range(0, block.stop - block.start, width):
        turned = Operand(weights, j, 1, block.row)
        for d in range(0, across, width):
            right = Operand(vectors, d, across, 1)
            into = Operand(sums, (block.start + j) * across + d, across, 1)
            multiply_rows(turned, width, right, rows, into, True, 1)
