"""Blocks of queries whose keys pass by in parts: scores, weights and sums while they are near.

What a row sums up is relative to a reference near its largest score, in powers of 2. If that is far
off, which is rare, the block is computed again, by the largest scores.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from glasshead.engines.streaming.kernels.arguments import (
    FAR,
    LOGS,
    MAXIMA,
    ROW_SUMS,
    TOTALS,
)
from glasshead.engines.streaming.kernels.options import as_matrix, fill, kernel, together
from glasshead.engines.streaming.kernels.packing import copy_rows
from glasshead.engines.streaming.kernels.processor import NEAR, NEAR_ROW
from glasshead.engines.streaming.kernels.products import times_panels
from glasshead.engines.streaming.kernels.streamed import (
    DISTANCES,
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
from glasshead.engines.streaming.kernels.vectors import (
    TILE,
    Powers,
    Start,
    Wanted,
    largest_lane,
    raise_maxima,
    sum_of_lanes,
    weigh_vectors,
)
from glasshead.engines.streaming.kernels.weigh import place_of

# How far the largest score may be from the reference, as a power of 2, with sums that are exact.
_FAR_OFF = 24.0
# Until a block of rows is finished, where its rows keep what they are to become.
_REFERENCE, _BROKEN = LOG_SUM, MAX_WEIGHT
_LOG2 = math.log(2)


class Block(NamedTuple):
    """A block of queries, and what is wanted of it.

    Attributes:
        first, last: The first query and the one after the last.
        start, stop: The range of keys, in whole panels of `width`.
        width: The keys of a panel.
        row: How far apart the rows of scores are.
        kept: Whether the weights are left in `workspace.scores`.
        keyed, far: Whether the key of the maximum is recorded, and the mean distance.
    """

    first: int
    last: int
    start: int
    stop: int
    width: int
    row: int
    kept: bool
    keyed: bool
    far: bool


class Part(NamedTuple):
    """The scores of a block for some keys, which become weights.

    Attributes:
        key, keys: The first key, and how many.
        scores, row: Where they are, in rows of `row` numbers.
        raised: Whether the maxima of the rows are raised by the scores.
        adds: Whether the product with the values is added to what is there.
    """

    key: int
    keys: int
    scores: Any
    row: int
    raised: bool
    adds: bool


@together
def attend_in_parts(recipe, pairs, across, workspace, block, rows):
    """Compute the weights of a block of queries, but a factor of each row, and P·V.

    Args:
        recipe: The inputs that define the scores: products and a scale above 0.
        pairs, across: The values as pairs of rows of `across` words; of size 0 if there are none.
        workspace: Scratch memory for the block.
        block: What is computed.
        rows: The statistics of each row, `[9, queries]` of all queries. FACTOR turns weights as
            they are left into weights: see `settle`.

    Returns the weights as a matrix, of no numbers if they are not kept.
    """
    count = block.last - block.first
    real, each = workspace.sums.dtype.type, ROW_SUMS * TILE.bytes // workspace.sums.itemsize
    if len(recipe.query.numbers):
        copy_rows(recipe.query, block.first, count, recipe.query.width, workspace.query)
    if block.keyed or not _attend_once(recipe, pairs, across, workspace, block, rows):
        _attend_by_maxima(recipe, pairs, across, workspace, block, rows)
    for i in range(count):
        at = block.first + i
        _finish_row(at, workspace.sums[i * each : (i + 1) * each], recipe, block.far, rows)
    size = count if block.kept else 0
    weights = as_matrix(workspace.scores[: size * block.row], size, block.row)
    if block.kept:
        for i in range(count):
            fill(weights[i, block.stop - block.start :], real(0))
    return weights


@kernel
def _attend_once(recipe, pairs, across, workspace, block, rows):
    """Compute the weights of a block by references near the largest scores; False: too far off.

    The references are the logsumexps, if somebody knows them, or else the largest scores of the
    keys next to the queries and of the first ones, or of the first ones that a row sees.
    """
    first, count = block.first, block.last - block.first
    near, sums, real = workspace.near, workspace.sums, workspace.sums.dtype.type
    lanes = TILE.bytes // sums.itemsize
    each = ROW_SUMS * lanes
    factor = real(recipe.scale / _LOG2)
    known = len(recipe.known) > 0
    _begin_rows(recipe, sums, block, known, rows)
    last = max(block.start, block.stop - NEAR)
    parts = 1 + (last - block.start + NEAR - 1) // NEAR
    waiting = not known
    for number in range(parts):
        key = last if number == 0 else block.start + (number - 1) * NEAR
        keys = min(NEAR, block.stop - key) if number == 0 else min(NEAR, last - key)
        part = Part(key, keys, near, NEAR_ROW, True, number > 0)
        _score_part(recipe, workspace.query, block, part)
        if waiting:
            waiting = number == 0
            for i in range(count):
                at = first + i
                if number > 1 and rows[_REFERENCE, at] > -np.inf:
                    continue
                raise_maxima(near, i * NEAR_ROW, keys, sums, i * each + MAXIMA * lanes)
                new = largest_lane(sums, i * each + MAXIMA * lanes) * factor
                change = rows[_REFERENCE, at] - new
                if change < 0:
                    rows[_REFERENCE, at] = new
                    if number == 1 and change > -np.inf:
                        place = i * block.row + last - block.start
                        _shrink(
                            change,
                            sums[i * each : (i + 1) * each],
                            workspace.product[i * across : (i + 1) * across],
                            workspace.scores[place : place + (NEAR if block.kept else 0)],
                        )
                waiting = waiting or rows[_REFERENCE, at] == -np.inf
        _weigh_part(recipe, pairs, across, workspace, block, rows, part)
    for i in range(count):
        largest = largest_lane(sums, i * each + MAXIMA * lanes)
        off = largest * factor - rows[_REFERENCE, first + i]
        some = sum_of_lanes(sums, i * each + TOTALS * lanes)
        low = off < -real(_FAR_OFF) and recipe.sink == -np.inf
        if np.isnan(some) or (largest > -np.inf and (off > real(_FAR_OFF) or low)):
            return False
    return True


@kernel
def _attend_by_maxima(recipe, pairs, across, workspace, block, rows):
    """Compute the weights of a block once the largest scores of its rows are known.

    The scores of all keys are held meanwhile. It finds out what is NaN, and where.
    """
    first, count, keys = block.first, block.last - block.first, block.stop - block.start
    scores, sums, real = workspace.scores, workspace.sums, workspace.sums.dtype.type
    lanes = TILE.bytes // sums.itemsize
    each = ROW_SUMS * lanes
    factor = real(recipe.scale / _LOG2)
    _begin_rows(recipe, sums, block, False, rows)
    for near in range(0, keys, NEAR):
        some = min(NEAR, keys - near)
        part = Part(block.start + near, some, scores[near:], block.row, False, near > 0)
        _score_part(recipe, workspace.query, block, part)
        for i in range(count):
            place = i * each + MAXIMA * lanes
            raise_maxima(scores, i * block.row + near, some, sums, place)
    for i in range(count):
        at, place = first + i, i * block.row
        row, largest = scores[place : place + keys], largest_lane(sums, i * each + MAXIMA * lanes)
        if block.keyed and largest > -np.inf:
            found = block.start + place_of(largest, row, 0, keys)
            rows[KEY, at], rows[MANY_KEYS, at] = found % MANY, found // MANY
        if largest == np.inf:
            _note_nan(at, block.start, row, rows)
        rows[_REFERENCE, at] = max(rows[_REFERENCE, at], largest * factor)
    for near in range(0, keys, NEAR):
        some = min(NEAR, keys - near)
        part = Part(block.start + near, some, scores[near:], block.row, False, near > 0)
        _weigh_part(recipe, pairs, across, workspace, block, rows, part)
    for i in range(count):
        largest = largest_lane(sums, i * each + MAXIMA * lanes)
        if np.isnan(sum_of_lanes(sums, i * each + TOTALS * lanes)) and largest != np.inf:
            place = i * block.row
            _note_nan(first + i, block.start, scores[place : place + keys], rows)


@together
def _weigh_part(recipe, pairs, across, workspace, block, rows, part):
    """Turn the scores of a block for some keys into weights, and multiply the values by them.

    The arguments but the part are those of `attend_in_parts`.
    """
    sums, real = workspace.sums, workspace.sums.dtype.type
    each = ROW_SUMS * TILE.bytes // sums.itemsize
    wanted = Wanted(block.kept, block.far, part.raised)
    halves = workspace.near_halves[: len(pairs)]
    for i in range(block.last - block.first):
        at = block.first + i
        reference = rows[_REFERENCE, at]
        weigh_vectors(
            Start(part.scores, i * part.row),
            part.keys,
            Powers(
                real(recipe.scale / _LOG2),
                real(0) if reference == -np.inf else reference,
                real(at + recipe.offset - part.key),
            ),
            wanted,
            Start(workspace.scores, i * block.row + part.key - block.start),
            Start(halves, 2 * i * NEAR_ROW),
            Start(sums, i * each),
        )
    if len(pairs):
        times_paired_rows(
            workspace.near_halves,
            recipe.rows,
            2 * NEAR_ROW,
            part.key,
            part.keys,
            pairs,
            across,
            workspace.product,
            part.adds,
        )


@kernel
def _note_nan(at, first_key, numbers, rows):
    """Note the first key that is NaN: it counts as the largest."""
    for j in range(len(numbers)):
        if np.isnan(numbers[j]):
            key = first_key + j
            rows[_BROKEN, at] = 1
            rows[KEY, at], rows[MANY_KEYS, at] = key % MANY, key // MANY
            return


@together
def _score_part(recipe, query, block, part):
    """Compute the products of a block with some keys; what a row does not see is -inf."""
    count = block.last - block.first
    times_panels(
        query,
        recipe.half_query,
        block.first,
        (count + recipe.rows - 1) // recipe.rows * recipe.rows,
        recipe.query.width,
        recipe.query.width,
        recipe.panels,
        part.key,
        part.keys,
        block.width,
        part.scores.dtype.type(1),
        part.scores,
        part.row,
    )
    for i in range(count):
        at, place = block.first + i, i * part.row
        # A call takes as long as some vectors.
        if recipe.bounds[0, at] > part.key or recipe.bounds[1, at] < part.key + part.keys:
            _hide_ends(recipe.bounds, at, part.key, part.scores[place : place + part.keys])


@together
def _begin_rows(recipe, sums, block, known, rows):
    """Begin the sums of each row."""
    real = sums.dtype.type
    lanes = TILE.bytes // sums.itemsize
    count = block.last - block.first
    fill(sums[: count * ROW_SUMS * lanes], real(0))
    for i in range(count):
        at = block.first + i
        fill(sums[(i * ROW_SUMS + MAXIMA) * lanes :][:lanes], real(-np.inf))
        rows[_REFERENCE, at] = real(recipe.known[at] if known else recipe.sink) / real(_LOG2)
        rows[_BROKEN, at] = real(0)
        rows[KEY, at], rows[MANY_KEYS, at] = MANY - 1, -1


@kernel
def _hide_ends(bounds, at, key, scores):
    """Set the scores of a row to -inf where it does not see the keys from `key` on."""
    keys = len(scores)
    begin = min(max(bounds[0, at] - key, 0), keys)
    end = min(max(bounds[1, at] - key, begin), keys)
    fill(scores[:begin], -np.inf)
    fill(scores[end:], -np.inf)


@kernel
def _shrink(change, sums, product, weights):
    """Scale what a row has summed up by a power of 2, for a reference that is larger by as much.

    Args:
        change: The power, below 0.
        sums, product, weights: Its sums, its product with values, and the weights that are kept.
    """
    real, lanes = sums.dtype.type, len(sums) // ROW_SUMS
    shrunk = real(np.exp2(change))
    for j in range(lanes):
        total = sums[TOTALS * lanes + j]
        sums[LOGS * lanes + j] = shrunk * (sums[LOGS * lanes + j] + change * total)
        sums[TOTALS * lanes + j] = shrunk * total
        sums[FAR * lanes + j] *= shrunk
    for d in range(len(product)):
        product[d] *= shrunk
    for j in range(len(weights)):
        weights[j] *= shrunk


@kernel
def _finish_row(at, sums, recipe, far, rows):
    """Turn what a row has summed up into its statistics."""
    real, lanes = sums.dtype.type, len(sums) // ROW_SUMS
    factor = real(recipe.scale / _LOG2)
    reference = np.float64(rows[_REFERENCE, at])
    broken = rows[_BROKEN, at]
    largest = largest_lane(sums, MAXIMA * lanes)
    total = sum_of_lanes(sums, TOTALS * lanes)
    if largest == -np.inf and total == 0:
        for r in range(ROW_STATS):
            if r not in (KEY, MANY_KEYS):
                rows[r, at] = 0
        rows[LOG_SUM, at] = rows[MAX_SCORE, at] = -np.inf
        return
    # The reference was rounded: how far the largest score is from it, in powers of 2.
    off = np.float64(largest) * np.float64(factor) - reference
    by_log = np.float64(sum_of_lanes(sums, LOGS * lanes)) - off * total
    whole = np.float64(total)
    if recipe.sink > -np.inf:
        whole += np.exp2(recipe.sink / _LOG2 - reference)
    score = largest * real(recipe.scale)
    inverse, log = 1 / whole, np.log(whole) - _LOG2 * off
    rows[LOG_SUM, at] = score + log
    rows[MAX_SCORE, at] = score
    rows[MAX_WEIGHT, at] = np.exp2(off) * inverse
    rows[ENTROPY, at] = (log * total - _LOG2 * by_log) * inverse
    rows[SCORES, at] = (_LOG2 * by_log + score * total) * inverse
    rows[FACTOR, at] = inverse
    if far:
        rows[DISTANCES, at] = sum_of_lanes(sums, FAR * lanes) * inverse
    if np.isnan(total):
        rows[MAX_SCORE, at] = rows[MAX_WEIGHT, at] = total
        if broken == 0:
            rows[LOG_SUM, at] = rows[MAX_SCORE, at] = score


@kernel
def settle(rows, first, last, sink):
    """Make FACTOR what turns exp(s - the larger of the largest score and the sink) into weights.

    While the sink is the larger one, it is the reference.
    """
    for i in range(first, last):
        if rows[MAX_SCORE, i] >= sink:
            rows[FACTOR, i] = rows[MAX_WEIGHT, i]
