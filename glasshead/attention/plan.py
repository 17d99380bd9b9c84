"""Execution plans: which engine a call runs, why, and at what cost."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from glasshead.attention.choice import EngineChoice, tiles_denied
from glasshead.engines import FUSED, STREAMING, reducer_of
from glasshead.engines.streaming.operands import result_bytes
from glasshead.recipe.problem import Problem
from glasshead.statistics.reductions import Reduction


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
        statistics: On a GPU, what computes the statistics next to the context, and why.

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


def planned(
    problem: Problem, choice: EngineChoice, reductions: Sequence[Reduction] | None = None
) -> Plan:
    """Plan a call on the chosen engine: its cost, with that of the reductions."""
    engine = choice.engine
    cost = engine.cost(problem)
    reason = choice.reason
    if engine is STREAMING and (why := tiles_denied(problem)) is not None:
        reason = f"{reason}; {why}"
    plan = Plan(engine.name, engine.about, reason, choice.refused, cost.flops, cost.bytes)
    if reductions is None:
        return plan
    extra = engine.price(problem, cost, reductions)
    plain = cost.flops + extra.plain
    # The operations of sums and softmax are of a CPU's.
    multiple = (plain + extra.flops + extra.sums) / plain if plain else 1.0
    reducer = reducer_of(problem, reductions) if engine is FUSED else None
    return replace(
        plan,
        flops=cost.flops + extra.flops,
        bytes=cost.bytes + extra.bytes + result_bytes(problem, reductions),
        passes=extra.passes,
        multiple=multiple if problem.query.device.type in ("cpu", "meta") else 1.0,
        statistics=reducer,
    )


def decimal_prefix(count: int) -> str:
    """Format `count` with three digits and a decimal prefix: 34.4 G."""
    value, prefixes = float(count), iter(("", "k", "M", "G", "T", "P", "E"))
    prefix = next(prefixes)
    while value >= 999.5 and prefix != "E":
        value, prefix = value / 1000, next(prefixes)
    return f"{value:.3g} {prefix}"
