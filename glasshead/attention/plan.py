"""Execution plans: which engine a call runs, why, and at what cost."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from glasshead.engines import ENGINES, FUSED, REFERENCE, STREAMING, TRITON, Cost, Engine, reduced_by
from glasshead.engines.reference import rows_at_once
from glasshead.engines.streaming.engine import seen_pairs
from glasshead.engines.streaming.operands import knows
from glasshead.recipe.problem import Problem
from glasshead.statistics.reductions import Reduction

NAMES = tuple(engine.name for engine in ENGINES)

# With fewer scores, threads and blocks cost more than they save.
_MANY = 2**20


@dataclass(frozen=True)
class Plan:
    """Engine that a call would run, why, and at what cost.

    Attributes:
        engine: The name of the engine.
        about: A description of the engine.
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
    work       17.2 GFLOP
    memory     13.7 MB beyond the inputs
    refused    fused: SDPA has no softcap
    """

    engine: str
    about: str
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
            ("work", f"{decimal_prefix(self.flops)}FLOP{passes}"),
            ("memory", f"{decimal_prefix(self.bytes)}B beyond the inputs"),
        ]
        if self.multiple != 1.0:
            rows.append(("time", f"about {self.multiple:.1f} × the plain call"))
        if self.statistics is not None:
            rows.append(("statistics", self.statistics))
        rows += (("refused", f"{name}: {why}") for name, why in self.refused.items())
        return rows


def engine_name(name: Any) -> str:
    """Check the name of an engine, and return it."""
    if name not in ("auto", *NAMES):
        known = ", ".join(repr(known) for known in ("auto", *NAMES))
        raise ValueError(f"engine takes one of {known}, and got {name!r}.")
    return name


class EngineChoice(NamedTuple):
    """Engine for a problem, and why others were refused on the way."""

    engine: Engine
    refused: dict[str, str]


def choose(problem: Problem, name: str) -> EngineChoice:
    """Choose the engine for a problem.

    Errors: a ValueError where the engine `name` cannot compute the problem.
    """
    if name == "auto":
        order = _by_speed(problem)
    else:
        order = [engine for engine in ENGINES if engine.name == engine_name(name)]
    refused = {}
    for engine in order:
        why = engine.refusal(problem)
        if why is None:
            return EngineChoice(engine, refused)
        refused[engine.name] = why
    raise ValueError(
        f"engine={name!r} does not serve this call: {refused[name]}; take engine='auto'."
    )


def _by_speed(problem: Problem) -> Sequence[Engine]:
    """Order the engines by expected speed, the fastest first."""
    scores = math.prod(problem.scores_shape)
    if torch.compiler.is_compiling() or scores >= _MANY:
        if STREAMING.skips(problem) or STREAMING.is_faster(problem):
            return STREAMING, FUSED, REFERENCE
        return ENGINES
    return FUSED, REFERENCE, STREAMING


def planned(
    problem: Problem, choice: EngineChoice, reductions: Sequence[Reduction] | None = None
) -> Plan:
    """Plan a call on the chosen engine: its cost, with that of the reductions."""
    engine, refused = choice
    cost = engine.cost(problem)
    if reductions is None:
        return Plan(engine.name, engine.about, refused, cost.flops, cost.bytes)
    extra = price(problem, engine, cost, reductions)
    plain = cost.flops + extra.plain
    # The operations of sums and softmax are of a CPU's.
    multiple = (plain + extra.flops + extra.sums) / plain if plain else 1.0
    beside = reduced_by(problem, reductions) if engine is FUSED else None
    return Plan(
        engine.name,
        engine.about,
        refused,
        cost.flops + extra.flops,
        cost.bytes + extra.bytes,
        extra.passes,
        multiple if problem.query.device.type in ("cpu", "meta") else 1.0,
        beside,
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
    results = size * heads * sum(r.numbers(queries, keys) for r in reductions)
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
    each, flops, sums = sum(r.operations for r in reductions), 0, 0
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
