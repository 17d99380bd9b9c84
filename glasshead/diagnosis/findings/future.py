"""Future: a causal mask in which some queries see later keys."""

from collections.abc import Iterator

from glasshead.diagnosis.case import Case
from glasshead.diagnosis.finding import Finding
from glasshead.diagnosis.findings.words import counted, listed
from glasshead.diagnosis.rows import places, total

# A mask whose queries see more of the future than this is no causal one.
_CAUSAL = 0.25


def future(case: Case, kinds: frozenset[str]) -> Iterator[Finding]:
    """Cells after the diagonal at which most queries end, unless a rule explains them.

    Args:
        case: The mask.
        kinds: What the rule consists of that it equals, if any.
    """
    if case.edge is None or kinds:
        return
    lag = case.edge.lag
    later = case.visible.triu(lag + 1)
    count = total(later)
    if not count or count > _CAUSAL * _cells_after(case, lag):
        return
    first = places(later)
    own = "" if lag == case.layout.position else f" (counted from position {lag} of query 0)"
    yield Finding(
        "future",
        "error",
        f"The mask is causal but for {counted(count, 'cell')} after the diagonal{own}, where a "
        f"query sees a later key: {listed(first, case.told, count)}; hide them, or use "
        "gh.causal().",
        tuple(case.place(place) for place in first),
    )


def _cells_after(case: Case, lag: int) -> int:
    """How many cells lie after the diagonal, in all batch rows and heads."""
    outer = case.visible[..., 0, 0].numel()
    after = (max(0, min(case.keys, case.keys - 1 - i - lag)) for i in range(case.queries))
    return outer * sum(after)
