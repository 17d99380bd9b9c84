"""Heads: every head of every layer over a text: as small maps, and one of them whole."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

import glasshead as gh
from glasshead.drawing import visible
from glasshead.statistics.reductions import membership
from glasshead.studio.views.reading import ModelPass, is_read, read
from glasshead.studio.work import Refusal, Work
from glasshead.watching.analytics.role_scores import THRESHOLDS
from glasshead.watching.analytics.roles import masses_of_layers, roles_of

if TYPE_CHECKING:
    from glasshead.studio.studio import Studio

# What is known of each head while the model reads; the order is that of `along`.
STATISTICS = (gh.Entropy(), gh.MeanDistance(), gh.Received())
# Rows and columns of a small map, at most.
SIDE = 32
# Bytes that whole maps may take in the file of a report.
_IN_A_FILE = 2**24
# Roles, those that tell most of a model first.
_TELLING = ("induction", "duplicate", "previous", "local", "first", "broad")


def reading_of(studio: "Studio", text: str, work: Work) -> ModelPass:
    """The text as the model has read it, cut to what the view shows.

    Errors: as of `read`.
    """
    return read(studio, text, work, studio.limits.heads, STATISTICS)


def is_there(studio: "Studio", text: str) -> bool:
    """Whether the model has read the text already."""
    return is_read(studio, text, studio.limits.heads, STATISTICS)


def summary(reading: ModelPass, work: Work | None = None) -> dict[str, Any]:
    """What the view shows first: tokens, layers, and what is said of each head.

    A head without a role has None. `scores` are those of `head_roles`, None where no query counts.
    `running` are the tokens as they stand in the text. `first` is the layer and the head that is
    opened first.

    Errors: a `Refusal` where the weights are no numbers; `Cancelled` where nobody waits.
    """
    return reading.once("heads.summary", lambda: _summary(reading, work or Work()))


def _summary(reading: ModelPass, work: Work) -> dict[str, Any]:
    entropy = [reading.call(layer).entropy for layer in range(len(reading.layers))]
    if not all(one.isfinite().all() for one in entropy):
        raise Refusal("the scores grow beyond all numbers: train the model again, or name another.")
    found = _roles(reading, work)
    tokens = [visible(word) for word in reading.words]
    told = {
        "tokens": tokens,
        "running": _running(tokens),
        "of": reading.of,
        "layers": list(reading.layers),
        "heads": list(reading.heads),
        "roles": [
            list(roles[:count]) for roles, count in zip(found.roles, reading.heads, strict=True)
        ],
        "scores": {
            role: [
                [_number(score) for score in row[:count]]
                for row, count in zip(scores.tolist(), reading.heads, strict=True)
            ]
            for role, scores in found.scores.items()
        },
        "thresholds": dict(found.thresholds),
        "entropy": [one.flatten(0, -2).double().mean(-1).tolist() for one in entropy],
        "side": min(SIDE, reading.length),
        "whole": None,
    }
    return told | {"first": _first(told)}


def _running(tokens: Sequence[str]) -> list[str]:
    """Tokens with their spaces; of tokenizers that leave those out, words are set apart."""
    if any(re.search(r"^␣|␣$", token) for token in tokens):
        return [re.sub(r"^␣+|␣+$", lambda ends: " " * len(ends[0]), token) for token in tokens]
    return [token if token.startswith("##") else f" {token}" for token in tokens]


def _first(told: dict[str, Any]) -> list[int]:
    """The clearest head of the most telling role; where none has one, that of least entropy."""
    for role in _TELLING:
        scores = told["scores"].get(role, [])
        named = [place for place in _everyone(told["heads"]) if _of(told["roles"], place) == role]
        if named:
            return list(max(named, key=lambda place: _of(scores, place) or 0.0))
    return list(min(_everyone(told["heads"]), key=lambda place: _of(told["entropy"], place)))


def _roles(reading: ModelPass, work: Work) -> gh.HeadRoles:
    """As `head_roles` has them, layer by layer."""
    masses = {}
    for done, name in enumerate(reading.layers):
        work.tell("heads.naming", done, len(reading.layers))
        layer = gh.Seen({name: reading.seen[name]})
        masses |= masses_of_layers(layer, reading.tokens[None])
    return roles_of(masses, THRESHOLDS)


def small_maps(reading: ModelPass) -> Float[Tensor, "all_heads side wider"]:
    """The map of each head of each layer in blocks, as `PooledMap` has them.

    One more column is the mean weight of the first token alone, so that the map without it is the
    map less this column.
    """
    return reading.once("heads.maps", lambda: _small_maps(reading))


def _small_maps(reading: ModelPass) -> Float[Tensor, "all_heads side wider"]:
    side = min(SIDE, reading.length)
    maps = []
    for layer in range(len(reading.layers)):
        weights = reading.weights(layer)
        first = weights.tile(range(reading.length), range(1))
        blocks = membership(reading.length, side, first)
        first = (blocks / blocks.sum(-1, keepdim=True)) @ first
        both = torch.cat([weights.pooled(side, side), first], -1)
        maps.append(both.flatten(0, -3).float())
    return torch.cat(maps)


def whole_map(reading: ModelPass, layer: int, head: int) -> Float[Tensor, "length length"]:
    """The weights of one head, exact.

    Errors: a `Refusal` where there is no such layer or head.
    """
    return reading.head(layer, head).dense()


def along(reading: ModelPass, layer: int, head: int) -> Float[Tensor, "3 length"]:
    """Entropy and mean distance of each query of one head, and the mass that each key receives.

    In nats, in tokens, and in weights, of which each query gives 1.

    Errors: a `Refusal` where there is no such layer or head.
    """
    names = ("entropy", "mean_distance", "received")
    return torch.stack([reading.statistic(layer, head, name).float() for name in names])


def stored_heads(
    studio: "Studio", text: str, work: Work, most: int = _IN_A_FILE
) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """All that the view asks for, as path, parameters and answer: what a report holds.

    Args:
        studio: Whose model reads.
        text: The name of a text that was sent.
        work: Is told how far it is.
        most: Bytes that whole maps may take together; where they do not suffice, the head that
            is opened first comes first, then those with the highest scores of each role, then
            those of the lowest entropy.

    Errors: as of `read`.
    """
    reading = reading_of(studio, text, work)
    told = dict(summary(reading, work))
    chosen = chosen_heads(reading, most)
    if len(chosen) < sum(reading.heads):
        told["whole"] = [list(one) for one in chosen]
    yield "heads/reading", {"text": text}, told
    yield "heads/maps", {"text": text}, small_maps(reading)
    for done, (layer, head) in enumerate(chosen):
        work.tell("heads.storing", done, len(chosen))
        asked = {"text": text, "layer": layer, "head": head}
        yield "heads/weights", asked, whole_map(reading, layer, head)
        yield "heads/along", asked, along(reading, layer, head)


def chosen_heads(reading: ModelPass, most: int = _IN_A_FILE) -> list[tuple[int, int]]:
    """As many heads as there is room for, one at least, in the order of layers."""
    each = 4 * reading.length**2
    told = summary(reading)
    everyone = _everyone(reading.heads)
    best = [
        max(everyone, key=lambda place: _of(scores, place) or 0.0)
        for scores in told["scores"].values()
    ]
    by_entropy = sorted(everyone, key=lambda place: _of(told["entropy"], place))
    ranked = list(dict.fromkeys([tuple(told["first"]), *best, *by_entropy]))
    return sorted(ranked[: max(1, most // each)])


def _everyone(heads: Sequence[int]) -> list[tuple[int, int]]:
    """All heads by layer and head; `heads` says how many each layer has."""
    return [(layer, head) for layer, count in enumerate(heads) for head in range(count)]


def _of(values: list[list[Any]], place: tuple[int, int]) -> Any:
    layer, head = place
    return values[layer][head]


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
