"""Alignment: where a causal mask begins when there are fewer queries than keys."""

from collections.abc import Iterator

from glasshead.diagnosis.case import Case
from glasshead.diagnosis.finding import Finding
from glasshead.diagnosis.findings.words import counted


def alignment(case: Case, kinds: frozenset[str]) -> Iterator[Finding]:
    """A diagonal at another place than the queries have among the keys."""
    if case.edge is None or kinds == {"window"} or "prefix" in kinds:
        return
    stands, expected = case.edge.lag, case.layout.position
    away = stands - expected
    if away == 0 or (case.layout.offset is None and case.queries > case.keys):
        return
    place = ((0,) * len(case.layout.leading) + (0, max(0, min(stands, case.keys - 1))),)
    if abs(away) == 1 and case.queries == case.keys:
        yield _by_one(away, place)
        return
    yield Finding("alignment", "warning", _sentence(case, stands, expected), place)


def _by_one(away: int, place: tuple[tuple[int, ...], ...]) -> Finding:
    if away < 0:
        return Finding(
            "alignment",
            "warning",
            "The diagonal is off by one: no query sees its own key, and query 0 sees none: hide "
            "torch.ones(n, n).triu(diagonal=1), without the diagonal itself.",
            place,
        )
    return Finding(
        "future",
        "error",
        "The diagonal is off by one: every query sees the key after its own: show "
        "torch.ones(n, n).tril(), the diagonal and no further.",
        place,
    )


def _sentence(case: Case, stands: int, expected: int) -> str:
    queries, keys = case.queries, case.keys
    sizes = f"{counted(queries, 'query', 'queries')} and {counted(keys, 'key')}"
    if case.layout.offset is None and stands == 0 and queries < keys:
        return (
            f"With {sizes} the causal mask begins at the top left: the last query sees {queries} "
            f"keys, and with a cache it should see all {keys}: use gh.causal(), which ends at the "
            "bottom right; where the other keys are not written yet, state offset=0."
        )
    if case.layout.offset == 0 and stands == keys - queries:
        return (
            f"With {sizes} the causal mask ends at the bottom right, as if {stands} keys were "
            "cached before query 0, and offset=0 says there are none: use gh.causal(offset=0)."
        )
    return (
        f"With {sizes} query 0 of the causal mask stands at position {stands} among the keys, and "
        f"{'offset' if case.layout.offset is not None else 'keys - queries'} says {expected}: use "
        f"gh.causal(offset={expected}), or state offset={stands} where that is meant."
    )
