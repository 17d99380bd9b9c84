"""Reductions of weights whose context another engine computes."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from glasshead.engines.reference import by_rows
from glasshead.engines.streaming import STREAMING
from glasshead.engines.triton import TRITON
from glasshead.recipe.problem import Problem
from glasshead.recipe.validation import without_autocast
from glasshead.statistics.reductions import Reduction

# With fewer scores than these, in all or per head, rows are faster than kernels, which would
# have to compile first.
_FEW, _FEW_A_HEAD = 2**16, 2**12


def reductions_of(
    problem: Problem, reductions: Sequence[Reduction], logsumexp: Tensor | None = None
) -> list[tuple[Tensor, ...]]:
    """Compute reductions for a context that another engine computes, `[*batch, heads, …]` each.

    They are those of the weights before dropout. The kernels of the device compute them where they
    can and there are many scores; else rows of weights are reduced.

    Args:
        problem: The problem.
        reductions: What is asked of its weights.
        logsumexp: Of each row, `[*batch, heads, queries]`, where a kernel gave it: a GPU saves a
            pass by it.
    """
    if not reductions:
        return []
    bare = problem.without_dropout()
    if not _is_few(problem):
        if STREAMING.refusal(bare) is None:
            return STREAMING.observe(bare, reductions, context=False).reduced
        if TRITON.refusal(bare) is None:
            return TRITON.reduce(bare, reductions, logsumexp)
    with without_autocast(problem.query.device):
        return by_rows(bare, reductions)


def reduced_by(problem: Problem, reductions: Sequence[Reduction]) -> str | None:
    """Say what reduces the weights beside a fused kernel on a GPU, and why; None on the CPU."""
    if problem.query.device.type in ("cpu", "meta") or not reductions:
        return None
    rows = "blocks of rows in plain torch"
    if _is_few(problem):
        return f"{rows}, the fastest for so few scores"
    why = TRITON.refusal(problem.without_dropout())
    if why is not None:
        return f"{rows}, as {TRITON.name} is refused: {why}"
    others = sorted({type(one).__name__ for one in reductions if not TRITON.knows(one)})
    beside = f"; {rows} for {' and '.join(others)}" if others else ""
    return f"{TRITON.name}: {TRITON.about}{beside}"


def _is_few(problem: Problem) -> bool:
    """Return whether there are so few scores that kernels would not pay."""
    queries, keys = problem.scores_shape[-2:]
    return not torch.compiler.is_compiling() and (
        math.prod(problem.scores_shape) < _FEW or queries * keys <= _FEW_A_HEAD
    )
