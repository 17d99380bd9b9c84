"""Emptiness: queries that see nothing, and masks that hide nothing."""

from collections.abc import Iterator

import torch
from jaxtyping import Bool
from torch import Tensor

from glasshead.diagnosis.case import Case
from glasshead.diagnosis.finding import Finding, Severity
from glasshead.diagnosis.findings.words import counted, listed
from glasshead.diagnosis.rows import places
from glasshead.diagnosis.structures.padded import ends


def emptiness(case: Case, kinds: frozenset[str]) -> Iterator[Finding]:
    """Dead rows, and masks of one value.

    Args:
        case: The mask.
        kinds: What the rule consists of that it equals, if any.
    """
    total, most = int(case.rows.count.sum()), case.visible.numel()
    if total == most:
        yield Finding(
            "hides-nothing",
            "note",
            "The mask hides nothing: leave it out, which is faster."
            + (
                ""
                if case.meaning.convention != "attend" or len(case.layout.shape) > 3
                else " In torch.nn.MultiheadAttention, where True hides, it would hide everything."
            ),
        )
    elif total == 0:
        yield Finding(
            "hides-everything",
            "error",
            f"The mask hides every key from every query; {_result(case)}.",
        )
    else:
        yield from _dead(case, padded="padding" in kinds)


def _dead(case: Case, *, padded: bool) -> Iterator[Finding]:
    dead = ~case.rows.alive
    expected = _of_padding(case, padded=padded) & dead
    for rows, explained in ((dead & ~expected, False), (expected, True)):
        count = int(rows.sum())
        if not count:
            continue
        first = places(rows)
        told = listed([case.place(place) for place in first], case.layout.told, count)
        queries = _subject(case, count)
        why = (
            ", since their own keys are padding: their outputs are to be ignored"
            if explained
            else ""
        )
        yield Finding(
            "dead-rows",
            _severity(case, explained),
            f"{queries} no key at all{why}: {told}; {_result(case)}.",
            tuple(case.place(place) for place in first),
        )


def _subject(case: Case, count: int) -> str:
    if case.layout.by_key:
        return counted(count, "batch row shows", "batch rows show")
    return counted(count, "query sees", "queries see")


def _of_padding(case: Case, *, padded: bool) -> Bool[Tensor, "*leading queries"]:
    """Which queries stand before the first key that any query of their batch row sees.

    Or after the last, where that is sure to be padding.
    """
    if case.uniform:
        return torch.zeros_like(case.rows.alive)
    positions = torch.arange(case.queries, device=case.visible.device) + case.layout.position
    starts, stops = ends(case.seen)
    after = (positions >= stops[..., None]) & (positions < case.keys) & padded
    return ((positions >= 0) & (positions < starts[..., None])) | after


def _severity(case: Case, explained: bool) -> Severity:
    infinite = case.meaning.hiding is not None and case.meaning.hiding.infinite
    if explained:
        return "warning" if infinite else "note"
    return "error"


def _result(case: Case) -> str:
    """What libraries make of a query without keys."""
    hiding = case.meaning.hiding
    if hiding is not None and hiding.infinite:
        return "a softmax over -inf alone is NaN, and spreads; here such a query gives 0"
    if hiding is not None and hiding.large is not None:
        return "with so finite a number, the softmax sees all keys instead; here it gives 0"
    if hiding is not None and hiding.lowest:
        return "with the lowest number, the softmax weighs all keys alike instead; here it gives 0"
    if case.meaning.convention == "hidden":
        return "nn.MultiheadAttention gives NaN there; here such a query gives 0"
    return "some libraries give NaN there; here such a query gives 0"
