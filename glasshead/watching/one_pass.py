"""Context and statistics of a call in one pass, in place of the model's kernel and a second pass.

A watch allows it by `same_bits=False`. The streaming engine then computes a call of PyTorch's
function from the inputs of that call; the statistics count only if the watch, which reads the call
by itself, finds the same problem.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glasshead.engines import STREAMING
from glasshead.engines.streaming import matrix_tiles
from glasshead.recipe.problem import Problem
from glasshead.statistics import Statistic
from glasshead.statistics.reductions import StatisticRequest

# Of fewer queries both take the same time (benchmarks/watch.py, on an Intel Xeon with AMX).
_FEWEST = 256


@dataclass(frozen=True, eq=False)
class OnePass:
    """The statistics of a call that the streaming engine computed in the model's place.

    Attributes:
        problem: What it computed.
        values: The statistics by name.
    """

    problem: Problem
    values: Mapping[str, Any]

    def of(self, problem: Problem, statistics: Mapping[str, Statistic]) -> dict[str, Any] | None:
        """Return statistics of a problem by name; None if it is another one."""
        if not _are_same(self.problem, problem):
            return None
        return {name: self.values[name] for name in statistics}


def in_one_pass(
    problem: Problem, statistics: Mapping[str, Statistic]
) -> tuple[Tensor, OnePass] | None:
    """Compute context and statistics in one pass; None if that is no faster than SDPA and another.

    Args:
        problem: The call, of which the context has the gradient.
        statistics: Statistics by name.
    """
    dtype, queries = problem.query.dtype, problem.scores_shape[-2]
    fast = dtype == torch.float32 or (dtype == torch.bfloat16 and matrix_tiles.refusal() is None)
    if not fast or not statistics or queries < _FEWEST or STREAMING.refusal(problem) is not None:
        return None
    request = StatisticRequest(problem, statistics)
    context, reduced = STREAMING.observe(problem, request.reductions)
    return context, OnePass(problem.detached(), request.finished(reduced))


def _are_same(ours: Problem, theirs: Problem) -> bool:
    """Return whether two problems have the same weights, as they read the same memory."""
    return (
        ours.scores_shape == theirs.scores_shape
        and isinstance(ours.offset, int)
        and isinstance(ours.scale, float)
        and (ours.offset, ours.scale, ours.softcap) == (theirs.offset, theirs.scale, theirs.softcap)
        and ours.normalizer is theirs.normalizer
        and _hide_the_same(ours, theirs)
        and len(ours.biases) == len(theirs.biases)
        and all(map(_are_one, ours.biases, theirs.biases))
        and _are_one(ours.query, theirs.query)
        and _have_the_same_keys(ours, theirs)
    )


def _hide_the_same(ours: Problem, theirs: Problem) -> bool:
    one, other = ours.mask, theirs.mask
    if one is None or other is None or one is other:
        return one is other
    if one.is_dense and other.is_dense:
        return _are_one(one.visible(ours.tile()), other.visible(theirs.tile()))
    return one.of_positions is not None and one.of_positions == other.of_positions


def _have_the_same_keys(ours: Problem, theirs: Problem) -> bool:
    """Return whether keys are the same, or repeated for the query heads of a group."""
    if ours.group == theirs.group:
        return _are_one(ours.key, theirs.key)
    if ours.group > 1:
        return False
    return torch.equal(ours.key, theirs.key.repeat_interleave(theirs.group, -3))


def _are_one(ours: Any, theirs: Any) -> bool:
    """Return whether two tensors are one in memory."""
    return ours is theirs or (
        isinstance(ours, Tensor)
        and isinstance(theirs, Tensor)
        and (ours.data_ptr(), ours.shape, ours.stride(), ours.dtype)
        == (theirs.data_ptr(), theirs.shape, theirs.stride(), theirs.dtype)
    )
