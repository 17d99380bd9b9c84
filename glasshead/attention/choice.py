"""The choice of an engine: one that is named, or the faster one by `engine="auto"`.

The rule reads shapes, dtype, mask, processor and installation, and neither gradients nor what has
been compiled since, so that a call gives the same bits whenever it is made. Times are predicted by
`cost`, from the numbers of a profile.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from glasshead.engines import ENGINES, FUSED, REFERENCE, STREAMING, Engine
from glasshead.recipe.problem import Problem
from glasshead.recipe.validation import is_traced, one_of

# With fewer scores, machine code is not worth the import of llvmlite, which loads it.
_FEW, _FEWER = 2**14, "the call has fewer than 2^14 scores"
# With fewer scores the reference is faster than kernels that Python hands blocks to.
_FEW_BY_BLOCKS = 2**20
NAMES = tuple(engine.name for engine in ENGINES)


class EngineChoice(NamedTuple):
    """Engine for a problem.

    Attributes:
        engine: The one to run.
        reason: Why it comes before the engines that were not tried.
        refused: Each engine that was tried before it, and why it cannot compute the problem.
    """

    engine: Engine
    reason: str
    refused: dict[str, str]


def engine_name(name: Any) -> str:
    """Check the name of an engine, and return it."""
    return one_of(name, "engine", ("auto", *NAMES))


def choose(problem: Problem, name: str) -> EngineChoice:
    """Choose the engine for a problem.

    Errors: a ValueError if the engine `name` cannot compute the problem.
    """
    if name == "auto":
        order, reason = _by_speed(problem)
    else:
        order = [engine for engine in ENGINES if engine.name == engine_name(name)]
        reason = f"it is named, by engine={name!r}"
    refused = {}
    for engine in order:
        why = engine.refusal(problem)
        if why is None:
            return EngineChoice(engine, reason, refused)
        refused[engine.name] = why
    raise ValueError(
        f"engine={name!r} cannot compute this call: {refused[name]}. Use engine='auto'."
    )


def tiles_denied(problem: Problem) -> str | None:
    """Return why a call in bfloat16 takes no matrix tiles on a processor that has them."""
    if problem.query.dtype != torch.bfloat16 or is_traced():
        return None
    from glasshead.engines.streaming import matrix_tiles

    return matrix_tiles.refusal() if matrix_tiles.are_there() else None


def _by_speed(problem: Problem) -> tuple[Sequence[Engine], str]:
    """Order the engines by expected speed, the fastest first, and state why.

    While a call is compiled nothing is known of sizes and of a tensor's numbers.
    """
    if FUSED.refusal(problem) is not None:
        if why := _why_not_streamed(problem):
            return (FUSED, REFERENCE, STREAMING), why
        first = "it is the first that can compute the call, of fused, streaming and reference"
        return (FUSED, STREAMING, REFERENCE), first
    if why := _why_not_predicted(problem):
        return (FUSED, REFERENCE, STREAMING), f"streaming is not known to be faster: {why}"
    # llvmlite, which loads machine code, is slow to import.
    from glasshead.attention import profiles
    from glasshead.attention.cost import is_faster, name_of_dtype

    profile = profiles.at_hand(name_of_dtype(problem))
    ratios = profile.ratios(problem, plain=STREAMING.is_plain(problem))
    forward, both = (f"{ratio:.2g}" for ratio in ratios)
    times = f"{forward} × SDPA's time, {both} × with gradients, by the profile {profile.name!r}"
    if is_faster(ratios):
        return (STREAMING, FUSED, REFERENCE), f"it takes {times}"
    denied = tiles_denied(problem)
    return ENGINES, f"streaming takes {times}" + ("" if denied is None else f"; {denied}")


def _why_not_streamed(problem: Problem) -> str | None:
    """Return why the reference comes before the streaming engine, if it does."""
    if torch.compiler.is_compiling() or math.prod(problem.scores_shape) >= _FEW_BY_BLOCKS:
        return None
    if math.prod(problem.scores_shape) < _FEW:
        return _FEWER
    if STREAMING.is_plain(problem):
        return None
    return "below 2^20 scores, blocks and threads cost more than they save"


def _why_not_predicted(problem: Problem) -> str | None:
    """Return why no time is predicted for the streaming engine, and SDPA comes first."""
    if is_traced():
        return "torch.compile and torch.jit trace the call, and SDPA is what they know"
    if (refusal := STREAMING.refusal(problem)) is not None:
        return refusal
    if math.prod(problem.scores_shape) < _FEW:
        return _FEWER
    return None
