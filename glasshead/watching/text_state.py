"""The state of a text after a call, and the places of the next call's keys among its own.

The content of keys is compared call by call, to follow them as a text grows.
"""

import weakref
from enum import Enum, auto
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from glasshead.recipe.problem import Problem, bias_values
from glasshead.watching.captured_call import AttentionCall
from glasshead.watching.foreign import answer, attribute

# An attention: its name, and the run of its module in a forward pass.
AttentionKey = tuple[str, int]
_CROSSING = -1
# Numbers of each key that are compared: two keys that share them are taken for the same.
_COMPARED = 4
_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# An odd number by which hashes spread, 2^64 / golden ratio as a signed number.
_SPREAD = 0x9E3779B97F4A7C15 - 2**64


class TextState:
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

    def __init__(self, text: tuple[int, ...], start: int, owner: "CacheTexts | None") -> None:
        self.text, self.start, self.end, self.owner = text, start, start, owner
        self.first = self.moves = self.crops = self.rows = 0
        self.places: Tensor | None = None
        self.content: Tensor | None = None
        self.batch: tuple[int, ...] = ()
        self.ids: Tensor | None = None
        self.last: tuple[int, int, int] = (-1, 0, 0)

    @property
    def known(self) -> tuple[Any, ...]:
        """Facts that decide the place of the next call, besides its cache and its keys."""
        place = self.start, self.end, self.first, self.places is None
        return self.text, self.batch, place, self.moves, self.crops

    @property
    def orphaned(self) -> bool:
        """Whether no cache holds the text, so that another one may take it over."""
        return self.owner is None or self.owner.cache() is None


class CacheTexts:
    """A cache, and the texts of its attentions.

    Attributes:
        cache: A weak reference to it.
        states: Its text in each attention.
        moves: The changes of its rows: each a list of rows, or how often each is repeated.
        crops: How often its last tokens were removed.
    """

    def __init__(self, cache: "weakref.ref[Any]") -> None:
        self.cache = cache
        self.states: dict[AttentionKey, TextState] = {}
        self.moves: list[list[int] | int | None] = []
        self.crops = 0
        self.numbers: tuple[int, int] | None = None

    def rows_since(self, state: TextState) -> list[int] | None:
        """Return the rows of the last call that the rows continue; None if none moved."""
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


class NewCall:
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
        content: Numbers of each of its keys, or of the latent keys that they are computed from.
        latent: Whether these are of latent keys.
        ids: The `position_ids` that its module was given.
    """

    __slots__ = (
        "before", "captured", "content", "crops", "forward", "ids", "key", "keys", "latent",
        "owner", "rows",
    )  # fmt: skip

    def __init__(self, call: AttentionCall, owner: CacheTexts | None) -> None:
        captured, problem = call.captured, call.captured.problem
        offset = problem.offset
        # Cross-attention reads one text in all runs of its module.
        self.key = call.name, _CROSSING if captured.crossing else call.run.repeat
        self.captured, self.owner, self.forward = captured, owner, call.run.forward
        self.before = offset if isinstance(offset, int) else 0
        self.keys, self.rows = problem.key.shape[-2], captured.rows
        self.crops = 0 if owner is None else owner.crops
        whole = captured.crossing or self.before + captured.queries == self.keys
        cached = None if owner is None or not whole else _latent_content(call, owner.cache())
        self.latent = cached is not None
        self.content = content_of(problem) if whole and cached is None else cached
        self.ids = None
        for one in call.calls:
            given = one.arguments.get("position_ids")
            if isinstance(given, Tensor):
                self.ids = given
                break


class FoundKeys(NamedTuple):
    """The keys of a call among those of the last one: position, first key, places and rows."""

    position: int
    first: int
    places: Tensor | None = None
    rows: list[int] | None = None


def aligned(
    state: TextState, call: NewCall, position: int, moved: list[int] | None, *, cropped: bool
) -> FoundKeys | None:
    """Find the keys before a call among those of the last call of a text, by content.

    Args:
        state: The text.
        call: The call.
        position: The position that its cache or its keys claim.
        moved: The rows that its rows continue, where the cache has shown that they moved.
        cropped: Whether the text may have lost its last tokens.

    Returns: None if they are not found.
    """
    both = _compared(state, call, moved)
    if both is None:
        return None
    (old, new), before = both, call.before
    held = old.shape[-2]
    if state.places is None:
        found = same_rows(old, new, position - before - state.first, moved)
        if found is not None and not (position < state.end and _goes_on_by_ids(state, call)):
            return FoundKeys(position, position - before, rows=found.rows)
        if found is not None:
            # The last keys were removed, and not the last tokens.
            places = _places(state, found.rows, range(before), call)
            return FoundKeys(state.end, 0, places, found.rows)
    found = same_rows(old, new, held - before, moved) if before <= held else None
    if found is None:
        return _among(state, call, old, new, moved, cropped=cropped)
    if state.places is None:
        return FoundKeys(state.end, state.first + held - before, rows=found.rows)
    places = _places(state, found.rows, range(held - before, held), call)
    return FoundKeys(state.end, 0, places, found.rows)


def nearly_same(state: TextState, call: NewCall, position: int, moved: list[int] | None) -> bool:
    """Return whether the keys of a call may be those of the last one, in numbers of few bits.

    A quantized cache gives its keys back rounded. Keys that cannot be compared may be the same.
    Latent keys are compared as they are cached.
    """
    both, shift = _compared(state, call, moved), position - call.before - state.first
    if both is None or len(both[0]) != len(both[1]):
        return True
    if call.latent:
        return False
    kind = call.captured.problem.key.dtype
    was, now = overlap(*both, shift)
    was, now = was.contiguous().view(kind).float(), now.contiguous().view(kind).float()
    # Keys of another text differ by 1.4 of their size, those of two bits by 0.4.
    return not was.numel() or bool((was - now).abs().mean() <= 0.9 * was.abs().mean())


class Memory(Enum):
    """The places of keys that are not tokens of a text, such as learned ones."""

    BEFORE = auto()
    AFTER = auto()
    SOMEWHERE = auto()


def memory_of(call: NewCall) -> Memory | None:
    """Return where the keys of a memory stand; None if a call shows none.

    They are the same for all rows of a batch, and tokens are not.
    """
    problem, count = call.captured.problem, call.before
    if call.captured.queries < 2 or call.captured.shards or call.captured.position is not None:
        return None
    tile = problem.tile()
    # Of attention by hand the scores are a bias.
    explicit = problem.key.shape[-1] == 1
    pairs = [] if explicit else [bias_values(one, tile) for one in problem.biases]
    if problem.mask is not None:
        pairs.append(problem.mask.visible(tile))
    if any(one.ndim > 1 and one.shape[-2] > 1 for one in pairs):
        # What differs from query to query places these among the keys.
        return None
    if call.content is None or call.rows < 2:
        return Memory.SOMEWHERE
    alike = (call.content == call.content[:1]).all(-1).all(1).all(0)
    before, after = bool(alike[:count].all()), bool(alike[-count:].all())
    if before and after:
        return Memory.SOMEWHERE
    if before or after:
        return Memory.BEFORE if before else Memory.AFTER
    # Keys of earlier tokens, which stand before.
    return None


def _compared(
    state: TextState, call: NewCall, moved: list[int] | None
) -> tuple[Tensor, Tensor] | None:
    """Return the keys of the last call and those before a call; None if they do not compare."""
    old, new = state.content, call.content
    if old is None or new is None or not call.before or moved == []:
        return None
    if old.shape[1::2] != new.shape[1::2] or old.dtype != new.dtype or old.device != new.device:
        return None
    old = old if moved is None else old[torch.tensor(moved, device=old.device)]
    return old, new[..., : call.before, :]


def _among(
    state: TextState,
    call: NewCall,
    old: Tensor,
    new: Tensor,
    moved: list[int] | None,
    *,
    cropped: bool,
) -> FoundKeys | None:
    """Find keys of which some in between were removed."""
    before, held = new.shape[-2], old.shape[-2]
    kept = subset(old, new) if before < held and len(old) == len(new) else None
    if kept is None:
        return None
    if cropped and bool((kept[..., -1] == before - 1).all()):
        state.end -= held - before
    return FoundKeys(state.end, 0, _places(state, moved, kept, call), moved)


def _places(
    state: TextState, rows: list[int] | None, kept: Tensor | range, call: NewCall
) -> Int[Tensor, "rows kv_heads keys"] | None:
    """Return the position of each key of a call, from which old keys they are."""
    content: Tensor = call.content  # type: ignore[assignment] - it was compared
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


def _goes_on_by_ids(state: TextState, call: NewCall) -> bool:
    """Return whether the module was told that its queries follow those of its last call."""
    if state.ids is None or call.ids is None or not state.ids.numel() or not call.ids.numel():
        return False
    return int(call.ids[..., 0].max()) == int(state.ids[..., -1].max()) + 1


def content_of(problem: Problem) -> Int[Tensor, "rows kv_heads keys words"] | None:
    """Copy a few numbers of each key, as words; None if they are not known.

    Of attention by hand the scores are known, and of its keys the values.
    """
    key = problem.key if problem.key.shape[-1] > 1 else problem.value
    if key is problem.key and key.shape[-1] == 1:
        return None
    few = key.narrow(-1, 0, min(_COMPARED, key.shape[-1]))
    if few.ndim != 4:
        few = few[None] if few.ndim < 4 else few.flatten(0, -4)
    words = few.clone(memory_format=torch.contiguous_format)
    return words.view(_WORDS[words.itemsize])


def _latent_content(call: AttentionCall, cache: Any) -> Int[Tensor, "rows 1 keys words"] | None:
    """Copy a few numbers of each latent key in a cache; None if it holds the keys themselves.

    The keys of all heads are computed from one head of latent keys. A module computes them again in
    each step, and their last bits may depend on the number of keys. The cached bits do not change.
    """
    problem, keys = call.captured.problem, call.captured.problem.scores_shape[-1]
    number = None
    for own in call.calls:
        number = attribute(own.module, "layer_idx")
        if number is not None:
            break
    layer = answer(lambda: cache.layers[number])
    # The second holds the rotary part of the keys, which all heads share.
    both = attribute(layer, "keys"), attribute(layer, "values")
    for held in both:
        if not isinstance(held, Tensor) or held.ndim != 4 or held.dtype != problem.key.dtype:
            return None
        if held.shape[:2] != (call.captured.rows, 1) or held.shape[-2] < keys:
            return None
    if both[0].shape[-1] == problem.key.shape[-1]:
        return None
    few = torch.cat([held.detach()[..., :keys, :_COMPARED] for held in both], -1)
    return few.view(_WORDS[few.itemsize])


def overlap(old: Tensor, new: Tensor, shift: int) -> tuple[Tensor, Tensor]:
    """Return the keys that both have, where the new ones begin `shift` keys later."""
    if not shift and old.shape[-2] == new.shape[-2]:
        return old, new
    start = max(shift, 0)
    stop = max(start, min(old.shape[-2], shift + new.shape[-2]))
    return old[..., start:stop, :], new[..., start - shift : stop - shift, :]


class SameRows(NamedTuple):
    """The rows of the last call that those of a call continue; None: the same."""

    rows: list[int] | None


def same_rows(old: Tensor, new: Tensor, shift: int, moved: list[int] | None) -> SameRows | None:
    """Compare keys with those of the last call, where they begin `shift` keys later.

    Returns: None if they differ in all rows.
    """
    old, new = overlap(old, new, shift)
    if not old.shape[-2]:
        return None
    if torch.equal(old, new):
        return SameRows(moved)
    if moved is not None:
        return None
    of_old, of_new = _hashes(old.flatten(1)), _hashes(new.flatten(1))
    same = of_new[:, None] == of_old
    if not bool(same.any()):
        return None
    rows = torch.where(same.any(-1), same.int().argmax(-1), -1).tolist()
    # A row that is the same as another one continues itself.
    stays = [place < len(of_old) and bool(same[place, place]) for place in range(len(rows))]
    return SameRows([place if stays[place] else row for place, row in enumerate(rows)])


def subset(old: Tensor, new: Tensor) -> Int[Tensor, "rows kv_heads keys"] | None:
    """Return which of the old keys the new ones are, in order; None if that is not known."""
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


def _hashes(words: Int[Tensor, "*leading words"]) -> Int[Tensor, " *leading"]:
    """Return a number for each row of words, which other rows hardly have."""
    factors = torch.arange(1, words.shape[-1] + 1, device=words.device) * _SPREAD
    return ((words.long() + 1) * (factors ^ (factors >> 29))).sum(-1)
