"""Execution plans: which engine a call runs, why, and at what cost.

The rule of `engine="auto"` reads shapes, dtype, mask, processor and installation, and neither
gradients nor what has been compiled since, so that a call gives the same bits whenever it is made.
Its numbers are measured by `benchmarks/grid.py`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from glasshead.engines import ENGINES, FUSED, REFERENCE, STREAMING, TRITON, Cost, Engine, reduced_by
from glasshead.engines.reference import rows_at_once
from glasshead.engines.streaming.engine import seen_pairs
from glasshead.engines.streaming.operands import bytes_of, knows, operations_of
from glasshead.recipe.problem import Problem
from glasshead.recipe.validation import is_traced
from glasshead.statistics.reductions import Reduction

NAMES = tuple(engine.name for engine in ENGINES)


@dataclass(frozen=True)
class Plan:
    """Engine that a call would run, why, and at what cost.

    Attributes:
        engine: The name of the engine.
        about: A description of the engine.
        reason: Why it comes before the engines that were not tried: the branch of the rule of
            "auto", or that it was named.
        refused: Each engine that was tried before it, and why it cannot compute the call.
        flops: Floating-point operations of the matrix products, a multiply-add counting two.
        bytes: Peak memory beyond the inputs, the results included.
        passes: The number of times the scores are computed.
        multiple: The time that is expected, as a multiple of the plain call's; 1 for the call, and
            on a GPU, where none was measured.
        statistics: On a GPU, what computes the statistics beside the context, and why.

    >>> import torch, glasshead as gh
    >>> x = torch.empty(1, 8, 4096, 64, device="meta")
    >>> print(gh.Attention(mask=gh.causal(), softcap=30.0).plan(x, x, x))
    engine     streaming: compiled blocks of queries on every core, only the keys that they see
    reason     it is the first that can compute the call, of fused, streaming and reference
    work       17.2 GFLOP
    memory     13.7 MB beyond the inputs
    refused    fused: SDPA has no softcap
    """

    engine: str
    about: str
    reason: str
    refused: dict[str, str]
    flops: int
    bytes: int
    passes: int = 1
    multiple: float = 1.0
    statistics: str | None = None

    def __str__(self) -> str:
        return "\n".join(f"{label:<10} {text}" for label, text in self._rows())

    def _repr_html_(self) -> str:
        from glasshead.drawing import Document, Table

        rows = [[label, text] for label, text in self._rows()]
        return Document([Table(["of", "plan"], rows)], title="Plan of a call")._repr_html_()

    def _rows(self) -> list[tuple[str, str]]:
        """Return each line as its label and its text."""
        passes = f", {self.passes} passes over the scores" if self.passes > 1 else ""
        rows = [
            ("engine", f"{self.engine}: {self.about}"),
            ("reason", self.reason),
            ("work", f"{decimal_prefix(self.flops)}FLOP{passes}"),
            ("memory", f"{decimal_prefix(self.bytes)}B beyond the inputs"),
        ]
        if self.multiple != 1.0:
            rows.append(("time", f"about {self.multiple:.1f} × the plain call"))
        if self.statistics is not None:
            rows.append(("statistics", self.statistics))
        rows += (("refused", f"{name}: {why}") for name, why in self.refused.items())
        return rows


# With fewer scores, threads and blocks cost more than they save.
_MANY = 2**20
# The share of the pairs that a mask is to hide at the ends of rows, for skipping them to pay in any
# dtype, and from how many scores; and the share that pays where `_FASTER` tells.
_HIDDEN, _MANY_HIDDEN = 0.55, 2**22
_HIDDEN_LESS = 0.25


class _Faster(NamedTuple):
    """Where streaming is faster than SDPA, with gradients and without.

    Attributes:
        scores: The fewest scores of a call, batch and heads together.
        dims: The head_dims of queries and values.
        tokens: The fewest and most queries and keys.
    """

    scores: int
    dims: range = range(32, 129)
    tokens: range = range(512, 2**63)

    def __str__(self) -> str:
        return f"2^{self.scores.bit_length() - 1} scores"


# By dtype, and by what the queries see: keys up to their own, all keys of their batch row, or what
# a mask leaves that hides a share at the ends of rows.
_FASTER = {
    torch.float32: {
        "causal": _Faster(2**24),
        "full": _Faster(2**25),
        "masked": _Faster(2**24),
    },
    torch.bfloat16: {
        "causal": _Faster(2**24, range(32, 65), range(512, 4097)),
        "masked": _Faster(2**24),
    },
    torch.float16: {
        "causal": _Faster(2**24),
        "full": _Faster(2**24),
    },
}
# In bfloat16 where the kernels take the processor's products of it.
_FASTER_BY_PAIRS = {
    "causal": _Faster(2**24),
    "full": _Faster(2**24, range(32, 65)),
    "masked": _Faster(2**24),
}
# In float32 without AVX-512: of wider heads full calls are slower with gradients.
_FASTER_ON_AVX2 = {**_FASTER[torch.float32], "full": _Faster(2**25, range(32, 33))}
# On Zen 5 plain calls are faster from so many queries and keys on, in any dtype that is measured.
_FASTER_IF_PLAIN = _Faster(0, range(32, 129), range(128, 2**63))
_IN_ONE_CALL = "all heads are one call of machine code on this processor"
# Kinds of processors on which streaming was measured.
_MEASURED = {"x86_64-avx512bf16", "x86_64-avx512", "x86_64-avx2"}
# Features of processors that have products of a dtype, which SDPA takes.
_UNLESS = {
    torch.float32: (),
    torch.bfloat16: ("amx-bf16",),
    torch.float16: ("amx-fp16", "avx512fp16"),
}


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
    if name not in ("auto", *NAMES):
        known = ", ".join(repr(known) for known in ("auto", *NAMES))
        raise ValueError(f"engine takes one of {known}, and got {name!r}.")
    return name


def choose(problem: Problem, name: str) -> EngineChoice:
    """Choose the engine for a problem.

    Errors: a ValueError where the engine `name` cannot compute the problem.
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
        f"engine={name!r} does not serve this call: {refused[name]}; take engine='auto'."
    )


def _by_speed(problem: Problem) -> tuple[Sequence[Engine], str]:  # noqa: PLR0911 - a branch each
    """Order the engines by expected speed, the fastest first, and tell the branch of the rule.

    While a call is compiled nothing is known of sizes and of a tensor's numbers.
    """
    compiling = torch.compiler.is_compiling()
    plain = _is_faster_if_plain(problem) and STREAMING.is_plain(problem)
    if not (plain or compiling) and math.prod(problem.scores_shape) < _MANY:
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
        tokens = _FASTER_IF_PLAIN.tokens[0]
        return streaming_first, f"{_IN_ONE_CALL}, and SDPA is slower from {tokens} tokens on"
    hidden = 0.0 if compiling else _hidden_at_ends(problem)
    skipped = f"the mask hides {100 * hidden:.3g} % of the pairs at the ends of rows"
    if hidden > _HIDDEN and math.prod(problem.scores_shape) >= _MANY_HIDDEN:
        return streaming_first, f"{skipped}, more than {100 * _HIDDEN:.0f} %: they are skipped"
    why = _why_not_measured(problem)
    rows, dtype = "other", problem.query.dtype
    if why is None:
        rows = _rows_of(problem, hidden)
        why = _why_not_faster(problem, rows)
    if why is not None:
        return ENGINES, f"streaming is not known to be faster: {why}"
    since = f"from {_faster(dtype)[rows]} on in {_name_of(dtype)}"
    if rows == "masked":
        return streaming_first, (
            f"{skipped}, at least {100 * _HIDDEN_LESS:.0f} %: they are skipped, {since}"
        )
    shape = "with a causal mask" if rows == "causal" else "where all queries see the same keys"
    return streaming_first, f"SDPA is slower {shape}, {since}"


def _is_faster_if_plain(problem: Problem) -> bool:
    """Return whether plain calls of this size and dtype are faster than SDPA on this processor."""
    faster = _FASTER_IF_PLAIN
    widths = problem.query.shape[-1], problem.value.shape[-1]
    if (
        is_traced()
        or problem.query.dtype not in _FASTER
        or any(tokens not in faster.tokens for tokens in problem.scores_shape[-2:])
        or any(dim not in faster.dims for dim in widths)
    ):
        return False
    from glasshead.engines.streaming.kernels import processor

    # Zen 5 has both, and no products of its own that SDPA takes.
    by_pairs = processor.at_hand().name == "x86_64-avx512bf16"
    unlike = any(processor.has(feature) for feature in _UNLESS[problem.query.dtype])
    return by_pairs and processor.has("avx512vp2intersect") and not unlike


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
    if dtype not in _FASTER:
        return f"the inputs are of {_name_of(dtype)}"
    if problem.biases:
        return "a bias is added"
    # llvmlite, which loads machine code, is slow to import.
    from glasshead.engines.streaming.kernels import processor
    from glasshead.engines.streaming.machine_code import in_package

    if processor.at_hand().name not in _MEASURED:
        return f"its speed was not measured on a processor such as {processor.at_hand().name}"
    if any(processor.has(feature) for feature in _UNLESS[dtype]):
        return f"SDPA has this processor's products of {_name_of(dtype)}"
    if not in_package():
        return "no machine code for this processor is installed, and it would be compiled first"
    return None


def _why_not_faster(problem: Problem, rows: str) -> str | None:
    """Return why SDPA is as fast, where the queries see what `_rows_of` names."""
    if rows == "other":
        return (
            f"the mask is not causal, and hides less than {100 * _HIDDEN_LESS:.0f} % at the ends "
            "of rows or pairs within them"
        )
    dtype, scores = problem.query.dtype, math.prod(problem.scores_shape)
    faster = _faster(dtype).get(rows)
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


def _faster(dtype: torch.dtype) -> dict[str, _Faster]:
    """Return where streaming is faster in a dtype on the processor at hand."""
    from glasshead.engines.streaming.kernels import processor

    if dtype == torch.bfloat16 and processor.has("avx512bf16"):
        return _FASTER_BY_PAIRS
    on_avx2 = processor.at_hand().name == "x86_64-avx2"
    return _FASTER_ON_AVX2 if on_avx2 and dtype == torch.float32 else _FASTER[dtype]


def _rows_of(problem: Problem, hidden: float) -> str:
    """Name what the queries see, as `_FASTER` does, or "other"."""
    mask = problem.simplified_mask()
    if mask is not None and mask.is_top_left_causal(problem.tile()):
        return "causal"
    if mask is not None and _has_holes(problem):
        return "other"
    if mask is None or mask.of_keys:
        return "full"
    return "masked" if hidden >= _HIDDEN_LESS else "other"


def _has_holes(problem: Problem) -> bool:
    """Return whether the mask hides pairs between others that it shows."""
    on_meta = problem.query.device.type == "meta"
    return problem.key_ranges(torch.device("cpu") if on_meta else None)[1] is not None


def _name_of(dtype: torch.dtype) -> str:
    """Name a dtype without its module."""
    return str(dtype).removeprefix("torch.")


def planned(
    problem: Problem, choice: EngineChoice, reductions: Sequence[Reduction] | None = None
) -> Plan:
    """Plan a call on the chosen engine: its cost, with that of the reductions."""
    engine = choice.engine
    cost = engine.cost(problem)
    plan = Plan(engine.name, engine.about, choice.reason, choice.refused, cost.flops, cost.bytes)
    if reductions is None:
        return plan
    extra = price(problem, engine, cost, reductions)
    plain = cost.flops + extra.plain
    # The operations of sums and softmax are of a CPU's.
    multiple = (plain + extra.flops + extra.sums) / plain if plain else 1.0
    beside = reduced_by(problem, reductions) if engine is FUSED else None
    return replace(
        plan,
        flops=cost.flops + extra.flops,
        bytes=cost.bytes + extra.bytes,
        passes=extra.passes,
        multiple=multiple if problem.query.device.type in ("cpu", "meta") else 1.0,
        statistics=beside,
    )


# Cost of the softmax of a pair, in operations of a product: measured on a processor with AVX-512
# (benchmarks/observe.py). In full matrices it, and each reduction, costs a few memory accesses.
_SOFTMAX, _IN_FULL = 45, 100


class Price(NamedTuple):
    """Additional cost of observing.

    Attributes:
        plain: Operations of the plain call beside its products.
        flops: Operations of further products.
        sums: Operations of the reductions.
        bytes: Peak memory, the results included.
        passes: The number of times the scores are computed in all.
    """

    plain: int
    flops: int
    sums: int
    bytes: int
    passes: int


def price(problem: Problem, engine: Engine, cost: Cost, reductions: Sequence[Reduction]) -> Price:
    """Estimate what these reductions cost in addition to a call of this cost on this engine."""
    bare = problem.without_dropout()
    *leading, queries, keys = problem.scores_shape
    heads, size = math.prod(leading), problem.dtype.itemsize
    width = problem.query.shape[-1]
    results = heads * sum(bytes_of(one, queries, keys, size) for one in reductions)
    whole = heads * queries * keys
    if engine is REFERENCE:
        sums = _IN_FULL * len(reductions) * whole
        return Price(2 * _IN_FULL * whole, 0, sums, results + 2 * whole * size, 1)
    own = [r for r in reductions if not knows(r)]
    if problem.query.device.type == "cuda" and TRITON.refusal(bare) is None:
        return _beside_on_gpu(bare, reductions, results)
    if STREAMING.refusal(bare) is not None:
        sums = _IN_FULL * (2 + len(reductions)) * whole
        return Price(_SOFTMAX * whole, 2 * whole * width, sums, results + _row_bytes(bare), 2)
    streamed = cost if engine is STREAMING else STREAMING.cost(bare)
    pairs = streamed.flops // (2 * (width + problem.value.shape[-1]))
    each, flops, sums = sum(map(operations_of, reductions)), 0, 0
    if own:
        results += _row_bytes(bare)
        flops, sums = 2 * whole * width, _IN_FULL * (2 + len(own)) * whole
    plain, passes = _SOFTMAX * pairs, 1 + bool(own)
    if engine is STREAMING:
        return Price(plain, flops, sums + each * pairs, results, passes)
    return Price(
        plain,
        flops + 2 * pairs * width,
        sums + (_SOFTMAX + each) * pairs,
        results + streamed.bytes,
        passes + 1,
    )


def _beside_on_gpu(problem: Problem, reductions: Sequence[Reduction], results: int) -> Price:
    """Estimate one pass over q·kᵀ, and blocks of rows for reductions that its kernel lacks."""
    whole, width = math.prod(problem.scores_shape), problem.query.shape[-1]
    pairs = seen_pairs(problem)
    flops = 2 * (whole if pairs is None else pairs) * width
    others = not all(TRITON.knows(one) for one in reductions)
    flops += 2 * whole * width if others else 0
    extra = results + (_row_bytes(problem) if others else 0)
    return Price(0, flops, 0, extra, 2 + others)


def _row_bytes(problem: Problem) -> int:
    """Estimate the memory of the steps of complete rows, as many as are computed at a time."""
    *leading, _, keys = problem.scores_shape
    return rows_at_once(problem) * math.prod(leading) * keys * problem.dtype.itemsize * 6


def decimal_prefix(count: int) -> str:
    """Format `count` with three digits and a decimal prefix: 34.4 G."""
    value, prefixes = float(count), iter(("", "k", "M", "G", "T", "P", "E"))
    prefix = next(prefixes)
    while value >= 999.5 and prefix != "E":
        value, prefix = value / 1000, next(prefixes)
    return f"{value:.3g} {prefix}"
