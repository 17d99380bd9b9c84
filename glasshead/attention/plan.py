"""What an attention would do, and why, told before it is done."""

from dataclasses import dataclass
from typing import Any

from glasshead.engines import ENGINES, Engine
from glasshead.recipe.problem import Problem

NAMES = tuple(engine.name for engine in ENGINES)


@dataclass(frozen=True)
class Plan:
    """Which engine a call would run, why, and at what price.

    Attributes:
        engine: The name of the engine.
        about: What that engine does.
        refused: Each engine that was asked before it, and why it does not serve.
        flops: Floating-point operations of the two matrix products, a multiply-add counting two.
        bytes: Peak memory beyond the inputs, the context included.

    >>> import torch, glasshead as gh
    >>> x = torch.empty(1, 8, 4096, 64, device="meta")
    >>> print(gh.Attention(mask=gh.causal(), softcap=30.0).plan(x, x, x))
    engine     reference: every step in full, queries × keys numbers at a time
    work       34.4 GFLOP
    memory     3.23 GB beyond the inputs
    refused    fused: SDPA has no softcap
    """

    engine: str
    about: str
    refused: dict[str, str]
    flops: int
    bytes: int

    def __str__(self) -> str:
        lines = [
            ("engine", f"{self.engine}: {self.about}"),
            ("work", f"{_prefixed(self.flops)}FLOP"),
            ("memory", f"{_prefixed(self.bytes)}B beyond the inputs"),
            *(("refused", f"{name}: {why}") for name, why in self.refused.items()),
        ]
        return "\n".join(f"{label:<11}{text}" for label, text in lines)


def engine_name(name: Any) -> str:
    """`name` as it is, or a ValueError where no engine has it."""
    if name not in ("auto", *NAMES):
        known = ", ".join(repr(known) for known in ("auto", *NAMES))
        raise ValueError(f"engine takes one of {known}, and got {name!r}.")
    return name


def choose(problem: Problem, name: str) -> tuple[Engine, dict[str, str]]:
    """The engine for a problem, and each that was refused on the way, with the reason.

    Errors: a ValueError where the engine `name` was asked for and does not serve the problem.
    """
    engine_name(name)
    refused = {}
    for engine in ENGINES:
        if name not in ("auto", engine.name):
            continue
        why = engine.refusal(problem)
        if why is None:
            return engine, refused
        refused[engine.name] = why
    raise ValueError(
        f"engine={name!r} does not serve this call: {refused[name]}; take engine='auto'."
    )


def planned(problem: Problem, name: str) -> Plan:
    """What `choose` would pick, and its price."""
    engine, refused = choose(problem, name)
    cost = engine.cost(problem)
    return Plan(engine.name, engine.about, refused, cost.flops, cost.bytes)


def _prefixed(count: int) -> str:
    """`count` with three digits and a decimal prefix: 34.4 G."""
    value, prefixes = float(count), iter(("", "k", "M", "G", "T", "P", "E"))
    prefix = next(prefixes)
    while value >= 999.5 and prefix != "E":
        value, prefix = value / 1000, next(prefixes)
    return f"{value:.3g} {prefix}"
