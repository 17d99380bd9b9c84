"""Reductions alone, whatever computes the context."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from glasshead.engines.autocast import without_autocast
from glasshead.engines.by_rows import by_rows
from glasshead.engines.streaming import STREAMING
from glasshead.recipe.problem import Problem
from glasshead.statistics.reductions import Reduction

# Fewer scores than these, in all or in each head, are had sooner from their rows than from kernels,
# and compile none.
_FEW, _FEW_A_HEAD = 2**16, 2**12


def reductions_of(problem: Problem, reductions: Sequence[Reduction]) -> list[tuple[Tensor, ...]]:
    """The results of each reduction of the weights before dropout, `[*batch, heads, …]`.

    The streaming kernels make them where they serve and there are many scores; else it goes through
    rows of weights.
    """
    bare = replace(problem, dropout=0.0)
    if not reductions:
        return []
    if not _few(problem) and STREAMING.refusal(bare) is None:
        return STREAMING.observe(bare, reductions, context=False).reduced
    with without_autocast(problem.query.device):
        return by_rows(bare, reductions)


def _few(problem: Problem) -> bool:
    if torch.compiler.is_compiling():
        return False
    queries, keys = problem.scores_shape[-2:]
    return math.prod(problem.scores_shape) < _FEW or queries * keys <= _FEW_A_HEAD
