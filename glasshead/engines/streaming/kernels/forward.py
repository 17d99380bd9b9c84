"""Blocks of queries and keys: their scores, and the forward pass over them."""

import numpy as np

from glasshead.engines.streaming.kernels.options import as_matrix, fill, kernel, together
from glasshead.engines.streaming.kernels.packing import copy_rows
from glasshead.engines.streaming.kernels.products import ROWS, times_matrix, times_panels
from glasshead.engines.streaming.kernels.streamed import (
    FACTOR,
    KEY,
    LOG_SUM,
    MANY,
    MANY_KEYS,
    MAX_SCORE,
)
from glasshead.engines.streaming.kernels.sums import reduce_block, span_rows
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


@together
def score(recipe, first, last, first_key, keys, width, across, query, scores, capped):
    """Compute the scores of a block up to the normalizer; hidden pairs within bounds are -inf.

    q is copied to `query`, in rows of `across` numbers, where the recipe has its numbers; the
    capped scores are kept in `capped`, if that is not empty. Returns the scores as a matrix, of
    which the rows beyond the last query hold anything.
    """
    count = last - first
    rows = (count + ROWS - 1) // ROWS * ROWS
    dim = recipe.query.width
    real = query.dtype.type
    if len(recipe.query.numbers):
        copy_rows(recipe.query, first, count, across, query[: rows * across])
    flat = scores[: rows * keys]
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
        real(recipe.scale),
        flat,
    )
    if recipe.softcap > 0:
        cap(flat, recipe.softcap)
        for j in range(min(len(flat), len(capped))):
            capped[j] = flat[j]
    matrix = as_matrix(flat, rows, keys)
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
    recipe, value, spec, results, workspace, width, height, first_row, step, last_row
):
    """Compute context and sums of blocks of at most `height` queries, one every `step` rows.

    Args:
        recipe: The inputs that define the scores, which round as the reference's do.
        value: The values; of size 0 where no context is computed.
        spec, results: Output specification, and output arrays.
        workspace: Scratch memory for a block.
        width: The keys of a panel.
        height: The queries of a block.
        first_row, step, last_row: Which queries.
    """
    span_rows(spec.per_key, workspace.spans)
    for first in range(first_row, last_row, step):
        last = min(first + height, last_row)
        start, stop = hull(recipe.bounds, first, last, width)
        if start == stop:
            fill(results.rows[LOG_SUM, first:last], -np.inf)
            fill(results.rows[MAX_SCORE, first:last], -np.inf)
            fill(results.rows[KEY, first:last], MANY - 1)
            fill(results.rows[MANY_KEYS, first:last], -1)
            continue
        scores = score(
            recipe,
            first,
            last,
            start,
            stop - start,
            width,
            recipe.query.width,
            workspace.query,
            workspace.scores,
            workspace.query[:0],
        )
        weights = scores[: last - first]
        weigh(
            weights,
            first,
            start,
            recipe.bounds,
            weights.dtype.type(recipe.sink),
            spec.keyed,
            results.rows,
        )
        factors = results.rows[FACTOR, first:last]
        if len(value.numbers):
            _mix(
                workspace.scores,
                scores,
                last - first,
                start,
                recipe.keys,
                value,
                factors,
                workspace.product,
                width,
                results.context[first:last],
            )
        reduce_block(recipe, spec, results, workspace, weights, first, last, start)


@together
def _mix(flat, scores, count, start, keys, value, factors, product, width, context):
    """Compute context_i = factors_i · Σ_j scores_ij value_j."""
    rows, across = scores.shape
    times_matrix(flat, rows, across, start, keys, value, product, width)
    for i in range(count):
        row = product[i * value.width : i * value.width + context.shape[1]]
        into = context[i]
        factor = factors[i]
        for d in range(len(into)):
            into[d] = row[d] * factor
