"""Sequences: which text a call belongs to, its position there, and the rows that it continues.

A call continues a text because its module, or one around it, was given the same cache, or because
its keys are those of the last call, compared by content. Positions alone never join two calls.
"""

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn

from glasshead.recipe.problem import Problem
from glasshead.watching.captured_call import AttentionCall, CapturedCall
from glasshead.watching.errors import UnseenError
from glasshead.watching.module_calls import ModuleCall
from glasshead.watching.text_state import (
    AttentionKey,
    CacheTexts,
    FoundKeys,
    Memory,
    NewCall,
    TextState,
    aligned,
    content_of,
    memory_of,
    nearly_same,
)

# Arguments by which modules are given a cache, whatever its class is called.
_CACHES = {"cache", "cache_params", "kv_cache", "layer_past", "past"} | {
    f"past_key_value{plural}" for plural in ("", "s")
}
# A decoder layer has self-attention, then cross-attention to one other text, or two.
_PASSED = 3
# Texts without a cache that may go on: two in turn, as for guidance, and another.
_RECENT = 3

REPLACED = "rows of its cache were replaced by others while the text grew"
UNKNOWN = "it is not known whether its last call continues an earlier one, as no cache shows it"
UNALIGNED = (
    "it has more keys than tokens, and whether the others stand before or after these is not known"
)
UNPLACED = (
    "keys were removed from the cache before this call, and the others are not the same as before, "
    "so which tokens they belong to is not known"
)


class CallPosition(NamedTuple):
    """The place of a call in its text.

    Attributes:
        position: Position of its first query in the text.
        first_key: Position of its first key in the text.
        offset: Position of query 0 among the keys, where it differs from that of the problem.
        text: The text: its number, after that of the text that it shares its beginning with.
        rows: For each row, the row of the text's last call that it continues; None: the same.
        apart: Why the calls of the text cannot be joined, a clause; None: they can.
        places: Positions of its keys in the text where some in between were removed from the
            cache, `[rows, key heads, keys]`; None: they follow one another.
        unplaced: Why the positions of its keys are not known, a clause; None: they are.
        far: Why the distances of its keys are not known, although they have numbers, a clause.
    """

    position: int
    first_key: int = 0
    offset: int | None = None
    text: tuple[int, ...] = ()
    rows: tuple[int, ...] | None = None
    apart: str | None = None
    places: Int[Tensor, "rows kv_heads keys"] | None = None
    unplaced: str | None = None
    far: str | None = None


class _Last(NamedTuple):
    """The last self-attention: its forward pass, position, queries, text and rows."""

    forward: int = -1
    position: int = 0
    queries: int = 0
    text: tuple[int, ...] | None = None
    rows: tuple[int, ...] | None = None


class ContinuedText(NamedTuple):
    """A text of a cache that a call has continued, for those of other layers of its pass.

    Attributes:
        owner: The cache.
        before: The facts of the text before the call, as of `TextState.known`.
        state: The text after the call.
        last: The call.
    """

    owner: CacheTexts
    before: tuple[Any, ...]
    state: TextState
    last: _Last


class SequenceLedger:
    """The texts that a model reads, and the place of each of its calls in them.

    The position of a call follows from its cache, else from its keys. There are two exceptions. A
    sliding cache holds the last keys only: the cache gives their position, or, where it is
    inaccessible, the number of tokens fed so far. Cross-attention has the position of the
    self-attention before it in the same forward pass, watched or not.

    Attributes:
        continued: The text that the last call has continued with all of its keys; None: none.
    """

    def __init__(self) -> None:
        self._owners: dict[int, CacheTexts] = {}
        self._recent: dict[AttentionKey, deque[TextState]] = {}
        self.continued: ContinuedText | None = None
        self._numbers = 0
        self._of_pass: tuple[object, int] | None = None
        self._last = _Last()
        self._passed: deque[tuple[int, Callable[[], CapturedCall]]] = deque(maxlen=_PASSED)
        self._unplaced: tuple[int, str, int] | None = None

    def place(self, call: AttentionCall) -> CallPosition:
        """Return the place of a call in its text.

        Errors: an `UnseenError` if cross-attention ran before its position was known.
        """
        captured, forward = call.captured, call.run.forward
        self.continued = None
        if captured.over_features or not isinstance(captured.problem.offset, int):
            # Rows of a batch at different positions have none in common.
            return CallPosition(0, text=(self._new(),))
        new = NewCall(call, self._owner(call.calls))
        if captured.crossing:
            return self._of_crossing(new)
        owner = None if new.latent else new.owner
        state = None if owner is None else owner.states.get(new.key)
        before = None if state is None else state.known
        place = self._of_self(new)
        last = _Last(forward, place.position, captured.queries, place.text, place.rows)
        self._passed.clear()
        self._note(last)
        if owner and state and before and place == CallPosition(new.before, text=state.text):
            self.continued = ContinuedText(owner, before, state, last)
        return place

    def continues(self, key: AttentionKey, problem: Problem, first: ContinuedText) -> bool:
        """Place a call that continues a text as another one of its pass does.

        Args:
            key: Its attention.
            problem: Its computation.
            first: The text that the other one has continued. The arguments of both are equal.

        Returns: whether it does. If not, nothing has changed.
        """
        state, own = first.owner.states.get(key), first.state
        if state is None or state.content is None or state.known != first.before:
            return False
        content, before = content_of(problem), first.last.position
        if content is None or not torch.equal(state.content, content[..., :before, :]):
            return False
        state.content, state.end, state.crops = content, own.end, own.crops
        state.ids, state.last = own.ids, own.last
        self._passed.clear()
        self._note(first.last)
        return True

    def placed(self, forward: int, position: int, queries: int) -> None:
        """Record a self-attention whose position is known.

        Args:
            forward: Number of the forward pass.
            position, queries: Position of its first query, and the number of queries.
        """
        self._passed.clear()
        self._note(self._last._replace(forward=forward, position=position, queries=queries))

    def passed(self, capture: Callable[[], CapturedCall], forward: int) -> None:
        """Record an unwatched attention, from which later cross-attention may take its position.

        Args:
            capture: Returns the captured call.
            forward: Number of the forward pass.
        """
        self._passed.append((forward, capture))
        if self._unplaced and self._unplaced[0] == forward:
            self._look_back(forward)

    def moved(self, cache: Any, move: list[int] | int | None) -> None:
        """Record that the rows of a cache have changed.

        Args:
            cache: The cache.
            move: The old row of each row, or how often each is repeated; None: not known.
        """
        if owner := self._known(cache):
            owner.moves.append(move)

    def cropped(self, cache: Any, count: int | None) -> dict[str, tuple[tuple[int, ...], int]]:
        """Record that the last tokens of a cache were removed.

        Args:
            cache: The cache.
            count: How many; None: not known.

        Returns: by the name of each attention its text, and the tokens that are left of it.
        """
        owner = self._known(cache)
        if owner is None:
            return {}
        owner.crops += 1
        left = held_by(cache)
        # A module around the text may have been given the cache too, such as one that sees.
        return {
            name: (state.text, left)
            for (name, _), state in owner.states.items()
            if count and left is not None and state.end - count == left
        }

    def _known(self, cache: Any) -> CacheTexts | None:
        owner = self._owners.get(id(cache))
        return owner if owner is not None and owner.cache() is cache else None

    def _owner(self, calls: Sequence[ModuleCall]) -> CacheTexts | None:
        """Return the cache that the innermost module with one was given; None without any."""
        cache = given_cache(calls)
        if cache is None:
            return None
        owner = self._known(cache)
        if owner is None:
            known, place = self._owners, id(cache)

            def forget(gone: "weakref.ref[Any]") -> None:
                # Another cache may have the number by now.
                if place in known and known[place].cache is gone:
                    del known[place]

            owner = known[place] = CacheTexts(weakref.ref(cache, forget))
        return owner

    def _new(self, shared: object = None, forward: int = -1) -> int:
        """Return the number of a new text, the same for all layers of a pass with one cache."""
        if shared is None or self._of_pass is None or self._of_pass != (shared, forward):
            self._numbers += 1
            self._of_pass = None if shared is None else (shared, forward)
        return self._numbers

    def _begun(self, call: NewCall, position: int, after: tuple[int, ...] = ()) -> TextState:
        """Return the state of a text that begins with a call.

        Args:
            call: The call.
            position: Position of its first query.
            after: The text that it shares its beginning with.
        """
        recent = self._recent.setdefault(call.key, deque())
        number = self._new(call.owner or "none", call.forward)
        if any(one.text[-1] == number for one in recent):
            number = self._new()
        state = TextState((*after, number), position, call.owner)
        recent.append(state)
        if call.owner is not None:
            if replaced := call.owner.states.get(call.key):
                replaced.owner = None
            call.owner.states[call.key] = state
            state.moves, state.crops = len(call.owner.moves), call.owner.crops
        loose = [one for one in recent if one.orphaned]
        for one in loose[:-_RECENT]:
            recent.remove(one)
        return state

    def _of_self(self, call: NewCall) -> CallPosition:
        state = None if call.owner is None else call.owner.states.get(call.key)
        before = call.before
        position = _claimed(call, state or self._newest(call))
        if not before and not (position and state is not None and position == state.end):
            return self._at(call, self._begun(call, position), FoundKeys(position, position))
        if state is None:
            return self._of_known_content(call, position)
        moved = call.owner.rows_since(state) if call.owner is not None else None
        cropped, state.crops = call.crops != state.crops, call.crops
        if position <= state.start:
            # Nothing that was observed remains of the text.
            return self._at(
                call, self._begun(call, position), FoundKeys(position, position - before)
            )
        known = None if moved is None else moved if len(moved) == call.rows else []
        found = aligned(state, call, position, known, cropped=cropped)
        counted = state.places is None and (cropped or position >= state.end)
        if found is None and counted and nearly_same(state, call, position, known):
            found = FoundKeys(position, position - before, rows=known)
        if found is not None:
            return self._at(call, state, found)
        if position >= state.end:
            place = self._at(
                call, self._begun(call, position), FoundKeys(position, position - before)
            )
            return place._replace(apart=REPLACED)
        place = self._at(call, state, FoundKeys(state.end, state.end - before, rows=known))
        state.content = state.places = None
        return place._replace(unplaced=UNPLACED)

    def _newest(self, call: NewCall) -> TextState | None:
        """Return the last text of an attention that no cache holds."""
        recent = [one for one in self._recent.get(call.key, ()) if one.orphaned]
        return recent[-1] if recent and call.owner is None else None

    def _of_known_content(self, call: NewCall, position: int) -> CallPosition:
        """Place a call without a known cache by the content of its keys."""
        recent = [*self._recent.get(call.key, ())]
        for state in reversed(recent):
            within = state.start < position <= state.end
            found = aligned(state, call, position, None, cropped=True) if within else None
            if found is None or -1 in (found.rows or ()):
                continue
            if not state.orphaned or position < state.end:
                # A copy of a cache, or a tuple of keys that was continued before.
                begun = self._begun(call, state.start, after=state.text)
                return self._at(call, begun, found)
            # A tuple of keys that grows, or a cache that is made of it at each step.
            state.owner = call.owner
            if call.owner is not None:
                call.owner.states[call.key] = state
                state.moves, state.crops = len(call.owner.moves), call.owner.crops
            return self._at(call, state, found)
        follows = (
            call.owner is None
            and not call.captured.shards
            and any((one.end, one.batch) == (position, call.captured.batch) for one in recent)
        )
        memory = None if follows or call.owner is not None else memory_of(call)
        if memory is Memory.AFTER:
            place = self._at(call, self._begun(call, 0), FoundKeys(0, 0))
            return place._replace(offset=0)
        state = self._begun(call, position)
        place = self._at(call, state, FoundKeys(position, position - call.before))
        if memory is Memory.SOMEWHERE:
            place = place._replace(far=UNALIGNED)
        return place._replace(apart=UNKNOWN) if follows else place

    def _at(self, call: NewCall, state: TextState, found: FoundKeys) -> CallPosition:
        """Record a call in a text, and return its place."""
        state.first, state.places, state.content = found.first, found.places, call.content
        state.end, state.ids = found.position + call.captured.queries, call.ids
        state.batch, state.rows = call.captured.batch, call.rows
        state.last = call.forward, call.captured.queries, call.keys
        rows = None if found.rows is None else tuple(found.rows)
        apart = None
        if rows is not None and (not rows or -1 in rows or len(call.captured.batch) > 1):
            rows, apart = None, REPLACED
        return CallPosition(
            found.position,
            0 if found.places is not None else max(0, found.first),
            text=state.text,
            rows=rows,
            apart=apart,
            places=found.places,
        )

    def _of_crossing(self, call: NewCall) -> CallPosition:
        captured, owner, forward = call.captured, call.owner, call.forward
        self._look_back(forward)
        own = self._last
        recent = self._recent.get(call.key, ())
        state = owner.states.get(call.key) if owner is not None else None
        if state is None and recent and (recent[-1].orphaned or owner is None):
            state = recent[-1]
        aligned = own.forward == forward and own.queries == captured.queries
        if own.forward == forward:
            position = own.position if aligned else 0
        elif state is not None and _goes_on(call, state):
            position = state.end
        else:
            position = 0
            self._unplaced = forward, call.key[0], captured.queries
        text, rows, apart = None, None, None
        if state is not None and position:
            moved = state.owner.rows_since(state) if state.owner is not None else None
            rows = own.rows if moved is None and aligned else moved
            if rows is not None and len(rows) != call.rows:
                rows, apart = None, REPLACED
        if aligned and own.text is not None:
            text = own.text
        elif state is not None and position:
            text = state.text
        if state is None or not position or text not in (None, state.text):
            state = self._begun(call, position)
            state.text = text or state.text
        found = FoundKeys(position, 0, rows=None if rows is None else [*rows])
        place = self._at(call, state, found)
        return place._replace(offset=position, first_key=0, apart=apart or place.apart)

    def _look_back(self, forward: int) -> None:
        """Find the last self-attention among the unwatched calls of this forward pass."""
        while self._passed:
            passed_in, capture = self._passed.pop()
            captured = capture() if passed_in == forward else None
            if captured and not captured.crossing and not captured.over_features:
                offset = captured.problem.offset
                offset = offset if isinstance(offset, int) else 0
                position = offset if captured.position is None else captured.position
                self._note(_Last(forward, position, captured.queries))
                self._passed.clear()

    def _note(self, own: _Last) -> None:
        """Record the last self-attention.

        Errors: an `UnseenError` if earlier cross-attention got a wrong position without it.
        """
        self._last = own
        if self._unplaced is None:
            return
        forward, name, queries = self._unplaced
        self._unplaced = None
        if forward == own.forward and queries == own.queries and own.position:
            raise UnseenError(
                "watch needs the self-attention that runs before a cross-attention to find its "
                f"position, but {name!r} ran first, at position {own.position} of its text. "
                "Exclude it with layers=."
            )


def _claimed(call: NewCall, state: TextState | None) -> int:
    """Return the position that the cache of a call gives, else its keys."""
    captured = call.captured
    if captured.position is not None:
        return captured.position
    if captured.sliding and call.before and state is not None and state.batch == captured.batch:
        return state.end
    return call.before


def _goes_on(call: NewCall, state: TextState) -> bool:
    """Return whether two single queries of one forward pass are consecutive steps of a decoder."""
    return (
        call.captured.queries == 1
        and state.last == (call.forward, 1, call.keys)
        and state.batch == call.captured.batch
    )


def given_cache(calls: Iterable[ModuleCall]) -> Any:
    """Return the cache that the innermost module with one was given; None without any."""
    for call in calls:
        for name, given in call.arguments.items():
            called = name in _CACHES or _is_cache(type(given))
            if called and given is not None and _may_own(type(given)):
                return given
    return None


def held_by(cache: Any) -> int | None:
    """Return how many tokens a cache has been given and not lost; None if it does not say."""
    try:
        return int(cache.get_seq_length())
    except Exception:  # noqa: BLE001 - a cache of any library, which may not be able to say
        return None


@lru_cache(maxsize=256)
def _is_cache(kind: type) -> bool:
    return any("cache" in one.__name__.lower() for one in kind.__mro__)


@lru_cache(maxsize=256)
def _may_own(kind: type) -> bool:
    """Return whether objects of a class have an identity: each step makes another tuple of keys.

    A tensor may be a cache of one layer, and a module is no text.
    """
    if issubclass(kind, Tensor | nn.Module | tuple | list | dict | set | str | int | float):
        return False
    return "__weakref__" in dir(kind)
