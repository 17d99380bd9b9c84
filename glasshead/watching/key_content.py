"""The content of keys: compared call by call, to follow them as a text grows."""

from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from glasshead.recipe.biases import bias_values
from glasshead.recipe.masks import dense
from glasshead.recipe.problem import Problem

# Numbers of each key that are compared: two keys that share them are taken for the same.
_COMPARED = 4
_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# An odd number by which hashes spread, 2^64 / golden ratio as a signed number.
_SPREAD = 0x9E3779B97F4A7C15 - 2**64


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


def overlap(old: Tensor, new: Tensor, shift: int) -> tuple[Tensor, Tensor]:
    """Return the keys that both have, where the new ones begin `shift` keys later."""
    start = max(shift, 0)
    stop = max(start, min(old.shape[-2], shift + new.shape[-2]))
    return old[..., start:stop, :], new[..., start - shift : stop - shift, :]


class SameRows(NamedTuple):
    """The rows of the last call that those of a call continue; None: the same."""

    rows: list[int] | None


def same_rows(old: Tensor, new: Tensor, shift: int, moved: list[int] | None) -> SameRows | None:
    """Compare keys with those of the last call, where they begin `shift` keys later.

    Returns: None where they differ in all rows.
    """
    old, new = overlap(old, new, shift)
    if not old.shape[-2]:
        return None
    if old.shape == new.shape and torch.equal(old, new):
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


def _hashes(words: Int[Tensor, "*leading words"]) -> Int[Tensor, " *leading"]:
    """Return a number for each row of words, which other rows hardly have."""
    factors = torch.arange(1, words.shape[-1] + 1, device=words.device) * _SPREAD
    return ((words.long() + 1) * (factors ^ (factors >> 29))).sum(-1)
