"""Masses: how much weight the heads of one attention put on the keys of each role."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glasshead.attention.weights import Weights
from glasshead.engines import reductions_of
from glasshead.recipe.problem import Problem
from glasshead.recipe.tile import Span
from glasshead.statistics import Entropy
from glasshead.watching.analytics.roles.keys import OF_KEYS, ROLES, keys_of_roles

# So many weights are there at once.
_AT_ONCE = 2**22


@dataclass(frozen=True, eq=False)
class Masses:
    """Sums over the queries that count, `[heads, roles]` in float64, which add up over texts.

    Attributes:
        sums: Of their scores.
        even: Of the scores that an even look at all visible keys would have; 0 of broad.
        counts: How many queries these are.
    """

    sums: Float[Tensor, "heads roles"]
    even: Float[Tensor, "heads roles"]
    counts: Float[Tensor, "heads roles"]

    def __add__(self, other: "Masses") -> "Masses":
        return Masses(self.sums + other.sums, self.even + other.even, self.counts + other.counts)

    @property
    def means(self) -> Float[Tensor, "2 heads roles"]:
        """The scores, and those of an even look; NaN where no query counts."""
        return torch.stack([self.sums, self.even]) / self.counts


@torch.no_grad()
def masses_of(
    weights: Weights,
    tokens: Int[Tensor, "batch length"],
    position: int,
    first_key: int,
    near: int,
    real: Bool[Tensor, "batch length"] | None = None,
) -> Masses:
    """The sums of one call of an attention, from blocks of rows of its weights.

    Args:
        weights: The lazy matrix.
        tokens: Of the text, on the device of the weights, with a number for each key.
        position: Of the first query in the text.
        first_key: Which key of the text the first column is.
        near: How far away a key is local.
        real: Which tokens are no padding; None: all.
    """
    first: Tensor | int = 0
    if real is not None:
        first = real.to(torch.uint8).argmax(-1)[:, None, None]
    problem = weights._problem  # noqa: SLF001 - who sees whom is not in the weights
    heads = problem.scores_shape[-3]
    total = torch.zeros(3, heads, len(ROLES), dtype=torch.float64, device=tokens.device)
    spread = _entropy(problem)
    for rows in _blocks(problem):
        sees = _visible(problem, rows)  # [batch, heads or 1, rows, keys]
        columns = _seen(sees)
        belongs = keys_of_roles(
            tokens, _moved(rows, position), _moved(columns, first_key), near, first
        )  # [batch, roles, rows, columns]
        weight = weights.tile(rows, columns).reshape(len(tokens), heads, len(rows), len(columns))
        mass = torch.einsum("bhij,brij->bhri", weight, belongs.to(weight.dtype))
        keys = sees.sum(-1)[:, :, None]  # [batch, heads or 1, 1, rows]
        own = _own(sees[..., columns.start : columns.stop], belongs)
        evenness = spread[:, :, None, rows.start : rows.stop] / keys.log()
        scores = torch.cat([mass, evenness], 2)  # [batch, heads, roles, rows]
        even = torch.cat([own / keys, torch.zeros_like(keys)], 2)
        # Who has a choice: sees a key of the role, and another one.
        counted = torch.cat([(own > 0) & (own < keys), keys > 1], 2)
        if real is not None:
            counted = counted & real[:, None, None, position + rows.start : position + rows.stop]
        for place, values in enumerate((scores, even, torch.ones_like(even))):
            those = values.double().masked_fill(~counted, 0.0)
            total[place] += those.expand(scores.shape).sum((0, 3))
    return Masses(*total.cpu())


def _entropy(problem: Problem) -> Float[Tensor, "batch heads queries"]:
    entropy = Entropy()
    found = entropy.finish(problem, *reductions_of(problem, entropy.reductions(problem)))
    return found.reshape(-1, *found.shape[-2:])


def _blocks(problem: Problem) -> Iterator[range]:
    """All rows, so many at once as there is room for."""
    *others, queries, keys = problem.scores_shape
    # The keys of each role stand beside the weights of each head.
    others[-1] += len(OF_KEYS)
    size = max(1, _AT_ONCE // (torch.Size(others).numel() * keys))
    for start in range(0, queries, size):
        yield range(start, min(start + size, queries))


def _visible(problem: Problem, rows: range) -> Bool[Tensor, "batch heads rows keys"]:
    """Who sees whom; one head stands for all where they are alike."""
    *batch, _, _, keys = problem.scores_shape
    tile = replace(problem.tile(), queries=Span(rows.start, rows.stop))
    _, visible = problem.bias_and_visible(problem.mask, tile)
    if visible is None:
        visible = torch.ones(1, 1, 1, dtype=torch.bool, device=problem.query.device)
    heads = visible.shape[-3]
    visible = visible.expand(*batch, heads, len(rows), keys)
    return visible.reshape(-1, heads, len(rows), keys)


def _seen(sees: Bool[Tensor, "batch heads rows keys"]) -> range:
    """From the first to the last key that any of the rows sees."""
    places = sees.any(2).flatten(0, 1).any(0).nonzero()
    return range(int(places[0]), int(places[-1]) + 1) if len(places) else range(0)


def _own(
    sees: Bool[Tensor, "batch heads rows keys"], belongs: Bool[Tensor, "batch roles rows keys"]
) -> Int[Tensor, "batch heads roles rows"]:
    """How many keys of each role a query sees."""
    return (sees[:, :, None] & belongs[:, None]).sum(-1)


def _moved(places: range, by: int) -> range:
    return range(places.start + by, places.stop + by)
