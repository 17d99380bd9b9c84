"""Why a head gives a key its weight: the parts of their score, by what components wrote."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

import glasshead as gh
from glasshead.explanation.translations import Say
from glasshead.message import _
from glasshead.studio.background_jobs import Cache, Refusal, TooMuch, Work
from glasshead.studio.panel import Panel
from glasshead.studio.parameters import HeadPlace, Place
from glasshead.studio.stored_answers import ReportContent, StoredAnswers
from glasshead.studio.studio import Studio
from glasshead.studio.subject import ModelPass, check_place
from glasshead.studio.views import heads
from glasshead.studio.views.heads import ReadText, is_there, reading_of
from glasshead.watching import UnseenError
from glasshead.watching.analytics import Component

if TYPE_CHECKING:
    from glasshead.studio.routes import Routes

WORDS = {
    "why.ask": _("Why this weight?"),
    "why.title": _("Why “{query}” looks at “{key}”"),
    "why.told": _(
        "This pair has the scaled score {score}. The other keys that the query sees ({count}) have "
        "the mean {mean}. Weights depend on differences of scores alone. Each bar is the part of "
        "this difference, {contrast}, that one component of the model wrote."
    ),
    "why.side": _("Parts of"),
    "why.key": _("the key"),
    "why.query": _("the query"),
    "why.component": _("Component"),
    "why.part": _("Part"),
    "why.rest": _("{count} others"),
    "why.sum": _("Sum"),
    "why.contrast": _("Scaled score minus the mean of the other keys"),
    "why.wait": _("Splitting the score…"),
    "why.alone": _("The query sees no other key, so its weight depends on no score."),
}

# Components that are shown by themselves.
_SHOWN = 8
# Weights that a report explains, at least one of each head whose map it holds.
_EXPLAINED = 64
# Texts whose residual streams are remembered.
_TEXTS = 2


class Reasons:
    """Splits scores of a studio's models, and remembers the last texts.

    Args:
        studio: The studio that holds the models.
    """

    def __init__(self, studio: Studio) -> None:
        self._studio = studio
        self._seen: Cache[gh.Seen] = Cache(_TEXTS)

    def why(self, of: "ReadCell", work: Work) -> dict[str, Any]:
        """Return the parts of the score of a query and a key, of both sides.

        Errors: a `Refusal` if there is no such text, layer, head, query or key, or the scores of
        this layer do not follow from what modules wrote; `TooMuch` beyond the memory.
        """
        reading = reading_of(self._studio, of.text, work, of.model)
        check_place("layer", of.layer, len(reading.layers))
        check_place("head", of.head, reading.heads[of.layer])
        check_place("query", of.query, reading.length)
        check_place("key", of.key, reading.length)
        subject = self._studio.model(of.model)
        place = subject, subject.version, of.text
        seen = self._seen.get(place, lambda: self._watched(of, reading, work), work.follow, work)
        try:
            with torch.no_grad():
                return reasons(seen, reading.layers, of.layer, of.head, of.query, of.key)
        except (UnseenError, ValueError) as error:
            raise Refusal(
                "the scores of {layer} do not follow from what modules of the model wrote. Choose "
                "another layer.",
                layer=reading.layers[of.layer],
            ) from error

    def _watched(self, of: "ReadCell", reading: ModelPass, work: Work) -> gh.Seen:
        work.report("why.wait", 0, 1)
        reader, budget = self._studio.model(of.model).reader(), self._studio.limits.memory
        with torch.no_grad(), gh.watch(reader.model, keep="parts", budget=budget) as seen:
            reader.read(reading.tokens[None])
            if seen.missing:
                raise TooMuch(
                    "what the modules wrote for this text would take more memory than is allowed. "
                    "Choose a shorter text."
                )
        return seen


def reasons(
    seen: gh.Seen, layers: Sequence[str], layer: int, head: int, query: int, key: int
) -> dict[str, Any]:
    """Return the parts of the score of a query and a key less the mean of the other keys'.

    Args:
        seen: What a watch has seen, with parts.
        layers: The names of the layers.
        layer, head: The head.
        query, key: Their places.

    Returns: the `score`, the `contrast`, the number of `others`, and for "key" and "query" the
    largest `parts`, each with its name and the layer and head that wrote it, the `rest` and the
    number of components in it.

    Errors: as of `score_parts`.
    """
    parts = gh.score_parts(seen, layers[layer], head=head, query=query)
    visible = parts.visible[0]
    places = layer_places(seen, layers)
    others = int(visible.sum()) - int(visible[key])
    sides = {
        side: largest_parts(parts.components, parts.contrast(key, side=side), places)
        for side in ("key", "query")
    }
    contrast = float(parts.contrast(key).sum())
    return {"score": float(parts.score[key]), "contrast": contrast, "others": others, **sides}


def layer_places(seen: gh.Seen, layers: Sequence[str]) -> dict[int, int]:
    """Return the number of the layer of each attention, by its place among the components."""
    return {
        call.parts.context.order: layers.index(name)
        for name, watched in seen.layers.items()
        for call in watched.last_text
        if call.parts is not None and name in layers
    }


def largest_parts(
    components: Sequence[Component],
    values: Float[Tensor, " components"],
    places: dict[int, int],
) -> dict[str, Any]:
    """Return the largest parts of a sum, and the sum of the others.

    Args:
        components: The components.
        values: What each of them adds.
        places: As of `layer_places`.
    """
    largest = values.abs().argsort(descending=True).tolist()
    shown = [at for at in largest if values[at]][:_SHOWN]
    return {
        "parts": [_part(components[at], float(values[at]), places) for at in shown],
        "rest": float(values.sum() - values[shown].sum()),
        "count": len(components) - len(shown),
    }


def _part(one: Component, part: float, places: dict[int, int]) -> dict[str, Any]:
    return {"name": str(one), "layer": _layer(one, places), "head": one.head, "part": part}


def _layer(one: Component, places: dict[int, int]) -> int | None:
    return None if one.head is None else places.get(one.place)


@dataclass(frozen=True, kw_only=True)
class ReadCell(ReadText, HeadPlace):
    """A query and a key of a head of a layer that has read a text."""

    query: Place
    key: Place


def export_heads(answers: StoredAnswers, content: ReportContent) -> list[str]:
    """Export the maps of heads, and why their most telling queries look where they look.

    Errors: as of `heads.export_heads`.
    """
    notes = heads.export_heads(answers, content)
    answers.hold_all(stored_reasons(content), content.work)
    return notes


def stored_reasons(
    content: ReportContent, most: int = _EXPLAINED
) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Generate the reasons of weights for a report, as (path, parameters, answer).

    They are of the heads whose maps the report holds: of each, the largest weights of the queries
    that look the farthest and the most sharply. Scores that cannot be split have the sentence that
    states why.

    Args:
        content: The report's content.
        most: Number of weights of all heads.

    Errors: as of `read`.
    """
    reading, known = reading_of(content.studio, content.name, content.work), Reasons(content.studio)
    chosen = heads.chosen_heads(reading)
    for done, (layer, head) in enumerate(chosen):
        content.work.report("why.wait", done, len(chosen))
        weights = heads.whole_map(reading, layer, head)
        for query in _telling(weights)[: max(1, most // len(chosen))]:
            cell = {
                "layer": layer,
                "head": head,
                "query": query,
                "key": int(weights[query].argmax()),
            }
            of = ReadCell(text=content.name, **cell)
            try:
                answer = known.why(of, content.work)
            except Refusal as error:
                answer = {"refused": Say(content.lang).translated(error)}
            yield "heads/why", {"text": content.name, **cell}, answer


def _telling(weights: Float[Tensor, "queries keys"]) -> list[int]:
    """Return the queries by how far and how sharply they look, the first as arcs.js chooses it."""
    place = torch.arange(len(weights))
    looks = weights * (1 + (place[:, None] - place).abs()).log2()
    looks[:, 0] = 0
    return looks.amax(1).argsort(descending=True, stable=True).tolist()


def _add_routes(routes: "Routes") -> None:
    studio = routes.studio
    known = Reasons(studio)

    @routes.json("/why", is_read=lambda of: is_there(studio, of.text, of.model))
    def why(work: Work, of: ReadCell) -> dict[str, Any]:
        """Return the parts of the score of a query and a key, by the components that wrote them.

        400 if there is no such layer, head, query or key, or its scores cannot be split, 413 if the
        text takes too much memory.
        """
        return known.why(of, work)


PANEL = Panel(words=WORDS, routes=_add_routes)
