"""Verifying: that an attention does what it was taken for, on a few of its rows."""

from dataclasses import replace

import torch
from torch import Tensor

from glasshead.engines import REFERENCE
from glasshead.recipe.problem import Problem
from glasshead.recipe.tile import Span
from glasshead.watching.met import Met

# What numbers of a model may differ by, as a share of the largest value.
_TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 1e-2}
_COARSE = 4e-2


def differs(met: Met) -> bool:
    """Whether the model's own output is another than the one that its inputs should give.

    Two rows tell: a mask, a scale or a bias that was misunderstood changes the first or the last of
    them. Rows that see nothing are passed over, as libraries fill them in different ways.
    """
    if met.output is None or 0 in met.problem.scores_shape:
        return False
    problem, output = met.problem, met.output
    tolerance = _TOLERANCES.get(output.dtype, _COARSE)
    for row in sorted({0, met.queries - 1}):
        ours, sees, largest = _row(problem, row)
        theirs = output[..., row, :].to(ours.dtype)
        wrong = (ours - theirs).abs().amax(-1) > tolerance * largest
        # What is not finite is the model's own affair, and compares as not above.
        if bool((wrong & sees).any()):
            return True
    return False


def _row(problem: Problem, row: int) -> tuple[Tensor, Tensor, Tensor]:
    """What one query should give.

    Returns: its context, `[*batch, heads, value_dim]`, whether it sees any key, and the largest
    number of the values that it may see, `[*batch, heads]`.
    """
    tile = replace(problem.tile(), queries=Span(row, row + 1))
    if problem.mask is not None:
        seen = problem.mask.key_range(tile)
        tile = replace(tile, keys=Span(seen.start, max(seen.stop, seen.start + 1)))
    rows = REFERENCE.part(problem, tile)
    value = problem.value[..., tile.keys.start : tile.keys.stop, :].to(rows.weights.dtype)
    largest = torch.linalg.vector_norm(value, torch.inf, (-2, -1))
    if not largest.isfinite().all():
        # A hidden value may be anything, and 0 · NaN is NaN.
        value = value.nan_to_num(0.0, 0.0, 0.0)
        largest = torch.linalg.vector_norm(value, torch.inf, (-2, -1))
    if problem.group > 1:
        value = value.repeat_interleave(problem.group, -3)
        largest = largest.repeat_interleave(problem.group, -1)
    return (rows.weights @ value)[..., 0, :], ~rows.empty()[..., 0], largest
