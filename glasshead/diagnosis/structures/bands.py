"""Bands: causal masks and windows, recognised by where each query sees its first and last key."""

import torch
from torch import Tensor

from glasshead.diagnosis.case import Case
from glasshead.diagnosis.rows import Rows, most_frequent
from glasshead.diagnosis.structures.structure import Structure
from glasshead.recipe.masks import causal, window


def band(case: Case) -> Structure | None:
    """The band that would be seen if no key were padding; it has yet to be compared.

    None where all queries see the same keys, and where the ends follow no diagonal.
    """
    if case.uniform:
        return None
    union = case.visible.reshape(-1, case.queries, case.keys).any(0)
    rows = Rows.of(union)
    seen = union.any(0).nonzero()
    if not len(seen):
        return None
    lowest, highest = int(seen[0]), int(seen[-1])
    queries = torch.arange(case.queries, device=union.device)
    last = _lag((rows.last - queries)[rows.alive & (rows.last < highest)])
    first = _lag((rows.first - queries)[rows.alive & (rows.first > lowest)])
    if last is None and first is None:
        return None
    return named(
        before=None if first is None else case.layout.position - first,
        after=None if last is None else last - case.layout.position,
        position=case.layout.position,
    )


def named(before: int | None, after: int | None, position: int) -> Structure:
    """A band of so many keys before and after each query's own, in the shortest words."""
    if after is None or (after >= 0 and before is not None and before >= 0):
        if before is not None and before < 0:
            return _window(0, after, position - before)
        return _window(before, after)
    # What is shifted as a whole has an offset of its own.
    offset = None if after == 0 else position + after
    if before is None:
        line = "gh.causal()" if offset is None else f"gh.causal(offset={offset})"
        return Structure(causal(offset), line, frozenset({"causal"}))
    return _window(max(before + after, 0), 0, offset)


def _window(before: int | None, after: int | None, offset: int | None = None) -> Structure:
    arguments = [f"before={before}"]
    arguments += [] if after == 0 else [f"after={after}"]
    arguments += [] if offset is None else [f"offset={offset}"]
    kinds = {"causal", "window"} if after == 0 else {"window"}
    return Structure(
        window(before, after, offset), f"gh.window({', '.join(arguments)})", frozenset(kinds)
    )


def _lag(lags: Tensor) -> int | None:
    """The most frequent one, or None of none."""
    return most_frequent(lags)[0] if len(lags) else None
