"""One query of one head of the served model: every number on its way, from q to the context."""

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import torch
from jaxtyping import Float
from torch import Tensor

import glasshead as gh
from glasshead.drawing import visible as printed
from glasshead.explanation.walk import WALK_WORDS, HeadTrace, head_trace, row_of, vectors_of
from glasshead.message import _
from glasshead.recipe.problem import Trace
from glasshead.studio.background_jobs import Cache, Refusal, TooMuch, Work
from glasshead.studio.panel import Panel
from glasshead.studio.parameters import PLACE, Place, TextName
from glasshead.studio.studio import Studio
from glasshead.studio.subject import ModelPass, check_place
from glasshead.studio.views import heads
from glasshead.watching import UnseenError

if TYPE_CHECKING:
    from glasshead.studio.routes import Routes
    from glasshead.tasks.readers.reader import Reader


WORDS = WALK_WORDS | {
    "walk.title": _("Animation of one query"),
    "walk.play": _("Play"),
    "walk.pause": _("Pause"),
    "walk.back": _("Previous frame"),
    "walk.on": _("Next frame"),
    "walk.at": _("Frame"),
    "walk.query": _("“{word}” has a query, a vector of {count} numbers."),
    "walk.query.one": _("“{word}” has a query, a vector of one number."),
    "walk.score": _(
        "The query slides over the keys. With each key, the products of their numbers add up "
        "to a score."
    ),
    "walk.score.rest": _("The same happens for {count} other keys."),
    "walk.scaled": _("Each score is multiplied by β = {beta}."),
    "walk.capped": _("The softcap bends large scores, so that none is beyond ±{cap}."),
    "walk.biased": _("A bias is added to each score."),
    "walk.masked": _("The mask hides keys ({hidden}): their scores become −∞."),
    "walk.power": _(
        "Each score becomes e to the power of the score: all are positive now, and large "
        "ones stand out."
    ),
    "walk.weights": _("Divided by their sum, they become weights, which add up to 1."),
    "walk.sunk": _(
        "Divided by their sum, the sink included, they become weights, which add up to less than 1."
    ),
    "walk.normalized": _("{normalizer} turns the scores into weights."),
    "walk.mix": _("The values mix: each adds its share, value times weight, to the context."),
    "walk.mix.rest": _("{count} other keys do so by their mean."),
    "walk.idle": _("Steps without effect here: {steps}"),
    "walk.step.capped": _("softcap"),
    "walk.step.biased": _("bias"),
    "walk.step.masked": _("mask"),
    "walk.step.dropped": _("dropout"),
    "walk.idle.scaled": _("β is 1, so each score stays as it is."),
    "walk.idle.capped": _("No softcap bends the scores."),
    "walk.idle.biased": _("No bias changes the scores."),
    "walk.idle.masked": _("No mask hides a key."),
    "walk.idle.dropped": _("No dropout removes a weight: it acts only during training."),
    "cell.open": _("Open this cell in Steps"),
    "cell.example": _("The worked example, or a sentence of your own"),
    "cell.layer": _("Layer, from 0"),
    "cell.head": _("Head, from 0"),
    "cell.strongest": _("strongest"),
    "cell.dims": _("vectors of {dim} numbers, {tokens} tokens"),
    "cell.cut": _("beginning of {of} tokens"),
    "cell.softcap": _("softcap {cap}"),
    "cell.mask": _("mask {mask}"),
    "cell.group": _("heads {heads} share their keys and values"),
    "cell.rounded": _("numbers are rounded"),
    "cell.sink": _("softmax with a sink of score {sink}"),
    "cell.colored": _(
        "Where the numbers of a vector have no room, colors stand for them. “Predict a weight” "
        "shows up to 8 numbers."
    ),
    "cell.others": _(
        "The row of {count} other keys shows the sum of their weights and the weighted mean of "
        "their values."
    ),
    "cell.numbered": _("The number after a word is its place in the text, from 0."),
    "cell.weights": _("Weights of “{word}” on all keys"),
    "cell.capped": _("Capped"),
    "cell.bias": _("Bias"),
    "cell.table": _("The keys with the largest weights, and the chosen one"),
}


# Heads whose steps are remembered.
_HEADS = 4


class Cells:
    """Traces heads of a studio's model, and remembers the last ones.

    Args:
        studio: The studio that holds the model.
    """

    def __init__(self, studio: Studio) -> None:
        self._studio = studio
        self._traces: Cache[HeadTrace] = Cache(_HEADS)

    def row(
        self, text: str, layer: int, head: int, query: int | None, key: int | None, work: Work
    ) -> dict[str, Any]:
        """Return all numbers behind the context of one query of a head.

        Args:
            text: The name of a text that was sent.
            layer, head: The head, counted from 0.
            query: The query; None: the last one.
            key: A key to show in addition to the keys with the largest weights; None: none.
            work: Receives progress.

        Errors: a `Refusal` if there is no such text, layer, head, query or key, or where the
        steps of this attention do not follow from its inputs; `TooMuch` beyond the memory.
        """
        reading, trace = self._read(text, layer, head, work, query=query, key=key)
        if query is None:
            query = reading.length - 1
        return {
            "tokens": (words := [printed(word) for word in reading.words]),
            "of": reading.of,
            "layers": list(reading.layers),
            "heads": list(reading.heads),
            "layer": layer,
            "head": head,
            "query": query,
            "key": key,
            **row_of(trace, words[query], words, query, key),
        }

    def vectors(
        self, text: str, layer: int, head: int, query: int, work: Work
    ) -> Float[Tensor, "keys width"]:
        """Return each key, its value and its bias for a query, side by side; −∞ if hidden.

        Args and errors: as of `row`.
        """
        _, trace = self._read(text, layer, head, work, query=query)
        return vectors_of(trace, query)

    def _read(
        self, text: str, layer: int, head: int, work: Work, **places: int | None
    ) -> tuple[ModelPass, HeadTrace]:
        reading = heads.reading_of(self._studio, text, work)
        check_place("layer", layer, len(reading.layers))
        check_place("head", head, reading.heads[layer])
        for name, at in places.items():
            if at is not None:
                check_place(name, at, reading.length)
        place = self._studio.subject.version, text, layer, head
        trace = self._traces.get(
            place, lambda: self._trace(reading, layer, head, work), work.follow, work
        )
        return reading, trace

    def _trace(self, reading: ModelPass, layer: int, head: int, work: Work) -> HeadTrace:
        work.report("heads.reading", layer, len(reading.layers))
        name, _, number = reading.layers[layer].partition("#")
        budget = self._studio.limits.memory
        trace = traced(self._studio.subject.reader(), reading, name, int(number or 0), budget)
        kept = head_trace(trace, (*(0,) * (trace.scores.ndim - 3), head))
        # The steps of the other heads need not stay.
        steps = {name: step.clone() for name, step in kept.steps.items()}
        return replace(kept, steps=steps)


def traced(reader: "Reader", reading: ModelPass, name: str, number: int, budget: int) -> Trace:
    """Run a model over a text that it has read before, and return every step of one layer.

    Errors: a `Refusal` if these are not to be had, `TooMuch` beyond the budget.
    """
    # In a pattern of names, brackets and stars stand for others.
    layers = re.sub(r"([*?\[])", r"[\1]", name) or None
    try:
        with (
            torch.inference_mode(),
            gh.watch(reader.model, layers=layers, keep="trace", budget=budget) as seen,
        ):
            reader.read(reading.tokens[None])
            if seen.missing:
                raise TooMuch(
                    "the steps of this layer would take more memory than is allowed. Choose a "
                    "shorter text."
                )
    except (UnseenError, ValueError) as error:
        raise Refusal(
            "the steps of {layer} do not follow from queries, keys and values that it shows. "
            "Choose another layer.",
            layer=name,
        ) from error
    return seen[name][number].trace  # type: ignore[return-value] - it is kept, or refused above


def _add_routes(routes: "Routes") -> None:
    studio = routes.studio
    cells = Cells(studio)

    @routes.json("/cell", is_read=lambda text, **_of: heads.is_there(studio, text))
    def cell(
        work: Work,
        text: TextName,
        layer: Place,
        head: Place,
        query: Annotated[int | None, PLACE] = None,
        key: Annotated[int | None, PLACE] = None,
    ) -> dict[str, Any]:
        """Return q, k, v, scores, weights and context of one query of a head of the model.

        400 if there is no such layer, head, query or key, or the model does not show its
        steps, 404 if there is no model, 413 if the text takes too much memory.
        """
        return cells.row(text, layer, head, query, key, work)

    @routes.numbers("/vectors", is_read=lambda text, **_of: heads.is_there(studio, text))
    def vectors(work: Work, text: TextName, layer: Place, head: Place, query: Place) -> Tensor:
        """Return all keys of a head, their values, and what is added to their scores for a query.

        A row for each key: the key, its value, and its bias, which is −∞ if the key is hidden.
        Errors: as of `cell`.
        """
        return cells.vectors(text, layer, head, query, work)


PANEL = Panel(words=WORDS, routes=_add_routes)
