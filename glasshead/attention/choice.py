"""The choice of an engine: one that is named, or by the rule of `engine="auto"`.

The rule reads shapes, dtype, mask, processor and installation, and neither gradients nor what has
been compiled since, so that a call gives the same bits whenever it is made. Its numbers are those
of `measured`.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from glasshead.attention.measured import (
    FASTER,
    HIDDEN,
    HIDDEN_LESS,
    IF_PLAIN,
    MANY,
    MANY_HIDDEN,
    PROCESSORS,
    UNLESS,
    faster_in,
)
from glasshead.engines import ENGINES, FUSED, REFERENCE, STREAMING, Engine
from glasshead.engines.streaming.engine import seen_pairs
from glasshead.recipe.problem import Problem
from glasshead.recipe.validation import is_traced, one_of

NAMES = tuple(engine.name for engine in ENGINES)
_IN_ONE_CALL = "all heads are one call of machine code on this processor"


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
        f"engine={name!r} does not serve this call: {refused[name]}. Use engine='auto'."
    )


def tiles_denied(problem: Problem) -> str | None:
    """Return why a call in bfloat16 takes no matrix tiles on a processor that has them."""
    if problem.query.dtype != torch.bfloat16 or is_traced():
        return None
    from glasshead.engines.streaming import matrix_tiles

    return matrix_tiles.refusal() if matrix_tiles.are_there() else None


def _by_speed(problem: Problem) -> tuple[Sequence[Engine], str]:  # noqa: PLR0911 - a branch each
    """Order the engines by expected speed, the fastest first, and tell the branch of the rule.

    While a call is compiled nothing is known of sizes and of a tensor's numbers.
    """
    compiling = torch.compiler.is_compiling()
    plain = _is_faster_if_plain(problem) and STREAMING.is_plain(problem)
    if not (plain or compiling) and math.prod(problem.scores_shape) < MANY:
        return (
            (FUSED, REFERENCE, STREAMING),
            "below 2^20 scores, blocks and threads cost more than they save",
        )
    if FUSED.refusal(problem) is not None:
        return (
            (FUSED, STREAMING, REFERENCE),
            "it is the first that can compute the call, of fused, streaming and reference",
        )
    streaming_first = (STREAMING, FUSED, REFERENCE)
    if plain:
        tokens = IF_PLAIN.tokens[0]
        return streaming_first, f"{_IN_ONE_CALL}, and SDPA is slower from {tokens} tokens on"
    hidden = 0.0 if compiling else _hidden_at_ends(problem)
    skipped = f"the mask hides {100 * hidden:.3g} % of the pairs at the ends of rows"
    if hidden > HIDDEN and math.prod(problem.scores_shape) >= MANY_HIDDEN:
        return streaming_first, f"{skipped}, more than {100 * HIDDEN:.0f} %: they are skipped"
    why = _why_not_measured(problem)
    rows, dtype = "other", problem.query.dtype
    if why is None:
        rows = _rows_of(problem, hidden)
        why = _why_not_faster(problem, rows)
    if why is not None:
        return ENGINES, f"streaming is not known to be faster: {why}"
    since = f"from {faster_in(dtype)[rows]} on in {_name_of(dtype)}"
    if rows == "masked":
        return streaming_first, (
            f"{skipped}, at least {100 * HIDDEN_LESS:.0f} %: they are skipped, {since}"
        )
    shape = "with a causal mask" if rows == "causal" else "where all queries see the same keys"
    return streaming_first, f"SDPA is slower {shape}, {since}"


def _is_faster_if_plain(problem: Problem) -> bool:
    """Return whether plain calls of this size and dtype are faster than SDPA on this processor."""
    faster = IF_PLAIN
    widths = problem.query.shape[-1], problem.value.shape[-1]
    if (
        is_traced()
        or problem.query.dtype not in FASTER
        or any(tokens not in faster.tokens for tokens in problem.scores_shape[-2:])
        or any(dim not in faster.dims for dim in widths)
    ):
        return False
    from glasshead.engines.streaming.kernels import processor
    from glasshead.engines.streaming.machine_code import in_package

    # Zen 5 has both, and no products of its own that SDPA takes.
    by_pairs = processor.at_hand().name == "x86_64-avx512bf16"
    unlike = any(processor.has(feature) for feature in UNLESS[problem.query.dtype])
    # No call is to wait for a compiler.
    return by_pairs and processor.has("avx512vp2intersect") and not unlike and in_package()


def _hidden_at_ends(problem: Problem) -> float:
    """Return the share of pairs that a mask hides at the ends of rows, and SDPA would compute."""
    if problem.mask is None:
        return 0.0
    mask = problem.simplified_mask()
    # SDPA skips what is above the diagonal by itself, and is called without the keys that a whole
    # batch row does not see, but skips nothing by a mask tensor.
    skips = mask is None or (
        not problem.biases and (mask.of_keys or mask.is_top_left_causal(problem.tile()))
    )
    if skips or STREAMING.refusal(problem) is not None:
        return 0.0
    pairs = seen_pairs(problem)
    return 0.0 if pairs is None else 1 - pairs / math.prod(problem.scores_shape)


def _why_not_measured(problem: Problem) -> str | None:  # noqa: PLR0911 - a reason each
    """Return why nothing is known of the speed of streaming, whatever the mask."""
    if is_traced():
        return "torch.compile and torch.jit trace the call, and SDPA is what they know"
    refusal = STREAMING.refusal(problem)
    if refusal is not None:
        return refusal
    dtype = problem.query.dtype
    if dtype not in FASTER:
        return f"the inputs are of {_name_of(dtype)}"
    if problem.biases:
        return "a bias is added"
    # llvmlite, which loads machine code, is slow to import.
    from glasshead.engines.streaming import matrix_tiles
    from glasshead.engines.streaming.kernels import processor
    from glasshead.engines.streaming.machine_code import in_package

    if processor.at_hand().name not in PROCESSORS:
        return f"its speed was not measured on a processor such as {processor.at_hand().name}"
    tiled = dtype == torch.bfloat16 and matrix_tiles.refusal() is None
    if not tiled and any(processor.has(feature) for feature in UNLESS[dtype]):
        denied = tiles_denied(problem)
        why = "" if denied is None else f", and {denied}"
        return f"SDPA has this processor's products of {_name_of(dtype)}{why}"
    if not in_package():
        return "no machine code for this processor is installed, and it would be compiled first"
    return None


def _why_not_faster(problem: Problem, rows: str) -> str | None:
    """Return why SDPA is as fast, where the queries see what `_rows_of` names."""
    if rows == "other":
        return (
            f"the mask is not causal, and hides less than {100 * HIDDEN_LESS:.0f} % at the ends "
            "of rows or pairs within them"
        )
    dtype, scores = problem.query.dtype, math.prod(problem.scores_shape)
    faster = faster_in(dtype).get(rows)
    if faster is None:
        return f"{rows} calls in {_name_of(dtype)} are not measured to be faster"
    if scores < faster.scores:
        return f"{scores} are fewer than {faster}"
    for tokens in problem.scores_shape[-2:]:
        if tokens not in faster.tokens:
            least, most = faster.tokens[0], faster.tokens[-1]
            few = f"fewer than {least}" if tokens < least else f"more than {most}"
            return f"{tokens} tokens are {few}, {rows}, in {_name_of(dtype)}"
    for dim in (problem.query.shape[-1], problem.value.shape[-1]):
        if dim not in faster.dims:
            within = f"{faster.dims[0]} to {faster.dims[-1]}"
            return f"the head_dim {dim} is not within {within}, {rows}, in {_name_of(dtype)}"
    return None


def _rows_of(problem: Problem, hidden: float) -> str:
    """Name what the queries see, as `FASTER` does, or "other"."""
    mask = problem.simplified_mask()
    if mask is not None and mask.is_top_left_causal(problem.tile()):
        return "causal"
    if mask is not None and _has_holes(problem):
        return "other"
    if mask is None or mask.of_keys:
        return "full"
    return "masked" if hidden >= HIDDEN_LESS else "other"


def _has_holes(problem: Problem) -> bool:
    """Return whether the mask hides pairs between others that it shows."""
    on_meta = problem.query.device.type == "meta"
    return problem.key_ranges(torch.device("cpu") if on_meta else None)[1] is not None


def _name_of(dtype: torch.dtype) -> str:
    """Name a dtype without its module."""
    return str(dtype).removeprefix("torch.")
