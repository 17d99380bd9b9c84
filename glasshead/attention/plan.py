"""Execution plans: which engine a call runs, why, and at what cost."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from glasshead.engines import ENGINES, FUSED, REFERENCE, STREAMING, Engine, price
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
        multiple: The time that is expected, as a multiple of the plain call's; 1 for the call.

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

    def __str__(self) -> str:
        passes = f", {self.passes} passes over the scores" if self.passes > 1 else ""
        lines = [
            ("engine", f"{self.engine}: {self.about}"),
            ("work", f"{decimal_prefix(self.flops)}FLOP{passes}"),
            ("memory", f"{decimal_prefix(self.bytes)}B beyond the inputs"),
        ]
        if self.multiple != 1.0:
            lines.append(("time", f"about {self.multiple:.1f} × the plain call"))
        lines += (("refused", f"{name}: {why}") for name, why in self.refused.items())
        return "\n".join(f"{label:<11}{text}" for label, text in lines)


def engine_name(name: Any) -> str:
    """Check the name of an engine, and return it."""
    if name not in ("auto", *NAMES):
        known = ", ".join(repr(known) for known in ("auto", *NAMES))
        raise ValueError(f"engine takes one of {known}, and got {name!r}.")
    return name


def choose(problem: Problem, name: str) -> tuple[Engine, dict[str, str]]:
    """Choose the engine for a problem, and return why others were refused on the way.

    Errors: a ValueError where the engine `name` cannot compute the problem.
    """
    engine_name(name)
    order = _by_speed(problem) if name == "auto" else [e for e in ENGINES if e.name == name]
    refused = {}
    for engine in order:
        why = engine.refusal(problem)
        if why is None:
            return engine, refused
        refused[engine.name] = why
    raise ValueError(
        f"engine={name!r} does not serve this call: {refused[name]}; take engine='auto'."
    )


def _by_speed(problem: Problem) -> Sequence[Engine]:
    """Order the engines by expected speed, the fastest first."""
    scores = math.prod(problem.scores_shape)
    if torch.compiler.is_compiling() or scores >= _MANY:
        return (STREAMING, FUSED, REFERENCE) if STREAMING.skips(problem) else ENGINES
    return FUSED, REFERENCE, STREAMING


def planned(problem: Problem, name: str, reductions: Sequence[Reduction] | None = None) -> Plan:
    """Plan a call: the engine that `choose` picks, and its cost with that of the reductions."""
    engine, refused = choose(problem, name)
    cost = engine.cost(problem)
    if reductions is None:
        return Plan(engine.name, engine.about, refused, cost.flops, cost.bytes)
    extra = price(problem, engine, reductions)
    plain = cost.flops + extra.plain
    return Plan(
        engine.name,
        engine.about,
        refused,
        cost.flops + extra.flops,
        cost.bytes + extra.bytes,
        extra.passes,
        (plain + extra.flops + extra.sums) / plain if plain else 1.0,
    )


def decimal_prefix(count: int) -> str:
    """Format `count` with three digits and a decimal prefix: 34.4 G."""
    value, prefixes = float(count), iter(("", "k", "M", "G", "T", "P", "E"))
    prefix = next(prefixes)
    while value >= 999.5 and prefix != "E":
        value, prefix = value / 1000, next(prefixes)
    return f"{value:.3g} {prefix}"
