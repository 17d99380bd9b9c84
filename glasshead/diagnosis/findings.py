"""Checks of what a mask shows, each yielding findings."""

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Bool
from torch import Tensor

from glasshead.diagnosis.axes import Case, InferredAxes
from glasshead.diagnosis.conversion import ends
from glasshead.diagnosis.mask_input import (
    Finding,
    only_later,
    places,
    total,
)
from glasshead.message import Message, _


def counted(count: int, one: str, many: str | None = None) -> str:
    """Format a count and its noun.

    >>> counted(1, "query", "queries"), counted(2100, "cell")
    ('1 query', '2,100 cells')
    """
    noun = one if count == 1 else many or f"{one}s"
    return Message(f"{{count:,}} {noun}", count=count)


# What is counted.
_COUNTS = (
    *(_("{count:,} query"), _("{count:,} queries"), _("{count:,} key"), _("{count:,} keys")),
    *(_("{count:,} cell"), _("{count:,} cells"), _("{count:,} query sees")),
    *(_("{count:,} queries see"), _("{count:,} batch row shows"), _("{count:,} batch rows show")),
    *(_("{count:,} error"), _("{count:,} errors")),
    *(_("{count:,} warning"), _("{count:,} warnings"), _("{count:,} key is")),
    *(_("{count:,} keys are"), _("{count:,} row is"), _("{count:,} rows are")),
)


def listed(
    places: Sequence[tuple[int, ...]], where: Callable[[tuple[int, ...]], str], count: int
) -> str:
    """List the first places in words, and how many more there are."""
    words = Message.joined("; ", [where(place) for place in places])
    more = count - len(places)
    if more > 0:
        return Message("{words} and {more:,} more", words=words, more=more)
    return words


def alignment(case: Case, kinds: frozenset[str]) -> Iterator[Finding]:
    """Find a diagonal that is offset from the queries' position among the keys."""
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
            Message(
                "The diagonal is off by one: no query sees its own key, and query 0 sees none. "
                "Hide torch.ones(n, n).triu(diagonal=1), which leaves the diagonal visible."
            ),
            place,
        )
    return Finding(
        "future",
        "error",
        Message(
            "The diagonal is off by one: every query sees the key after its own. Show "
            "torch.ones(n, n).tril(), the diagonal and no further."
        ),
        place,
    )


def _sentence(case: Case, stands: int, expected: int) -> str:
    queries, keys = case.queries, case.keys
    sizes = Message(
        "{queries} and {keys}",
        queries=counted(queries, "query", "queries"),
        keys=counted(keys, "key"),
    )
    if case.layout.offset is None and stands == 0 and queries < keys:
        return Message(
            "With {sizes} the causal mask begins at the top left: the last query sees {queries} "
            "keys, but with a cache it should see all {keys}. Use gh.causal(), which ends at the "
            "bottom right; if the other keys are not written yet, state offset=0.",
            sizes=sizes,
            queries=queries,
            keys=keys,
        )
    if case.layout.offset == 0 and stands == keys - queries:
        return Message(
            "With {sizes} the causal mask ends at the bottom right, as if {stands} keys were "
            "cached before query 0, but offset=0 says there are none. Use gh.causal(offset=0).",
            sizes=sizes,
            stands=stands,
        )
    return Message(
        "With {sizes} query 0 of the causal mask stands at position {stands} among the keys, but "
        "{value} says {expected}. Use gh.causal(offset={expected}), or state offset={stands} if "
        "that is meant.",
        sizes=sizes,
        stands=stands,
        value="offset" if case.layout.offset is not None else "keys - queries",
        expected=expected,
    )


def empty_rows(case: Case, kinds: frozenset[str]) -> Iterator[Finding]:
    """Find queries that see no key, and masks of one value.

    Args:
        case: The mask.
        kinds: The kinds of the structure that it equals, which do not matter here.
    """
    del kinds
    total, most = int(case.rows.count.sum()), case.visible.numel()
    if total == most:
        opposite = ""
        if case.meaning.convention == "attend" and len(case.layout.shape) <= 3:
            opposite = Message(
                " In torch.nn.MultiheadAttention, where True hides, it would hide everything."
            )
        yield Finding(
            "hides-nothing",
            "note",
            Message(
                "The mask hides nothing. Omit it, which is faster.{opposite}",
                opposite=opposite,
            ),
        )
    elif total == 0:
        yield Finding(
            "hides-everything",
            "error",
            Message("The mask hides every key from every query; {result}.", result=_result(case)),
        )
    else:
        yield from _dead(case)


def _dead(case: Case) -> Iterator[Finding]:
    dead = ~case.rows.alive
    expected = _of_padding(case) & dead
    for rows, explained in ((dead & ~expected, False), (expected, True)):
        count = int(rows.sum())
        if not count:
            continue
        first = places(rows)
        where = listed([case.place(place) for place in first], case.layout.describe, count)
        queries = counted(count, "query sees", "queries see")
        if case.layout.by_key:
            queries = counted(count, "batch row shows", "batch rows show")
        severity, why = "error", ""
        if explained:
            infinite = case.meaning.hiding is not None and case.meaning.hiding.infinite
            severity = "warning" if infinite else "note"
            why = Message(", since their own keys are padding, so their outputs are to be ignored")
        yield Finding(
            "dead-rows",
            severity,
            Message(
                "{queries} no key at all{why}: {where}; {result}.",
                queries=queries,
                why=why,
                where=where,
                result=_result(case),
            ),
            tuple(case.place(place) for place in first),
        )


def _of_padding(case: Case) -> Bool[Tensor, "*leading queries"]:
    """Return which queries are padding: no query of their batch row sees their own key.

    None of a batch row that sees no key at all.
    """
    if case.uniform:
        return torch.zeros_like(case.rows.alive)
    return ~case.real & case.seen.any(-1, keepdim=True)


def _result(case: Case) -> str:
    """Describe what libraries compute for a query without keys."""
    hiding = case.meaning.hiding
    if hiding is not None and hiding.infinite:
        return Message("a softmax over -inf alone is NaN, and spreads; here such a query gives 0")
    if hiding is not None and hiding.large is not None:
        return Message(
            "with such a finite number, the softmax sees all keys instead; here it gives 0"
        )
    if hiding is not None and hiding.lowest:
        return Message(
            "with the lowest number, the softmax weighs all keys alike instead; here it gives 0"
        )
    if case.meaning.convention == "hidden":
        return Message("nn.MultiheadAttention gives NaN there; here such a query gives 0")
    return Message("some libraries give NaN there; here such a query gives 0")


def inverted(case: Case, kinds: frozenset[str]) -> Iterator[Finding]:
    """Find masks, or batch rows and heads of one, that hide the past and show the future.

    Args:
        case: The mask.
        kinds: The kinds of the structure that it equals, which do not matter here.
    """
    del kinds
    if case.layout.by_key or any(one.kind == "polarity" for one in case.meaning.findings):
        return
    upside_down = only_later(case.visible, case.rows, case.layout.position)
    count = int(upside_down.sum())
    if not count:
        return
    first = places(upside_down) if upside_down.ndim else ()
    where = ""
    if count < upside_down.numel():
        where = Message(" ({where})", where=listed(first, case.layout.describe, count))
    yield Finding(
        "polarity",
        "error",
        Message(
            "The mask looks inverted: queries see only later positions{where}. Hide those "
            "instead, as gh.causal() does.",
            where=where,
        ),
        tuple((*place, 0, 0) for place in first),
    )


# A mask whose queries see a larger share of the future is not causal.
_CAUSAL = 0.25


def future(case: Case, kinds: frozenset[str]) -> Iterator[Finding]:
    """Find cells that leak the future: visible ones after the diagonal, unless structured.

    Args:
        case: The mask.
        kinds: The kinds of the structure that it equals, if any.
    """
    if "blocks" in kinds:
        yield _blocks(case)
    if case.edge is None or kinds:
        return
    lag = case.edge.lag
    later = case.visible.triu(lag + 1)
    count = total(later)
    if not count or count > _CAUSAL * _cells_after(case, lag):
        return
    first = places(later)
    own = (
        ""
        if lag == case.layout.position
        else Message(" (counted from position {lag} of query 0)", lag=lag)
    )
    yield Finding(
        "future",
        "error",
        Message(
            "The mask is causal except for {count} after the diagonal{own}, where a query sees a "
            "later key: {where}. Hide them, or use gh.causal().",
            count=counted(count, "cell"),
            own=own,
            where=listed(first, case.describe, count),
        ),
        tuple(case.place(place) for place in first),
    )


def _blocks(case: Case) -> Finding:
    later = case.visible.triu(case.layout.position + 1)
    first = places(later, 1)
    return Finding(
        "blocks",
        "note",
        Message(
            "The mask is causal except for blocks of neighboring keys that see each other, as the "
            "tokens of a picture do: the first has {where}.",
            where=case.describe(first[0]),
        ),
        tuple(case.place(place) for place in first),
    )


def _cells_after(case: Case, lag: int) -> int:
    """Count the cells after the diagonal, in all batch rows and heads."""
    outer = case.visible[..., 0, 0].numel()
    after = (max(0, min(case.keys, case.keys - 1 - i - lag)) for i in range(case.queries))
    return outer * sum(after)


def padding(case: Case, kinds: frozenset[str]) -> Iterator[Finding]:
    """Find faults of the keys that a batch row shows to no query.

    Args:
        case: The mask.
        kinds: The kinds of the structure that it equals, if any.
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
            Message(
                "Some batch rows are padded to the left and others to the right: {places}. Pad "
                "all on one side.",
                places=Message.joined(" + ", [case.layout.describe(row) for row in rows]),
            ),
            rows,
        )
    elif bool(left.any()):
        yield _to_the_left(case, left, starts)
    yield from _newest_hidden(case, right)


def _holes(case: Case, alive: Bool[Tensor, "*leading"]) -> Iterator[Finding]:
    """Find hidden keys between visible ones."""
    keys = case.seen
    before = keys.cummax(-1).values.bool()
    after = keys.flip(-1).cummax(-1).values.bool().flip(-1)
    holes = ~keys & before & after & alive[..., None]
    count = int(holes.sum())
    if not count:
        return
    first = places(holes)
    where = listed([_of_key(case, place) for place in first], case.layout.describe, count)
    yield Finding(
        "holes",
        "warning",
        Message(
            "{count} hidden between visible ones: {where}. Padding stands at one end, so check "
            "what hides them.",
            count=counted(count, "key is", "keys are"),
            where=where,
        ),
        tuple(_of_key(case, place) for place in first),
    )


def _of_key(case: Case, place: tuple[int, ...]) -> tuple[int, ...]:
    """Convert an index `[*leading, key]` to the mask's own axes; query 0 stands for all."""
    return place if case.layout.by_key else (*place[:-1], 0, place[-1])


def _to_the_left(case: Case, left: Bool[Tensor, "*leading"], starts: Tensor) -> Finding:
    count = int(left.sum())
    rows = places(left) if left.ndim else ((),)
    row = rows[0]
    most = int(starts[row] if row else starts)
    whose = Message(" in {where}", where=case.layout.describe(row)) if row else ""
    return Finding(
        "left-padding",
        "note",
        Message(
            "{count} padded to the left: the first {count2} hidden{whose}. If the tokens are "
            "padded to the right, these are real ones. Check the tokenizer's padding_side.",
            count=counted(count, "row is", "rows are"),
            count2=counted(most, "key is", "keys are"),
            whose=whose,
        ),
        rows if row else (),
    )


def _newest_hidden(case: Case, right: Bool[Tensor, "*leading"]) -> Iterator[Finding]:
    """Find right padding where a cache is longer than the queries: it hides the newest token."""
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
        where = (
            Message(" ({where})", where=listed(rows, case.layout.describe, count)) if rows else ""
        )
        yield Finding(
            "padding-side",
            "warning",
            Message(
                "With {count} and {keys} keys the last query stands at key {newest}, which right "
                "padding hides{where}. To continue from a cache, pad to the left.",
                count=counted(queries, "query", "queries"),
                keys=case.keys,
                newest=newest,
                where=where,
            ),
            tuple(_of_key(case, (*row, newest)) for row in rows) or ((newest,),),
        )


def shapes(inferred: InferredAxes) -> Iterator[Finding]:
    """Find faults of the shape, and what is worth knowing of it."""
    yield from inferred.findings
    shape = inferred.layout.shape
    if len(shape) == 3 and shape[0] > 1:
        yield Finding(
            "layout",
            "note",
            Message(
                "The first of three axes, {size}, is the heads of inputs with heads, the batch of "
                "inputs without heads, and batch * heads in torch.nn.MultiheadAttention. Pass "
                "such a mask of torch.nn.MultiheadAttention to gh.from_torch_mha(mask, "
                "num_heads=…).",
                size=shape[0],
            ),
        )
