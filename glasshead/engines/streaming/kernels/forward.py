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
def score(recipe, scale, first, last, first_key, keys, row, width, across, query, scores, capped):
    """Compute the scores of a block up to the normalizer; hidden pairs within bounds are -inf.

    q is copied to `query`, in rows of `across` numbers, where the recipe has its numbers; the
    capped scores are kept in `capped`, if that is not empty. `scale` multiplies the products.
    Returns the scores as a matrix with rows of `row` numbers, of which those beyond the keys and
    the rows beyond the last query hold anything.
    """
    count = last - first
    rows = (count + recipe.rows - 1) // recipe.rows * recipe.rows
    dim = recipe.query.width
    if len(recipe.query.numbers):
        copy_rows(recipe.query, first, count, across, query[: rows * across])
    flat = scores[: rows * row]
    times_panels(
        query,
        recipe.half_query,
        first,
        rows,
        across,
        dim,
        recipe.panels,
        first_key,
        keys,
        width,
        scale,
        flat,
        row,
    )
    if recipe.softcap > 0:
        cap(flat, recipe.softcap)
        for j in range(min(len(flat), len(capped))):
            capped[j] = flat[j]
    matrix = as_matrix(flat, rows, row)
    seen = matrix[:count]
    if len(recipe.table):
        add_table(seen, recipe.table, recipe.bounds.shape[1] - last + first_key)
    if len(recipe.bias.numbers):
        add_bias(seen, first, first_key, recipe.bias, recipe.bounds)
    if len(recipe.visible.numbers):
        hide(seen, first, first_key, recipe.visible, recipe.bounds)
    return matrix


@kernel
def forward_blocks(
    recipe, value, pairs, spec, results, halves, workspace, width, height, first_row, step, last_row
):
    """Compute context and sums of blocks of at most `height` queries, one every `step` rows.

    Args:
        recipe: The inputs that define the scores, which round as the reference's do.
        value: The values; of size 0 where no context is computed, or from `pairs`.
        pairs: The values as pairs of rows, which are multiplied on matrix tiles, as wide as `value`
            says; of size 0 if they are not.
        spec, results: Output specification, and output arrays.
        halves: The context in bfloat16, flat, in place of that among the results; or of size 0.
        workspace: Scratch memory for a block.
        width: The keys of a panel.
        height: The queries of a block.
        first_row, step, last_row: Which queries.
    """
    span_rows(spec.per_key, workspace.spans)
    if recipe.panels.tiled or len(pairs):
        open_tiles()
    one, scale = workspace.query.dtype.type(1), workspace.query.dtype.type(recipe.scale)
    # A pass less, where nothing comes between the products and the softmax.
    late = (
        recipe.panels.tiled
        and scale > 0
        and not recipe.softcap > 0
        and not len(recipe.table)
        and not len(recipe.bias.numbers)
    )
    in_parts = (
        (late or len(recipe.known) > 0)
        and scale > 0
        and not recipe.softcap > 0
        and not len(recipe.table)
        and not len(recipe.bias.numbers)
        and not len(recipe.visible.numbers)
    )
    summed = reduces(spec, results)
    kept = not (recipe.panels.tiled or len(pairs)) or summed or spec.far > 0
    for first in range(first_row, last_row, step):
        last = min(first + height, last_row)
        start, stop = hull(recipe.bounds, first, last, width)
        if start == stop:
            fill(results.rows[LOG_SUM, first:last], -np.inf)
            fill(results.rows[MAX_SCORE, first:last], -np.inf)
            fill(results.rows[KEY, first:last], MANY - 1)
            fill(results.rows[MANY_KEYS, first:last], -1)
            continue
        keys = row = stop - start
        if recipe.panels.tiled and row % _APART == 0:
            row += width
        if in_parts:
            row = keys + width * (keys % _APART == 0)
            far = spec.far > 0
            block = Block(first, last, start, stop, width, row, summed, spec.keyed > 0, far)
            weights = attend_in_parts(recipe, pairs, value.width, workspace, block, results.rows)
            _write_context(
                workspace, value.width, results.rows, first, last, results.context, halves
            )
            if summed:
                reduce_block(recipe, spec, results, workspace, weights, first, last, start)
            settle(results.rows, first, last, weights.dtype.type(recipe.sink))
            continue
        scores = score(
            recipe,
            one if late else scale,
            first,
            last,
            start,
            keys,
            row,
            width,
            recipe.query.width,
            workspace.query,
            workspace.scores,
            workspace.query[:0],
        )
        weights = scores[: last - first]
        weigh(
            weights,
            scale if late else one,
            first,
            start,
            recipe.bounds,
            weights.dtype.type(recipe.sink),
            spec.keyed,
            kept,
            workspace.rounded,
            results.rows,
        )
        if len(pairs):
            rows, across = scores.shape
            times_paired_rows(
                workspace.rounded,
                rows,
                across,
                start,
                keys,
                pairs,
                value.width,
                workspace.product,
                False,
            )
        elif len(value.numbers):
            rows, across = scores.shape
            times_matrix(
                workspace.scores,
                rows,
                across,
                start,
                recipe.keys,
                value,
                workspace.product,
                width,
            )
        _write_context(workspace, value.width, results.rows, first, last, results.context, halves)
        if spec.far:
            factors = results.rows[FACTOR, first:last]
            position = first + recipe.offset - start
            sum_distances(weights, factors, position, results.rows[DISTANCES, first:last])
        reduce_block(recipe, spec, results, workspace, weights, first, last, start)
    if recipe.panels.tiled or len(pairs):
        release_tiles()


@together
def _write_context(workspace, across, rows, first, last, context, halves):
    """Compute context_i = factors_i · product_i, whose rows have `across` numbers."""
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
