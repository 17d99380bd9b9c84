"""One query of one head of the served model: every number on its way, from q to the context."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import torch
from jaxtyping import Float
from torch import Tensor

import glasshead as gh
from glasshead.drawing import visible as printed
from glasshead.explanation.explanation import json_ready
from glasshead.message import _
from glasshead.recipe.normalizers import Softmax, SoftmaxOne
from glasshead.recipe.problem import Problem, Trace
from glasshead.recipe.scores import Dot, ScaledDot
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


WORDS = {
    "walk.title": _("Animation of one query"),
    "walk.play": _("Play"),
    "walk.pause": _("Pause"),
    "walk.back": _("Previous frame"),
    "walk.on": _("Next frame"),
    "walk.at": _("Frame"),
    "walk.others": _("{count} other keys"),
    "walk.query": _("“{word}” has a query, a vector of {count} numbers."),
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
    "walk.mix.rest": _("{count} other keys do the same, together."),
    "walk.context": _("The context of “{word}” is the sum of the values, each times its weight."),
    "cell.open": _("Open this cell in Steps"),
    "cell.example": _("The worked example, or a sentence of your own"),
    "cell.layer": _("Layer, from 0"),
    "cell.head": _("Head, from 0"),
    "cell.strongest": _("strongest"),
    "cell.dims": _("vectors of {dim} numbers, {tokens} tokens"),
    "cell.cut": _("beginning of {of} tokens"),
    "cell.softcap": _("softcap {cap}"),
    "cell.mask": _("mask {mask}"),
    "cell.group": _("reads key head {group} of {groups}"),
    "cell.sink": _("softmax with a sink of score {sink}"),
    "cell.weights": _("Weights of “{word}” on all keys"),
    "cell.capped": _("Capped"),
    "cell.bias": _("Bias"),
    "cell.table": _("The keys with the largest weights, and the chosen one"),
}


SHOWN = 8
"""Keys that are shown beside the chosen one: those with the largest weights."""
# All keys of a text that is hardly longer are shown.
_FEW = 12
# Heads whose steps are remembered.
_HEADS = 4

Row = Float[Tensor, " keys"]


@dataclass(frozen=True, eq=False)
class HeadTrace:
    """Every step of one head over a text, as `gh.watch(…, keep="trace")` tells them.

    Attributes:
        steps: The steps by the names of `Trace`, `[queries or keys, …]`.
        bias: What is added to the scores, 0 if a key is hidden; None if nothing is.
        beta: The factor of the scores.
        softcap: See `Problem`.
        normalizer: "softmax", "softmax-one", or the class of another.
        sink: The score of the sink of this head, where it has one.
        is_product: Whether a raw score is the product q · k.
        mask: The mask as the library writes it; None if nothing is hidden.
        key_head: The key head that this head reads, and how many there are.
    """

    steps: dict[str, Tensor]
    bias: Float[Tensor, "queries keys"] | None
    beta: float
    softcap: float | None
    normalizer: str
    sink: float | None
    is_product: bool
    mask: str | None
    key_head: tuple[int, int]


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
            key: A key to show beside those with the largest weights; None: none.
            work: Receives progress.

        Errors: a `Refusal` if there is no such text, layer, head, query or key, or where the
        steps of this attention do not follow from its inputs; `TooMuch` beyond the memory.
        """
        reading = heads.reading_of(self._studio, text, work)
        check_place("layer", layer, len(reading.layers))
        check_place("head", head, reading.heads[layer])
        if query is None:
            query = reading.length - 1
        check_place("query", query, reading.length)
        if key is not None:
            check_place("key", key, reading.length)
        place = self._studio.subject.version, text, layer, head
        trace = self._traces.get(
            place, lambda: self._trace(reading, layer, head, work), work.follow, work
        )
        return {
            "tokens": (words := [printed(word) for word in reading.words]),
            "of": reading.of,
            "layers": list(reading.layers),
            "heads": list(reading.heads),
            "layer": layer,
            "head": head,
            "query": query,
            "key": key,
            **row_of(trace, words, query, key),
        }

    def _trace(self, reading: ModelPass, layer: int, head: int, work: Work) -> HeadTrace:
        work.report("heads.reading", layer, len(reading.layers))
        name, _, number = reading.layers[layer].partition("#")
        budget = self._studio.limits.memory
        trace = traced(self._studio.subject.reader(), reading, name, int(number or 0), budget)
        return head_trace(trace, head)


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


def head_trace(trace: Trace, head: int) -> HeadTrace:
    """Return the steps of one head of a text, copied, with its own part of the recipe.

    >>> x = torch.randn(1, 3, 5, 2)
    >>> one = head_trace(gh.Attention(bias=gh.ALiBi(3), mask=gh.causal()).trace(x, x, x), 2)
    >>> one.steps["weights"].shape, one.bias[4, :2], one.beta, one.mask
    (torch.Size([5, 5]), tensor([-1.0000, -0.7500]), 0.7071067690849304, 'causal()')
    """
    problem = trace.problem
    group = problem.group
    own = (0,) * (trace.scores.ndim - 3) + ((head,) if trace.scores.ndim > 2 else ())
    shared = (0,) * (trace.keys.ndim - 3) + ((head // group,) if trace.keys.ndim > 2 else ())
    steps = {
        name: step[shared if name in ("keys", "values") else own].clone()
        for name, step in trace.steps()
    }
    kind, sink = problem.normalizer, None
    if isinstance(kind, SoftmaxOne):
        sink = _of_head(kind.sink, head)
    return HeadTrace(
        steps=steps,
        bias=_bias(problem, head),
        beta=_of_head(problem.scale, head),
        softcap=problem.softcap,
        normalizer={Softmax: "softmax", SoftmaxOne: "softmax-one"}.get(
            type(kind), type(kind).__name__
        ),
        sink=sink,
        is_product=isinstance(problem.score, Dot | ScaledDot),
        mask=None if problem.mask is None else repr(problem.mask),
        key_head=(head // group, problem.key.shape[-3]),
    )


def _of_head(value: float | Tensor, head: int) -> float:
    """Return the number of a head, of a number for all or a tensor of one for each."""
    values = torch.as_tensor(value).flatten()
    return values[head if len(values) > 1 else 0].item()


def _bias(problem: Problem, head: int) -> Tensor | None:
    bias, _ = problem.bias_and_visible(problem.mask, problem.tile())
    if bias is None:
        return None
    batch = (0,) * (len(problem.scores_shape) - 3)
    return bias.expand(problem.scores_shape)[(*batch, head)].clone()


def row_of(trace: HeadTrace, words: list[str], query: int, key: int | None) -> dict[str, Any]:
    """Return the numbers of one query, of some keys in full and of all others together.

    Returns: `q` and `context`, the vectors; `keys`, each with `place`, `word`, `k`, `v`, `score`,
        `scaled`, `capped`, `bias`, `masked` (None where hidden) and `weight`; `rest`, the keys that
        are not shown: `count`, how many of them are `hidden`, their `weight`, and `mean`, the mean
        of their values by weight, None if they are none; `weights`, those of all keys;
        `largest`, the largest score of all, and `total`, Σ exp(s - largest) over all keys and the
        sink, with the part of the `rest` in it; and of the recipe `beta`, `softcap`,
        `normalizer`, `sink`, `mask`, `key_head`, `is_product` and `hidden`, the hidden keys of all.
    """
    rows = {name: trace.steps[name][query] for name in ("queries", "scores", "scaled", "capped")}
    masked, weights = trace.steps["masked"][query], trace.steps["weights"][query]
    shown = shown_keys(weights, query, key)
    sees = ~masked.isneginf()
    powers, largest = _powers(masked, sees)
    total = powers.sum() + (0.0 if trace.sink is None else torch.tensor(trace.sink - largest).exp())
    return {
        "word": words[query],
        "q": json_ready(rows["queries"]),
        "context": json_ready(trace.steps["context"][query]),
        "keys": [_key(trace, words, query, at) for at in shown],
        "rest": _rest(trace, query, shown, powers, sees),
        "weights": json_ready(weights),
        "largest": largest,
        "total": float(total),
        "beta": trace.beta,
        "softcap": trace.softcap,
        "normalizer": trace.normalizer,
        "sink": trace.sink,
        "mask": trace.mask,
        "key_head": list(trace.key_head),
        "is_product": trace.is_product,
        "hidden": int((~sees).sum()),
    }


def shown_keys(weights: Row, query: int, key: int | None) -> list[int]:
    """Return the keys to show, in order: the largest weights, the query's own, and the chosen one.

    >>> shown_keys(torch.arange(20.0), 3, 0)
    [0, 3, 12, 13, 14, 15, 16, 17, 18, 19]
    """
    if len(weights) <= _FEW:
        return list(range(len(weights)))
    # Of equal weights, such as those of hidden keys, the first ones, on every machine.
    largest = weights.sort(descending=True, stable=True).indices[:SHOWN].tolist()
    own = [query] if query < len(weights) else []
    return sorted({*largest, *own, *([] if key is None else [key])})


def _key(trace: HeadTrace, words: list[str], query: int, at: int) -> dict[str, Any]:
    steps = trace.steps
    masked = steps["masked"][query, at]
    return {
        "place": at,
        "word": words[at],
        "k": json_ready(steps["keys"][at]),
        "v": json_ready(steps["values"][at]),
        "score": steps["scores"][query, at].item(),
        "scaled": steps["scaled"][query, at].item(),
        "capped": steps["capped"][query, at].item(),
        "bias": None if trace.bias is None else trace.bias[query, at].item(),
        "masked": None if masked.isneginf() else masked.item(),
        "weight": steps["weights"][query, at].item(),
    }


def _powers(masked: Row, sees: Tensor) -> tuple[Row, float]:
    """Return e to the power of each score less the largest, and that largest score."""
    scores = masked.double()
    largest = float(scores[sees].max()) if bool(sees.any()) else 0.0
    return (scores - largest).exp(), largest


def _rest(
    trace: HeadTrace, query: int, shown: list[int], powers: Row, sees: Tensor
) -> dict[str, Any] | None:
    """Return the keys that are not shown, together."""
    others = torch.ones(len(powers), dtype=torch.bool)
    others[shown] = False
    if not bool(others.any()):
        return None
    weights = trace.steps["weights"][query, others].double()
    values = trace.steps["values"][others].double()
    weight = weights.sum()
    share = torch.where(weights[:, None] > 0, weights[:, None] * values, 0.0).sum(0)
    return {
        "count": int(others.sum()),
        "hidden": int((others & ~sees).sum()),
        "weight": float(weight),
        "mean": json_ready(share / weight if weight > 0 else torch.zeros_like(share)),
        "power": float(powers[others].sum()),
    }


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


PANEL = Panel(words=WORDS, routes=_add_routes)
