"""The view `heads`: small maps of every head of every layer, and one head in full."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import torch
from jaxtyping import Float
from torch import Tensor

import glasshead as gh
from glasshead.drawing import visible
from glasshead.message import _
from glasshead.statistics.reductions import membership
from glasshead.studio.background_jobs import Refusal, Work
from glasshead.studio.hidden_blocks import mark_hidden
from glasshead.studio.panel import Panel
from glasshead.studio.parameters import TextName
from glasshead.studio.stored_answers import ReportContent, StoredAnswers, key_of, report_note
from glasshead.studio.studio import Studio
from glasshead.studio.subject import ModelPass
from glasshead.studio.views.reading import is_read, read
from glasshead.watching.analytics.role_scores import THRESHOLDS
from glasshead.watching.analytics.roles import masses_of_layers, roles_of

if TYPE_CHECKING:
    from glasshead.studio.routes import Routes


WORDS = {
    "heads.title": _("Attention heads"),
    "heads.what": _(
        "This page shows which tokens each attention head looks at, and what role it has."
    ),
    "heads.none": _("No model loaded. Start the studio with a model folder."),
    # Text
    "heads.opening": _("Loading the model…"),
    "heads.encoding": _("Cutting the text into tokens…"),
    "heads.reading": _("The model is reading…"),
    "heads.naming": _("Finding the roles of the heads…"),
    "heads.storing": _("Storing the maps…"),
    "heads.pass": _("{stage} {done} of {of}"),
    "heads.said": _("Tokens: {tokens}. Layers: {layers}. Heads: {heads}."),
    "heads.cut": _("The text is cut: the model read {tokens} of its {of} tokens."),
    # Controls
    "heads.sink": _("Include the first token"),
    # Grid
    "heads.grid": _("All heads, one row per layer"),
    "heads.layer": _("layer"),
    "heads.head": _("head"),
    "heads.one": _("Layer {layer}, head {head}: {role}, mean entropy {entropy} nats"),
    "heads.absent": _("This file does not contain the full map of this head."),
    "heads.under": _(
        "The line below a map shows the head's role and the mean entropy of its queries in nats."
    ),
    "heads.maps_told": _(
        "In each map, rows are queries and columns are keys. The darkest color is the largest "
        "weight of the map."
    ),
    "heads.keyboard": _("The arrow keys move from map to map, and Enter opens one."),
    # Roles
    "heads.roles": _("Roles"),
    "heads.roles_told": _(
        "A head has a role if the mean weight that it gives to the keys of that role "
        "is at least halfway from the weight that uniform attention would give them to 1; broad "
        "needs an entropy of at least 0.9 of its maximum. If several roles fit, the head gets the "
        "first of broad, induction, duplicate, previous, first, local. The table shows the scores "
        "of the open head, and how many of all heads have each role."
    ),
    "heads.role": _("Role"),
    "heads.score": _("Score"),
    "heads.having": _("Heads"),
    "heads.role.none": _("no role"),
    "heads.role.previous": _("previous"),
    "heads.role.first": _("first"),
    "heads.role.induction": _("induction"),
    "heads.role.duplicate": _("duplicate"),
    "heads.role.local": _("local"),
    "heads.role.broad": _("broad"),
    "heads.means.previous": _("looks at the token before the query"),
    "heads.means.first": _("looks at the first token, the sink for unused attention"),
    "heads.means.induction": _(
        "looks at the token that followed another occurrence of the query’s token"
    ),
    "heads.means.duplicate": _("looks at another occurrence of the query’s token"),
    "heads.means.local": _("looks at tokens at most four positions away"),
    "heads.means.broad": _("looks at all tokens alike: its entropy is close to the maximum"),
    # One head
    "heads.open": _("Open head"),
    "heads.named": _("Layer {layer}, head {head}"),
    "heads.map": _(
        "Map of the head, one row per query, one column per key: arrow keys, Home, End, Page up "
        "and Page down move the cross-hair"
    ),
    "heads.pooled": _("Each pixel shows the largest of the weights in it."),
    "heads.readout": _("Under the cross-hair"),
    "heads.query": _("Query"),
    "heads.key": _("Key"),
    "heads.weight": _("Weight"),
    "heads.rank": _("Rank among the query's keys"),
    "heads.of": _("{rank} of {count}"),
    "heads.entropy": _("Entropy"),
    "heads.distance": _("Mean distance"),
    "heads.received": _("Attention that the key receives"),
    "heads.nats": _("in nats"),
    "heads.tokens": _("in tokens"),
    "heads.arcs": _("The text with the arcs of the heads"),
    "heads.arcs_told": _(
        "Solid arcs lead to the tokens that this token looks at. Dashed arcs come from the "
        "tokens that look at it. A faint arc leads from another token to the one it looks at most, "
        "if that weight is 0.3 or more."
    ),
    "heads.pin": _("Keep arcs"),
    "heads.unpin": _("Clear arcs"),
    "heads.some": _("Selected heads; move between them with the arrow keys"),
    "heads.none_such": _("No head has this role here."),
    "heads.sort": _("Order"),
    "heads.sort.place": _("by layer"),
    "heads.sort.entropy": _("lowest entropy first"),
    "heads.sort.score": _("by score: {role}"),
    "heads.text": _("Text, shaded by the query's weights"),
    "heads.text_told": _(
        "Each token is shaded by its weight for the framed one, the query. Click a token to make "
        "it the query; the key is underlined."
    ),
}


# Statistics computed while the model reads, in the order of `along`.
STATISTICS = (gh.Entropy(), gh.MeanDistance(), gh.Received())
# Maximum rows and columns of a small map.
SIDE = 32
_SHORT = 256
# Bytes of all full-size maps in a report before compression: 13 of 256 tokens.
_MAPS_BYTES = 3_500_000
# Roles, the most informative first.
_ROLES = ("induction", "duplicate", "previous", "local", "first", "broad")


def reading_of(studio: Studio, text: str, work: Work, model: int = 0) -> ModelPass:
    """Run a model over a text, truncated to the view's limit.

    Errors: as of `read`.
    """
    return read(studio, text, work, studio.limits.heads, STATISTICS, model)


def is_there(studio: Studio, text: str, model: int = 0) -> bool:
    """Return whether the cache holds the reading of a text."""
    return is_read(studio, text, studio.limits.heads, STATISTICS, model)


def summary(reading: ModelPass, work: Work | None = None) -> dict[str, Any]:
    """Summarize a reading: tokens, layers, and roles, scores and mean entropy of each head.

    The role of a head without one is None. `scores` are those of `head_roles`, None if no query
    counts. `running` are the tokens as running text. `first` is the layer and the head to open
    first.

    Errors: a `Refusal` if weights are not finite; `Cancelled` if the work was cancelled.
    """
    own = work or Work()
    return reading.once("heads.summary", lambda: _summary(reading, own), own)


def _summary(reading: ModelPass, work: Work) -> dict[str, Any]:
    entropies = [reading.call(layer).entropy for layer in range(len(reading.layers))]
    if not all(entropy.isfinite().all() for entropy in entropies):
        raise Refusal(
            "the scores overflow to infinity. Use another model, or train this one again."
        )
    found = _roles(reading, work)
    tokens = [visible(word) for word in reading.words]
    summary = {
        "tokens": tokens,
        "running": running(tokens),
        "of": reading.of,
        "layers": list(reading.layers),
        "heads": list(reading.heads),
        "roles": [
            list(roles[:count]) for roles, count in zip(found.roles, reading.heads, strict=True)
        ],
        "scores": {
            role: [
                [number(score) for score in row[:count]]
                for row, count in zip(scores.tolist(), reading.heads, strict=True)
            ]
            for role, scores in found.scores.items()
        },
        "thresholds": dict(found.thresholds),
        "entropy": [each.flatten(0, -2).double().mean(-1).tolist() for each in entropies],
        "side": min(SIDE, reading.length),
        "whole": None,
    }
    return summary | {"first": _first(summary)}


def running(tokens: Sequence[str]) -> list[str]:
    """Return tokens with their spaces, inserted where the tokenizer's tokens have none."""
    if any(re.search(r"^␣|␣$", token) for token in tokens):
        return [re.sub(r"^␣+|␣+$", lambda ends: " " * len(ends[0]), token) for token in tokens]
    return [token if token.startswith("##") else f" {token}" for token in tokens]


def _first(summary: dict[str, Any]) -> list[int]:
    """Choose the highest score of the most informative role, or else the lowest entropy."""
    every_head = _every_head(summary["heads"])
    for role in _ROLES:
        scores = summary["scores"].get(role, [])
        heads = [head for head in every_head if _at(summary["roles"], head) == role]
        if heads:
            return list(max(heads, key=lambda head: _at(scores, head) or 0.0))
    return list(min(every_head, key=lambda head: _at(summary["entropy"], head)))


def _roles(reading: ModelPass, work: Work) -> gh.HeadRoles:
    """Compute the roles as `head_roles` does, reporting progress by layer."""
    masses = {}
    for done, name in enumerate(reading.layers):
        work.report("heads.naming", done, len(reading.layers))
        layer = gh.Seen({name: reading.seen[name]})
        masses |= masses_of_layers(layer, reading.tokens[None])
    return roles_of(masses, THRESHOLDS)


def small_maps(reading: ModelPass) -> Float[Tensor, "all_heads side wider"]:
    """Return the pooled map of each head of each layer, as `PooledMap` computes it.

    A last column has the mean weight of the first token alone, which the page subtracts to show
    the map without it.
    """
    return reading.once("heads.maps", lambda: _small_maps(reading))


def _small_maps(reading: ModelPass) -> Float[Tensor, "all_heads side wider"]:
    side = min(SIDE, reading.length)
    maps = []
    for layer in range(len(reading.layers)):
        weights = reading.weights(layer)
        every = range(reading.length)
        # A short text has few weights, which take less time at once than in tiles.
        whole = weights.dense() if reading.length <= _SHORT else None
        first = weights.tile(every, range(1)) if whole is None else whole[..., :1]
        blocks = membership(reading.length, side, first)
        means = blocks / blocks.sum(-1, keepdim=True)
        pooled = weights.pooled(side, side) if whole is None else means @ whole @ blocks.mT
        first = means @ first
        # A mask is shared by the heads of a layer.
        hidden = mark_hidden(
            torch.zeros(reading.length, reading.length), reading.head(layer, 0), every, every
        )
        within = (blocks[..., :side, :] > 0).reshape(-1, reading.length)[:side].float()
        some = within @ (~hidden.signbit()).float().to(within) @ within.T
        pooled = pooled.masked_fill((some == 0) & (pooled == 0), -0.0)
        maps.append(torch.cat([pooled, first], -1).flatten(0, -3).float())
    return torch.cat(maps)


def whole_map(reading: ModelPass, layer: int, head: int) -> Float[Tensor, "length length"]:
    """Return the exact weights of one head; a pair that is hidden has −0.

    Errors: a `Refusal` if there is no such layer or head.
    """
    weights, every = reading.head(layer, head), range(reading.length)
    return mark_hidden(weights.dense(), weights, every, every)


def along(reading: ModelPass, layer: int, head: int) -> Float[Tensor, "3 length"]:
    """Return the entropy and mean distance of each query of a head, and the mass of each key.

    Entropy is in nats, distance in tokens; the mass that keys receive sums to 1 per query.

    Errors: a `Refusal` if there is no such layer or head.
    """
    names = ("entropy", "mean_distance", "received")
    return torch.stack([reading.statistic(layer, head, name).float() for name in names])


def stored_heads(
    studio: Studio, text: str, work: Work, most: int = _MAPS_BYTES
) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Generate the answers of the view for a report, as (path, parameters, answer).

    Args:
        studio: The studio that holds the model.
        text: The name of a text that was sent.
        work: Receives progress.
        most: Maximum bytes of all full-size maps. Where they do not suffice, the head that is
            opened first has priority, then the highest score of each role, then the lowest
            entropy.

    Errors: as of `read`.
    """
    reading = reading_of(studio, text, work)
    opened = dict(summary(reading, work))
    chosen = chosen_heads(reading, most)
    if len(chosen) < sum(reading.heads):
        opened["whole"] = [list(head) for head in chosen]
    yield "heads/reading", {"text": text}, opened
    yield "heads/maps", {"text": text}, small_maps(reading)
    for done, (layer, head) in enumerate(chosen):
        work.report("heads.storing", done, len(chosen))
        parameters = {"text": text, "layer": layer, "head": head}
        yield "heads/weights", parameters, whole_map(reading, layer, head)
        yield "heads/along", parameters, along(reading, layer, head)


def chosen_heads(reading: ModelPass, most: int = _MAPS_BYTES) -> list[tuple[int, int]]:
    """Choose at least one head and at most those whose maps take `most` bytes, sorted by layer."""
    bytes_per_map = 4 * reading.length**2
    data = summary(reading)
    every_head = _every_head(reading.heads)
    best = [
        max(every_head, key=lambda head: _at(scores, head) or 0.0)
        for scores in data["scores"].values()
    ]
    by_entropy = sorted(every_head, key=lambda head: _at(data["entropy"], head))
    ranked = list(dict.fromkeys([tuple(data["first"]), *best, *by_entropy]))
    return sorted(ranked[: max(1, most // bytes_per_map)])


def _every_head(heads: Sequence[int]) -> list[tuple[int, int]]:
    """List (layer, head) of all heads, given the number of heads of each layer."""
    return [(layer, head) for layer, count in enumerate(heads) for head in range(count)]


def _at(values: list[list[Any]], index: tuple[int, int]) -> Any:
    layer, head = index
    return values[layer][head]


def number(value: float) -> float | None:
    """Return a score as JSON has it: None if no query counts."""
    return None if math.isnan(value) else value


def export_heads(answers: StoredAnswers, content: ReportContent) -> list[str]:
    """Export the maps of as much of the text as the model reads and a file has room for.

    Errors: a `Refusal` if the text cannot be read, or its attention cannot be observed.
    """
    answers.hold_all(stored_heads(content.studio, content.name, content.work), content.work)
    summary = answers.by_key[key_of("heads/reading", {"text": content.name})]
    whole, of = summary["whole"], sum(summary["heads"])
    return [] if whole is None else report_note(content, "heads", kept=len(whole), of=of)


ModelNumber = Annotated[int, {"ge": 0, "le": 255, "description": "Of several models, from 0."}]


@dataclass(frozen=True, kw_only=True)
class ReadText:
    """A text that a model has read."""

    text: TextName
    model: ModelNumber = 0


def _add_routes(routes: "Routes") -> None:
    studio = routes.studio

    @routes.lines("/reading")
    def reading(work: Work, of: ReadText) -> dict[str, Any]:
        """Read a text and return its tokens, layers, heads, roles and mean entropies."""
        return summary(reading_of(studio, of.text, work, of.model), work)


PANEL = Panel(words=WORDS, routes=_add_routes)
