"""Padding: the side that it is on, holes in it, and sides that are mixed."""

from collections.abc import Iterator

from jaxtyping import Bool
from torch import Tensor

from glasshead.diagnosis.case import Case
from glasshead.diagnosis.finding import Finding
from glasshead.diagnosis.findings.words import counted, listed
from glasshead.diagnosis.rows import places
from glasshead.diagnosis.structures.padded import ends


def padding(case: Case, kinds: frozenset[str]) -> Iterator[Finding]:
    """What is wrong with the keys that a batch row shows to no query.

    Args:
        case: The mask.
        kinds: What the rule consists of that it equals, if any.
    """
    if not case.uniform and "padding" not in kinds:
        return
    starts, stops = ends(case.seen)
    alive = stops > starts
    left, right = alive & (starts > 0), alive & (stops < case.keys)
    yield from _holes(case, alive)
    if bool((left & ~right).any()) and bool((right & ~left).any()):
        rows = (*places(left & ~right, 1), *places(right & ~left, 1)) if left.ndim else ()
        yield Finding(
            "mixed-padding",
            "warning",
            "Some batch rows are padded to the left and others to the right: "
            f"{' and '.join(case.layout.told(row) for row in rows)}; pad all on one side.",
            rows,
        )
    elif bool(left.any()):
        yield _to_the_left(case, left, starts)
    yield from _newest_hidden(case, right)


def _holes(case: Case, alive: Bool[Tensor, "*leading"]) -> Iterator[Finding]:
    """Hidden keys between visible ones."""
    keys = case.seen
    before = keys.cummax(-1).values.bool()
    after = keys.flip(-1).cummax(-1).values.bool().flip(-1)
    holes = ~keys & before & after & alive[..., None]
    count = int(holes.sum())
    if not count:
        return
    first = places(holes)
    told = listed([_of_key(case, place) for place in first], case.layout.told, count)
    yield Finding(
        "holes",
        "warning",
        f"{counted(count, 'key is', 'keys are')} hidden between visible ones: {told}; padding "
        "stands at one end, so check what hides them.",
        tuple(_of_key(case, place) for place in first),
    )


def _of_key(case: Case, place: tuple[int, ...]) -> tuple[int, ...]:
    """A place `[*leading, key]` among the mask's own axes; query 0 stands for all."""
    return place if case.layout.by_key else (*place[:-1], 0, place[-1])


def _to_the_left(case: Case, left: Bool[Tensor, "*leading"], starts: Tensor) -> Finding:
    count = int(left.sum())
    rows = places(left) if left.ndim else ((),)
    row = rows[0]
    most = int(starts[row] if row else starts)
    whose = f" in {case.layout.told(row)}" if row else ""
    return Finding(
        "left-padding",
        "note",
        f"{counted(count, 'row is', 'rows are')} padded to the left: the first "
        f"{counted(most, 'key is', 'keys are')} hidden{whose}. Where the tokens are "
        "padded to the right, these are real ones: check the tokenizer's padding_side.",
        rows if row else (),
    )


def _newest_hidden(case: Case, right: Bool[Tensor, "*leading"]) -> Iterator[Finding]:
    """Right padding where a cache is longer than the queries: the newest token hides itself."""
    queries = case.layout.queries
    if queries is None or queries >= case.keys or not bool(right.any()):
        return
    newest = case.layout.position + queries - 1
    if not 0 <= newest < case.keys:
        return
    hidden = right & ~case.seen[..., newest]
    count = int(hidden.sum())
    if count:
        rows = places(hidden) if hidden.ndim else ()
        told = f" ({listed(rows, case.layout.told, count)})" if rows else ""
        yield Finding(
            "padding-side",
            "warning",
            f"With {counted(queries, 'query', 'queries')} and {case.keys} keys the last query "
            f"stands at key {newest}, which right padding hides{told}: to go on from a cache, pad "
            "to the left.",
            tuple(_of_key(case, (*row, newest)) for row in rows) or ((newest,),),
        )
