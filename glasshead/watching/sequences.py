"""Sequences: which text a call belongs to, its position there, and the rows that it continues.

A call continues a text because its module, or one around it, was given the same cache, or because
its keys are those of the last call, compared by content. Positions alone never join two calls.
"""

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum, auto
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from glasshead.recipe.biases import bias_values
from glasshead.recipe.masks import dense
from glasshead.recipe.problem import Problem
from glasshead.watching.captured_call import CapturedCall
from glasshead.watching.errors import UnseenError
from glasshead.watching.module_calls import ModuleCall

# A decoder layer has self-attention, then cross-attention to one other text, or two.
_PASSED = 3
# Texts without a cache that may go on: two in turn, as for guidance, and another.
_RECENT = 3
# Numbers of each key that are compared: two keys that share them are taken for the same.
_COMPARED = 4
_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# An odd number by which hashes spread, 2^64 / golden ratio as a signed number.
_SPREAD = 0x9E3779B97F4A7C15 - 2**64
# Arguments by which modules are given a cache, whatever its class is called.
_ARGUMENTS = {"cache", "cache_params", "kv_cache", "layer_past", "past"} | {
    f"past_key_value{plural}" for plural in ("", "s")
}

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


class _State:
    """A text as one attention has read it so far.

    Attributes:
        text: The text.
        start, end: Position of its first query, and after its last.
        first: Position of the first key of the last call.
        places: Positions of all of its keys, where some in between were removed.
        content: Numbers of each of its keys; None: unknown.
        batch, rows: Axes before heads and queries, and their product.
        moves, crops: How many changes of its cache have been followed.
        ids: The last `position_ids` that its module was given.
        last: The forward pass, queries and keys of the last call.
    """

    __slots__ = (
        "batch",
        "content",
        "crops",
        "end",
        "first",
        "ids",
        "last",
        "moves",
        "owner",
        "places",
        "rows",
        "start",
        "text",
    )

    def __init__(self, text: tuple[int, ...], start: int, owner: "_Owner | None") -> None:
        self.text, self.start, self.end, self.owner = text, start, start, owner
        self.first = self.moves = self.crops = self.rows = 0
        self.places: Tensor | None = None
        self.content: Tensor | None = None
        self.batch: tuple[int, ...] = ()
        self.ids: Tensor | None = None
        self.last: tuple[int, int, int] = (-1, 0, 0)

    @property
    def orphaned(self) -> bool:
        """Whether no cache holds the text, so that another one may take it over."""
        return self.owner is None or self.owner.cache() is None


class _Owner:
    """A cache, and the texts of its attentions.

    Attributes:
        cache: A weak reference to it.
        states: Its text in each attention.
        moves: The changes of its rows: each a list of rows, or how often each is repeated.
        crops: How often its last tokens were removed.
    """

    def __init__(self, cache: "weakref.ref[Any]") -> None:
        self.cache = cache
        self.states: dict[_Key, _State] = {}
        self.moves: list[list[int] | int | None] = []
        self.crops = 0
        self.numbers: tuple[int, int] | None = None

    def rows_since(self, state: _State) -> list[int] | None:
        """Return the rows of the last call that the rows continue; None where none moved."""
        moves, state.moves = self.moves[state.moves :], len(self.moves)
        if not moves:
            return None
        rows: list[int] = [*range(state.rows)]
        for move in moves:
            if isinstance(move, int):
                rows = [row for row in rows for _ in range(move)]
            elif move is None or not all(-len(rows) <= row < len(rows) for row in move):
                return []
            else:
                rows = [rows[row] for row in move]
        return rows


class _Last(NamedTuple):
    """The last self-attention: its forward pass, position, queries, text and rows."""

    forward: int = -1
    position: int = 0
    queries: int = 0
    text: tuple[int, ...] | None = None
    rows: tuple[int, ...] | None = None


class _Found(NamedTuple):
    """The keys of a call among those of the last one: position, first key, places and rows."""

    position: int
    first: int
    places: Tensor | None = None
    rows: list[int] | None = None


_Key = tuple[str, int]


class SequenceLedger:
    """The texts that a model reads, and the place of each of its calls in them.

    The position of a call follows from its cache, else from its keys. There are two exceptions. A
    sliding cache holds the last keys only: the cache gives their position, or, where it is
    inaccessible, the number of tokens fed so far. Cross-attention has the position of the
    self-attention before it in the same forward pass, watched or not.
    """

    def __init__(self) -> None:
        self._owners: dict[int, _Owner] = {}
        self._recent: dict[_Key, deque[_State]] = {}
        self._numbers = 0
        self._of_pass: tuple[object, int] | None = None
        self._last = _Last()
        self._passed: deque[tuple[int, Callable[[], CapturedCall]]] = deque(maxlen=_PASSED)
        self._unplaced: tuple[int, str, int] | None = None

    def place(
        self,
        name: str,
        run: int,
        captured: CapturedCall,
        calls: Sequence[ModuleCall],
        forward: int,
    ) -> CallPosition:
        """Return the place of a call in its text.

        Args:
            name: Name of its module.
            run: The run of the module in the forward pass.
            captured: The captured call.
            calls: The module calls in progress, innermost first.
            forward: Number of the forward pass.

        Errors: an `UnseenError` where cross-attention ran before its position was known.
        """
        if captured.over_features or not isinstance(captured.problem.offset, int):
            # Rows of a batch at different positions have none in common.
            return CallPosition(0, text=(self._new(),))
        owner = self._owner(calls)
        if captured.crossing:
            return self._of_crossing(name, captured, owner, forward)
        place = self._of_self(_Call((name, run), captured, owner, calls, forward))
        last = _Last(forward, place.position, captured.queries, place.text, place.rows)
        self._passed.clear()
        self._note(last)
        return place

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

    def _known(self, cache: Any) -> _Owner | None:
        owner = self._owners.get(id(cache))
        return owner if owner is not None and owner.cache() is cache else None

    def _owner(self, calls: Sequence[ModuleCall]) -> _Owner | None:
        """Return the cache that the innermost module with one was given; None without any."""
        cache = _cache_of(calls)
        if cache is None:
            return None
        owner = self._known(cache)
        if owner is None:
            known, place = self._owners, id(cache)

            def forget(gone: "weakref.ref[Any]") -> None:
                # Another cache may have the number by now.
                if place in known and known[place].cache is gone:
                    del known[place]

            owner = known[place] = _Owner(weakref.ref(cache, forget))
        return owner

    def _new(self, shared: object = None, forward: int = -1) -> int:
        """Return the number of a new text, the same for all layers of a pass with one cache."""
        if shared is None or self._of_pass is None or self._of_pass != (shared, forward):
            self._numbers += 1
            self._of_pass = None if shared is None else (shared, forward)
        return self._numbers

    def _begun(self, call: "_Call", position: int, after: tuple[int, ...] = ()) -> _State:
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
        state = _State((*after, number), position, call.owner)
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

    def _of_self(self, call: "_Call") -> CallPosition:
        state = None if call.owner is None else call.owner.states.get(call.key)
        before = call.before
        position = _claimed(call, state or self._newest(call))
        if not before and not (position and state is not None and position == state.end):
            return self._at(call, self._begun(call, position), _Found(position, position))
        if state is None:
            return self._of_known_content(call, position)
        moved = call.owner.rows_since(state) if call.owner is not None else None
        cropped, state.crops = call.crops != state.crops, call.crops
        if position <= state.start:
            # Nothing that was observed remains of the text.
            return self._at(call, self._begun(call, position), _Found(position, position - before))
        known = None if moved is None else moved if len(moved) == call.rows else []
        found = _aligned(state, call, position, known, cropped=cropped)
        counted = state.places is None and (cropped or position >= state.end)
        if found is None and counted and _near(state, call, position, known):
            found = _Found(position, position - before, rows=known)
        if found is not None:
            return self._at(call, state, found)
        if position >= state.end:
            place = self._at(call, self._begun(call, position), _Found(position, position - before))
            return place._replace(apart=REPLACED)
        place = self._at(call, state, _Found(state.end, state.end - before, rows=known))
        state.content = state.places = None
        return place._replace(unplaced=UNPLACED)

    def _newest(self, call: "_Call") -> _State | None:
        """Return the last text of an attention that no cache holds."""
        recent = [one for one in self._recent.get(call.key, ()) if one.orphaned]
        return recent[-1] if recent and call.owner is None else None

    def _of_known_content(self, call: "_Call", position: int) -> CallPosition:
        """Place a call without a known cache by the content of its keys."""
        recent = [*self._recent.get(call.key, ())]
        for state in reversed(recent):
            within = state.start < position <= state.end
            found = _aligned(state, call, position, None, cropped=True) if within else None
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
        memory = None if follows or call.owner is not None else _memory_of(call)
        if memory is _Memory.AFTER:
            place = self._at(call, self._begun(call, 0), _Found(0, 0))
            return place._replace(offset=0)
        state = self._begun(call, position)
        place = self._at(call, state, _Found(position, position - call.before))
        if memory is _Memory.SOMEWHERE:
            place = place._replace(far=UNALIGNED)
        return place._replace(apart=UNKNOWN) if follows else place

    def _at(self, call: "_Call", state: _State, found: _Found) -> CallPosition:
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

    def _of_crossing(
        self, name: str, captured: CapturedCall, owner: _Owner | None, forward: int
    ) -> CallPosition:
        self._look_back(forward)
        own, key = self._last, (name, -1)
        call = _Call(key, captured, owner, (), forward)
        recent = self._recent.get(key, ())
        state = owner.states.get(key) if owner is not None else None
        if state is None and recent and (recent[-1].orphaned or owner is None):
            state = recent[-1]
        aligned = own.forward == forward and own.queries == captured.queries
        if own.forward == forward:
            position = own.position if aligned else 0
        elif state is not None and _goes_on(call, state):
            position = state.end
        else:
            position = 0
            self._unplaced = forward, name, captured.queries
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
        found = _Found(position, 0, rows=None if rows is None else [*rows])
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

        Errors: an `UnseenError` where earlier cross-attention got a wrong position without it.
        """
        self._last = own
        if self._unplaced is None:
            return
        forward, name, queries = self._unplaced
        self._unplaced = None
        if forward == own.forward and queries == own.queries and own.position:
            raise UnseenError(
                f"watch places cross-attention by the self-attention before it, and {name!r} ran "
                f"first, at position {own.position} of its text: leave it out by layers=."
            )


class _Call:
    """A call that is to be placed.

    Attributes:
        key: Its attention: the name, and the run in the forward pass.
        captured: The captured call.
        owner: The cache that it was given.
        forward: Number of the forward pass.
        before: Number of keys before its first query.
        keys: Number of keys.
        rows: Number of rows.
        crops: How often its cache was cropped.
        content: Numbers of each of its keys.
        ids: The `position_ids` that its module was given.
    """

    __slots__ = (
        "before", "captured", "content", "crops", "forward", "ids", "key", "keys", "owner", "rows"
    )  # fmt: skip

    def __init__(
        self,
        key: _Key,
        captured: CapturedCall,
        owner: _Owner | None,
        calls: Sequence[ModuleCall],
        forward: int,
    ) -> None:
        offset, problem = captured.problem.offset, captured.problem
        self.key, self.captured, self.owner, self.forward = key, captured, owner, forward
        self.before = offset if isinstance(offset, int) else 0
        self.keys, self.rows = problem.scores_shape[-1], torch.Size(captured.batch).numel()
        self.crops = 0 if owner is None else owner.crops
        whole = captured.crossing or self.before + captured.queries == self.keys
        self.content = content_of(problem) if whole else None
        given = (call.arguments.get("position_ids") for call in calls)
        self.ids = next((one for one in given if isinstance(one, Tensor)), None)


class _Memory(Enum):
    """Where keys that are no tokens of a text stand, such as learned ones."""

    BEFORE = auto()
    AFTER = auto()
    SOMEWHERE = auto()


def _memory_of(call: _Call) -> _Memory | None:
    """Return where the keys of a memory stand; None where a call has none.

    They are the same for all rows of a batch, and tokens are not.
    """
    problem, count = call.captured.problem, call.before
    if call.captured.queries < 2 or call.captured.shards or call.captured.position is not None:
        return None
    if problem.mask is not None and problem.mask.visible(problem.tile()).shape[-2] > 1:
        # A mask of queries shows where these stand.
        return None
    if call.content is None or call.rows < 2:
        return _Memory.SOMEWHERE
    alike = (call.content == call.content[:1]).all(-1).all(1).all(0)
    before, after = bool(alike[:count].all()), bool(alike[-count:].all())
    if before == after:
        return _Memory.SOMEWHERE
    return _Memory.BEFORE if before else _Memory.AFTER


def content_of(problem: Problem) -> Int[Tensor, "rows kv_heads keys words"] | None:
    """Copy a few numbers of each key, as words; None where they are not known.

    Of attention by hand the scores are known, and of its keys the values.
    """
    key = problem.key if problem.key.shape[-1] > 1 else problem.value
    if key is problem.key and key.shape[-1] == 1:
        return None
    few = key[..., :_COMPARED]
    few = few[None] if few.ndim < 4 else few.flatten(0, -4)
    words = few.clone(memory_format=torch.contiguous_format)
    return words.view(_WORDS[words.itemsize])


def keys_at(problem: Problem, places: Int[Tensor, "rows kv_heads keys"], position: int) -> Problem:
    """Number the keys of a problem as in the text; those that were removed are hidden.

    Args:
        problem: The problem.
        places: The position of each key.
        position: Position of the first query.
    """
    *batch, heads, queries, keys = problem.scores_shape
    count = position + queries
    places = places.reshape(*batch, -1, keys).to(problem.key.device)
    of_queries = places.repeat_interleave(problem.group, -2).unsqueeze(-2)
    of_queries = of_queries.expand(*batch, heads, queries, keys)

    def spread(pairs: Tensor) -> Tensor:
        pairs = pairs.expand(*batch, heads, queries, keys)
        return pairs.new_zeros(*batch, heads, queries, count).scatter(-1, of_queries, pairs)

    def of_keys(x: Tensor) -> Tensor:
        index = places.unsqueeze(-1).expand(x.shape)
        return x.new_zeros(*x.shape[:-2], count, x.shape[-1]).scatter(-2, index, x)

    shown = torch.ones((), dtype=torch.bool, device=problem.query.device)
    if problem.mask is not None:
        shown = problem.mask.visible(problem.tile())
    biases = tuple(spread(bias_values(one, problem.tile())) for one in problem.biases)
    return replace(
        problem,
        key=of_keys(problem.key),
        value=of_keys(problem.value),
        mask=dense(spread(shown)),
        biases=biases,
        offset=position,
    )


def _claimed(call: _Call, state: _State | None) -> int:
    """Return the position that the cache of a call gives, else its keys."""
    captured = call.captured
    if captured.position is not None:
        return captured.position
    if captured.sliding and call.before and state is not None and state.batch == captured.batch:
        return state.end
    return call.before


def _aligned(
    state: _State, call: _Call, position: int, moved: list[int] | None, *, cropped: bool
) -> _Found | None:
    """Find the keys before a call among those of the last call of a text, by content.

    Args:
        state: The text.
        call: The call.
        position: The position that its cache or its keys claim.
        moved: The rows that its rows continue, where the cache has shown that they moved.
        cropped: Whether the text may have lost its last tokens.

    Returns: None where they are not found.
    """
    both = _compared(state, call, moved)
    if both is None:
        return None
    (old, new), before = both, call.before
    held = old.shape[-2]
    if state.places is None:
        found = _within(old, new, position - before - state.first, moved)
        if found is not None and not (position < state.end and _goes_on_by_ids(state, call)):
            return _Found(position, position - before, rows=found.rows)
        if found is not None:
            # The last keys were removed, and not the last tokens.
            places = _places(state, found.rows, range(before), call)
            return _Found(state.end, 0, places, found.rows)
    found = _within(old, new, held - before, moved) if before <= held else None
    if found is None:
        return _among(state, call, old, new, moved, cropped=cropped)
    if state.places is None:
        return _Found(state.end, state.first + held - before, rows=found.rows)
    places = _places(state, found.rows, range(held - before, held), call)
    return _Found(state.end, 0, places, found.rows)


def _compared(state: _State, call: _Call, moved: list[int] | None) -> tuple[Tensor, Tensor] | None:
    """Return the keys of the last call and those before a call; None where they do not compare."""
    old, new = state.content, call.content
    if old is None or new is None or not call.before or moved == []:
        return None
    if old.shape[1::2] != new.shape[1::2] or old.dtype != new.dtype or old.device != new.device:
        return None
    old = old if moved is None else old[torch.tensor(moved, device=old.device)]
    return old, new[..., : call.before, :]


def _among(
    state: _State,
    call: _Call,
    old: Tensor,
    new: Tensor,
    moved: list[int] | None,
    *,
    cropped: bool,
) -> _Found | None:
    """Find keys of which some in between were removed."""
    before, held = new.shape[-2], old.shape[-2]
    kept = _subset(old, new) if before < held and len(old) == len(new) else None
    if kept is None:
        return None
    if cropped and bool((kept[..., -1] == before - 1).all()):
        state.end -= held - before
    return _Found(state.end, 0, _places(state, moved, kept, call), moved)


def _near(state: _State, call: _Call, position: int, moved: list[int] | None) -> bool:
    """Return whether the keys of a call may be those of the last one, in numbers of few bits.

    A quantized cache gives its keys back rounded. Keys that cannot be compared may be the same.
    """
    both, shift = _compared(state, call, moved), position - call.before - state.first
    if both is None or len(both[0]) != len(both[1]):
        return True
    kind = call.captured.problem.key.dtype
    was, now = _overlap(*both, shift)
    was, now = was.contiguous().view(kind).float(), now.contiguous().view(kind).float()
    # Keys of another text differ by 1.4 of their size, those of two bits by 0.4.
    return not was.numel() or bool((was - now).abs().mean() <= 0.9 * was.abs().mean())


def _overlap(old: Tensor, new: Tensor, shift: int) -> tuple[Tensor, Tensor]:
    """Return the keys that both have, where the new ones begin `shift` keys later."""
    start = max(shift, 0)
    stop = max(start, min(old.shape[-2], shift + new.shape[-2]))
    return old[..., start:stop, :], new[..., start - shift : stop - shift, :]


class _Rows(NamedTuple):
    """The rows of the last call that those of a call continue; None: the same."""

    rows: list[int] | None


def _within(old: Tensor, new: Tensor, shift: int, moved: list[int] | None) -> _Rows | None:
    """Compare keys with those of the last call, where they begin `shift` keys later.

    Returns: None where they differ in all rows.
    """
    old, new = _overlap(old, new, shift)
    if not old.shape[-2]:
        return None
    if old.shape == new.shape and torch.equal(old, new):
        return _Rows(moved)
    if moved is not None:
        return None
    of_old, of_new = _hashes(old.flatten(1)), _hashes(new.flatten(1))
    same = of_new[:, None] == of_old
    if not bool(same.any()):
        return None
    rows = torch.where(same.any(-1), same.int().argmax(-1), -1).tolist()
    # A row that is the same as another one continues itself.
    stays = [place < len(of_old) and bool(same[place, place]) for place in range(len(rows))]
    return _Rows([place if stays[place] else row for place, row in enumerate(rows)])


def _hashes(words: Int[Tensor, "*leading words"]) -> Int[Tensor, " *leading"]:
    """Return a number for each row of words, which other rows hardly have."""
    factors = torch.arange(1, words.shape[-1] + 1, device=words.device) * _SPREAD
    return ((words.long() + 1) * (factors ^ (factors >> 29))).sum(-1)


def _subset(old: Tensor, new: Tensor) -> Int[Tensor, "rows kv_heads keys"] | None:
    """Return which of the old keys the new ones are, in order; None where that is not known."""
    known, order = _hashes(old).sort(-1)
    of_new = _hashes(new)
    at = torch.searchsorted(known, of_new).clamp(max=known.shape[-1] - 1)
    found = known.gather(-1, at) == of_new
    # A token that comes twice has the same keys in a first layer without positions.
    after = (at + 1).clamp(max=known.shape[-1] - 1)
    twice = (after != at) & (known.gather(-1, after) == of_new)
    kept = order.gather(-1, at)
    rising = (kept.diff(dim=-1) > 0).all()
    return kept if bool(found.all() & ~twice.any() & rising) else None


def _places(
    state: _State, rows: list[int] | None, kept: Tensor | range, call: _Call
) -> Int[Tensor, "rows kv_heads keys"] | None:
    """Return the position of each key of a call, from which old keys they are."""
    content = call.content
    assert content is not None  # noqa: S101 - for the type checker
    *leading, _ = content.shape[:-1]
    if isinstance(kept, range):
        kept = torch.tensor([*kept], device=content.device).expand(*leading, -1)
    if state.places is None:
        places = kept + state.first
    else:
        known = state.places
        if rows is not None:
            known = known[torch.tensor(rows, device=known.device)]
        places = known.gather(-1, kept)
    added = range(state.end, state.end + call.captured.queries)
    own = torch.tensor([*added], device=content.device).expand(*leading, -1)
    return torch.cat([places, own], -1)


def _goes_on_by_ids(state: _State, call: _Call) -> bool:
    """Return whether the module was told that its queries follow those of its last call."""
    if state.ids is None or call.ids is None or not state.ids.numel() or not call.ids.numel():
        return False
    return int(call.ids[..., 0].max()) == int(state.ids[..., -1].max()) + 1


def _goes_on(call: _Call, state: _State) -> bool:
    """Return whether two single queries of one forward pass are consecutive steps of a decoder."""
    return (
        call.captured.queries == 1
        and state.last == (call.forward, 1, call.keys)
        and state.batch == call.captured.batch
    )


def held_by(cache: Any) -> int | None:
    """Return how many tokens a cache has been given and not lost; None where it does not say."""
    try:
        return int(cache.get_seq_length())
    except Exception:  # noqa: BLE001 - a cache of any library, which may not be able to say
        return None


def _cache_of(calls: Sequence[ModuleCall]) -> Any:
    """Return the cache that the innermost module with one was given; None without any."""
    for call in calls:
        for name, given in call.arguments.items():
            called = name in _ARGUMENTS or _is_cache(type(given))
            if called and given is not None and _may_own(type(given)):
                return given
    return None


@lru_cache(maxsize=256)
def _is_cache(kind: type) -> bool:
    return any("cache" in one.__name__.lower() for one in kind.__mro__)


@lru_cache(maxsize=256)
def _may_own(kind: type) -> bool:
    """Return whether objects of a class have an identity: a tuple of keys is made anew each step.

    A tensor may be a cache of one layer, and a module is no text.
    """
    if issubclass(kind, Tensor | torch.nn.Module | tuple | list | dict | set | str | int | float):
        return False
    return "__weakref__" in dir(kind)
