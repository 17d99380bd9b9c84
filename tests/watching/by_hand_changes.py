"""Attention with changes, computed step by step from queries, keys and values."""

import torch
from torch import Tensor

import glasshead as gh

# Of some heads and some queries each, in attention of three heads or more on seven tokens or more.
HEADS, QUERIES, KEYS = (0, 2), (1, 3, 6), (0, 2)


def pairs(heads: int, queries: int, first: int = 0) -> Tensor:
    """Which heads and queries are changed."""
    chosen = torch.zeros(heads, queries, 1, dtype=torch.bool)
    for head in HEADS:
        for query in QUERIES:
            if first <= query < first + queries:
                chosen[head, query - first] = True
    return chosen


def named(keys: int) -> Tensor:
    found = torch.zeros(keys, dtype=torch.bool)
    found[[key for key in KEYS if key < keys]] = True
    return found


def choose(chosen: Tensor, one: Tensor, other: Tensor) -> Tensor:
    return torch.where(chosen, one, other)


SOME = {"heads": HEADS, "queries": QUERIES}


def explicit(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    visible: Tensor,
    change: str,
    source: Tensor | None = None,
    *,
    beta: float | None = None,
    bias: Tensor | float = 0.0,
    first: int = 0,
) -> tuple[Tensor, Tensor]:
    """Attention `[batch, heads, queries, dim]`, changed for some heads and queries; its weights.

    Args:
        query, key, value: Inputs, of equal heads.
        visible: Which pairs are visible.
        change: What is changed.
        source: The output of the heads on another text.
        beta, bias: Of the scores.
        first: The position of the first query.
    """
    heads, queries, keys = query.shape[-3], query.shape[-2], key.shape[-2]
    chosen = pairs(heads, queries, first)
    if change == "beta":
        query = choose(chosen, query * 2.3, query)
    if change == "beta of heads":
        query = choose(chosen.any(-2, keepdim=True), query * 0.4, query)
    if change == "forbid":
        visible = visible & ~(chosen & named(keys))
    if change == "force":
        visible = visible & (~chosen | named(keys))
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if beta is None else beta) + bias
    empty = ~visible.expand(scores.shape).any(-1, keepdim=True)
    weights = scores.masked_fill(~visible & ~empty, -torch.inf).softmax(-1)
    weights = weights.masked_fill(empty, 0.0)
    context = weights @ value
    if change == "zero":
        context = choose(chosen, torch.zeros_like(context), context)
    if change == "mean":
        mean = source.movedim(-3, 0).flatten(1, -2).mean(1)
        context = choose(chosen, mean[:, None].expand_as(context), context)
    if change == "patch":
        context = choose(chosen, source[..., first : first + queries, :], context)
    return context, weights


MAKE = {
    "nothing": lambda run: [],
    "zero": lambda run: gh.ZeroAblation(**SOME),
    "mean": lambda run: gh.MeanAblation(run, **SOME),
    "patch": lambda run: gh.ActivationPatch(run, **SOME),
    "beta": lambda run: gh.ScaleBeta(2.3, **SOME),
    "beta of heads": lambda run: gh.ScaleBeta(0.4, heads=HEADS),
    "forbid": lambda run: gh.ForbidKeys(KEYS, **SOME),
    "force": lambda run: gh.ForceKeys(KEYS, **SOME),
}
