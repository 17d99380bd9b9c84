"""Blocks of queries and keys: their scores, and the forward pass over them."""

import numpy as np

from glasshead.engines.streaming.kernels.options import as_matrix, fill, kernel, together
from glasshead.engines.streaming.kernels.packing import copy_rows
from glasshead.engines.streaming.kernels.parts import Block, attend_in_parts, settle
from glasshead.engines.streaming.kernels.products import times_matrix, times_panels
from glasshead.engines.streaming.kernels.streamed import (
    DISTANCES,
    FACTOR,
    KEY,
    LOG_SUM,
    MANY,
    MANY_KEYS,
    MAX_SCORE,
)
from glasshead.engines.streaming.kernels.sums import (
    reduce_block,
    reduces,
    span_rows,
    sum_distances,
)
from glasshead.engines.streaming.kernels.tiles import (
    open_tiles,
    release_tiles,
    round_rows,
    times_paired_rows,
)
from glasshead.engines.streaming.kernels.weigh import (
    add_bias,
    add_table,
    cap,
    hide,
    weigh,
)


@kernel
def hull(bounds, first, last, width):
    """Return the range of keys that the queries see, widened to whole panels."""
    start, stop = -1, 0
    for i in range(first, last):
        if bounds[0, i] < bounds[1, i]:
            start = bounds[0, i] if start < 0 else min(start, bounds[0, i])
            stop = max(stop, bounds[1, i])
    if start < 0:
        return 0, 0
    return start // width * width, (stop + width - 1) // width * width


# The rows of a tile must not be a multiple of so many numbers apart: an odd number of the cache's
# lines, or pairs of them, share no set of it.
_APART = 64


@together
def apart(keys, width):
    """Return how far apart rows of so many keys, in whole panels of `width`, are to be."""
    return keys + width if keys % _APART == 0 else keys


@together
def score(recipe, scale, block, across, query, scores, capped):
    """Compute the scores of a block up to the normalizer; hidden pairs within bounds are -inf.

    q is copied to `query`, in rows of `across` numbers, where the recipe has its numbers; the
    capped scores are kept in `capped`, if that is not empty. `scale` multiplies the products.
    Returns the scores as a matrix with rows of `block.row` numbers, of which those beyond the keys
    and the rows beyond the last query hold anything.
    """
    first, last, first_key = block.first, block.last, block.start
    count = last - first
    rows = (count + recipe.rows - 1) // recipe.rows * recipe.rows
    if len(recipe.query.numbers):
        copy_rows(recipe.query, first, count, across, query[: rows * across])
    flat = scores[: rows * block.row]
    times_panels(
        query,
        recipe.half_query,
        first,
        rows,
        across,
        recipe.query.width,
        recipe.panels,
        first_key,
        block.stop - first_key,
        block.width,
        scale,
        flat,
        block.row,
    )
    if recipe.softcap > 0:
        cap(flat, recipe.softcap)
        for j in range(min(len(flat), len(capped))):
            capped[j] = flat[j]
    matrix = as_matrix(flat, rows, block.row)
    seen = matrix[:count]
    if len(recipe.table):
        add_table(seen, recipe.table, recipe.bounds.shape[1] - last + first_key)
    if len(recipe.bias.numbers):
        add_bias(seen, first, first_key, recipe.bias, recipe.bounds)
    if len(recipe.visible.numbers):
        hide(seen, first, first_key, recipe.visible, recipe.bounds)
    return matrix


@kernel
def forward_blocks(recipe, values, spec, outputs, workspace, blocks):
    """Compute context and sums of blocks of queries.

    Args:
        recipe: The inputs that define the scores, which round as the reference's do.
        values: The values.
        spec, outputs: Output specification, and output arrays.
        workspace: Scratch memory for a block.
        blocks: Which queries.
    """
    span_rows(spec.per_key, workspace.spans)
    width, results = blocks.width, outputs.results
    tiled = recipe.panels.tiled or len(values.pairs) > 0
    if tiled:
        open_tiles()
    # Nothing comes between the products and the softmax.
    bare = (
        recipe.scale > 0
        and not recipe.softcap > 0
        and not len(recipe.table)
        and not len(recipe.bias.numbers)
    )
    # A pass less: the softmax scales.
    late = recipe.panels.tiled and bare
    in_parts = bare and (late or len(recipe.known) > 0) and not len(recipe.visible.numbers)
    summed = reduces(spec, results)
    kept = summed or (not in_parts and (not tiled or spec.far > 0))
    for first in range(blocks.first_row, blocks.last_row, blocks.step):
        last = min(first + blocks.height, blocks.last_row)
        start, stop = hull(recipe.bounds, first, last, width)
        if start == stop:
            fill(results.rows[LOG_SUM, first:last], -np.inf)
            fill(results.rows[MAX_SCORE, first:last], -np.inf)
            fill(results.rows[KEY, first:last], MANY - 1)
            fill(results.rows[MANY_KEYS, first:last], -1)
            continue
        row = stop - start
        if in_parts or recipe.panels.tiled:
            row = apart(row, width)
        keyed, far = spec.keyed > 0, spec.far > 0
        block = Block(first, last, start, stop, width, row, kept, keyed, far)
        if in_parts:
            across = values.numbers.width
            weights = attend_in_parts(recipe, values.pairs, across, workspace, block, results.rows)
            _write_context(workspace, across, outputs, first, last)
            if summed:
                reduce_block(recipe, spec, results, workspace, weights, first, last, start)
            settle(results.rows, first, last, weights.dtype.type(recipe.sink))
        else:
            weights = _attend(recipe, late, values, workspace, block, results.rows)
            _write_context(workspace, values.numbers.width, outputs, first, last)
            if far:
                factors = results.rows[FACTOR, first:last]
                position = first + recipe.offset - start
                sum_distances(weights, factors, position, results.rows[DISTANCES, first:last])
            reduce_block(recipe, spec, results, workspace, weights, first, last, start)
    if tiled:
        release_tiles()


@together
def _attend(recipe, late, values, workspace, block, rows):
    """Compute the weights of a block of queries, but a factor of each row, and P·V.

    `late` says whether the softmax scales the scores. Returns the weights as a matrix.
    """
    real = workspace.query.dtype.type
    one, scale = real(1), real(recipe.scale)
    scores = score(
        recipe,
        one if late else scale,
        block,
        recipe.query.width,
        workspace.query,
        workspace.scores,
        workspace.query[:0],
    )
    weights = scores[: block.last - block.first]
    weigh(
        weights,
        scale if late else one,
        block,
        recipe.bounds,
        real(recipe.sink),
        workspace.rounded,
        rows,
    )
    count, across = scores.shape
    width, product, keys = values.numbers.width, workspace.product, block.stop - block.start
    if len(values.pairs):
        times_paired_rows(
            workspace.rounded,
            count,
            across,
            block.start,
            keys,
            values.pairs,
            width,
            product,
            False,
        )
    elif len(values.numbers.numbers):
        times_matrix(
            workspace.scores,
            count,
            across,
            block.start,
            recipe.keys,
            values.numbers,
            product,
            block.width,
        )
    return weights


@together
def _write_context(workspace, across, outputs, first, last):
    """Compute context_i = factors_i · product_i, whose rows have `across` numbers."""
    rows, context, halves = outputs.results.rows, outputs.results.context, outputs.halves
    count, factors = last - first, rows[FACTOR, first:last]
    if len(halves):
        width = len(halves) // rows.shape[1]
        into = halves[first * width : (first + count) * width]
        round_rows(workspace.product, across, factors, workspace.rounded, width, into)
        return
    for i in range(count):
        row = workspace.product[i * across : i * across + context.shape[1]]
        into, factor = context[first + i], factors[i]
        for d in range(len(into)):
            into[d] = row[d] * factor
