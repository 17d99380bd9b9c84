"""The choice of what reduces the weights: streaming kernels, Triton's, or rows in plain torch."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.engines.reference import by_rows
from glasshead.engines.streaming import STREAMING
from glasshead.engines.triton import TRITON
from glasshead.recipe.problem import Problem
from glasshead.recipe.validation import without_autocast
from glasshead.statistics.reductions import Reduction

# With fewer scores than these rows are faster than kernels that are compiled.
_FEW = 2**14
# And with fewer than these, in all or per head, than kernels that would have to compile first.
_FEW_TO_COMPILE, _FEW_A_HEAD = 2**16, 2**12


def reduce_by_fastest(
    problem: Problem, reductions: Sequence[Reduction], logsumexp: Tensor | None = None
) -> list[tuple[Tensor, ...]]:
    """Compute reductions of the weights before dropout, `[*batch, heads, …]` each.

    The device's kernels (streaming on the CPU, Triton on a GPU) compute them if they know the
    problem and it has many scores. Otherwise, rows of weights are reduced.

    Args:
        problem: The problem.
        reductions: The requested reductions.
        logsumexp: The logsumexp of each row, `[*batch, heads, queries]`, if a kernel computed it:
            a GPU saves a pass by it, and the CPU a search for the largest scores.
    """
    if not reductions:
        return []
    bare = problem.without_dropout()
    if not _is_few(problem):
        if STREAMING.refusal(bare) is None:
            return STREAMING.observe(bare, reductions, context=False, logsumexp=logsumexp).reduced
        if TRITON.refusal(bare) is None:
            return TRITON.reduce(bare, reductions, logsumexp)
    with without_autocast(problem.query.device):
        return by_rows(bare, reductions)


def of_rows(
    logsumexps: Sequence[Tensor], problem: Problem
) -> Float[Tensor, "*batch heads queries"] | None:
    """Return the logsumexp of the only kernel, in the layout of the problem; None of several.

    Kernels may pack grouped heads into the queries, and pad the rows. Without a gradient some give
    none.
    """
    shape = problem.query.shape[:-1]
    if len(logsumexps) != 1 or logsumexps[0] is None or logsumexps[0].numel() == 0:
        return None
    (known,) = logsumexps
    if known.numel() == shape.numel():
        return known.reshape(shape)
    return known[..., : shape[-1]].reshape(shape) if known.shape[:-1] == shape[:-1] else None


def reducer_of(problem: Problem, reductions: Sequence[Reduction]) -> str | None:
    """Describe what reduces the weights on a GPU, and why; None on the CPU."""
    if problem.query.device.type in ("cpu", "meta") or not reductions:
        return None
    rows = "blocks of rows in plain torch"
    if _is_few(problem):
        return f"{rows}, the fastest for so few scores"
    why = TRITON.refusal(problem.without_dropout())
    if why is not None:
        return f"{rows}, as {TRITON.name} is refused: {why}"
    others = sorted({type(one).__name__ for one in reductions if not TRITON.knows(one)})
    rest = f"; {rows} for {' and '.join(others)}" if others else ""
    return f"{TRITON.name}: {TRITON.about}{rest}"


def _is_few(problem: Problem) -> bool:
    """Return whether there are so few scores that kernels would not pay."""
    (queries, keys), scores = problem.scores_shape[-2:], math.prod(problem.scores_shape)
    if torch.compiler.is_compiling() or (
        scores >= _FEW_TO_COMPILE and queries * keys > _FEW_A_HEAD
    ):
        return False
    if scores < _FEW or problem.query.device.type != "cpu":
        return True
    # llvmlite, which loads machine code, is slow to import.
    from glasshead.engines.streaming.machine_code import in_package

    return not in_package()
