"""The view `model`: all heads of a model on one canvas, lit by what they write."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

import glasshead as gh
from glasshead.message import _
from glasshead.studio.background_jobs import Cache, Refusal, Work
from glasshead.studio.panel import Panel
from glasshead.studio.parameters import Place, Prompt
from glasshead.studio.studio import Studio
from glasshead.studio.subject import ModelPass, check_place
from glasshead.studio.views import heads
from glasshead.studio.views.prompt import logits_of, telling_head, tokens_and_heads
from glasshead.studio.views.reading import observed, tokens_of
from glasshead.watching import UnseenError
from glasshead.watching.reasons import attends

if TYPE_CHECKING:
    from glasshead.studio.routes import Routes
    from glasshead.tasks.readers.reader import Reader


WORDS = {
    "model.title": _("Model"),
    "model.what": _(
        "This page shows the attention of all layers at once, from the first layer to the last."
    ),
    "model.none": _("No model loaded. Start the studio with a model folder."),
    "model.help": _("Click or tap a head or a token. Zoom with + and −, and drag to move."),
    "model.keyboard": _(
        "The wheel zooms, too. With the keyboard, arrow keys go from head to head, Enter opens "
        "one, and Esc shows the whole model."
    ),
    "model.at": _("At the token “{query}”"),
    "model.writes": _("Norm of the head’s output"),
    "model.context": _("Norm of the head’s context vector"),
    "model.context_why": _(
        "The output projection of this model cannot be split by head. The brightness of a "
        "head therefore shows the norm of its context vector."
    ),
    "model.share": _("Share of its layer’s attention output"),
    "model.percent": _("{share} %"),
    "model.rank": _("Rank among all heads"),
    "model.of": _("{rank} of {count} heads"),
    "model.reads": _("Reads most from"),
    "model.lines": _(
        "Lines downward show a head's share of the layer’s attention output; orange means "
        "that the head works against it. Lines from the tokens show attention weights. The strip "
        "in a square shows the weights of its head at the selected token, from the first token to "
        "the last."
    ),
    "model.stream": _(
        "The gray arrow is the residual stream, to which each layer adds its attention output at a "
        "circle."
    ),
    "model.stream.mlp": _("MLP is the feed-forward network of a layer, which adds its own output."),
    "model.take": _("Ablate it in Prompt"),
    "model.as_table": _("Show as a table"),
    "model.table.writes": _("Norm of each head's output at “{query}”"),
    "model.table.context": _("Norm of each head’s context vector at “{query}”"),
    "model.layer": _("Layer {layer}"),
    "model.head": _("Head {head}"),
    "model.mlp": _("MLP"),
}


# Passes that are remembered, such as those of a text while it is typed.
_PASSES = 4


@dataclass(frozen=True, eq=False)
class ModelWrites:
    """Norms and shares of what each head of a model writes over a text.

    Attributes:
        lit: "writes": `norm` is that of what a head adds to its attention's output; "context": that
            of its context vector, where the output projection is not known.
        norm: Of each head of each layer, and each query.
        share: The head's share of its attention's output; NaN if unknown.
        projections: Names of the output projections by layer; None if they are not known.
    """

    lit: Literal["writes", "context"]
    norm: Float[Tensor, "all_heads length"]
    share: Float[Tensor, "all_heads length"]
    projections: tuple[str | None, ...]


class WholeModel:
    """Runs a studio's model over texts, and tells what each of its heads reads and writes.

    Args:
        studio: The studio that holds the model.
    """

    def __init__(self, studio: Studio) -> None:
        self._studio = studio
        self._passes: Cache[tuple[ModelPass, ModelWrites]] = Cache(_PASSES)

    def summary(self, text: str, work: Work) -> dict[str, Any]:
        """Describe the model over a text.

        Returns: `tokens` and `running`, the tokens as running text; `of`, the tokens of the whole
            text; `layers` and `heads`; `first`, the head to open first; `lit`, as of `ModelWrites`;
            `projections`, and `mlps`, the names of the modules beside each attention in its block.

        Errors: a `Refusal` if the text has no word or the model does not read it; `Cancelled`.
        """
        reading, writes = self._pass(text, work)
        model = self._studio.subject.reader().model
        return tokens_and_heads(reading) | {
            # The page opens at the last token, at a head that writes much there.
            "first": telling_head(reading, slice(-1, None), writes.norm[:, -1]),
            "lit": writes.lit,
            "projections": list(writes.projections),
            "mlps": [
                mlps(model, name.split("#")[0], projection or "")
                for name, projection in zip(reading.layers, writes.projections, strict=True)
            ],
        }

    def writes(self, text: str, work: Work) -> Float[Tensor, "2 all_heads length"]:
        """Return the norm and the share of what each head writes, at each query.

        Errors: as of `summary`.
        """
        _, writes = self._pass(text, work)
        return torch.stack([writes.norm, writes.share])

    def reads(self, text: str, query: int, work: Work) -> Float[Tensor, "all_heads length"]:
        """Return the weights of one query in each head of each layer.

        Errors: as of `summary`, and a `Refusal` if there is no such query.
        """
        reading, _ = self._pass(text, work)
        check_place("query", query, reading.length)
        row, every = range(query, query + 1), range(reading.length)
        tiles = [reading.weights(layer).tile(row, every) for layer in range(len(reading.layers))]
        return torch.cat([tile.flatten(0, -3)[:, 0] for tile in tiles]).float()

    def map(self, text: str, layer: int, head: int, work: Work) -> Tensor:
        """Return the weights of one head; −0 if the mask hides.

        Errors: as of `summary`, and a `Refusal` if there is no such layer or head.
        """
        return heads.whole_map(self._pass(text, work)[0], layer, head)

    def _pass(self, text: str, work: Work) -> tuple[ModelPass, ModelWrites]:
        if not text.strip():
            raise Refusal("Enter at least one word.")
        key = self._studio.subject.version, text
        return self._passes.get(key, lambda: self._run(text, work), work.follow, work)

    def _run(self, text: str, work: Work) -> tuple[ModelPass, ModelWrites]:
        limits, reader = self._studio.limits, self._studio.subject.reader()
        numbers, of = tokens_of(reader, text, limits.prompt)
        tokens = torch.tensor(numbers)
        words = tuple(reader.token(number) for number in numbers)

        def forward() -> None:
            logits_of(reader, tokens)

        seen = observed(reader, forward, len(tokens), (), limits.memory, work)
        reading = ModelPass(tokens, words, of, seen, 0)
        work.check()
        return reading, _writes(reader, reading)


def _writes(reader: "Reader", reading: ModelPass) -> ModelWrites:
    """Measure what the heads write, or else the norms of their context vectors."""
    try:
        with torch.no_grad(), gh.head_writes(reader.model) as found:
            logits_of(reader, reading.tokens)
    except (UnseenError, ValueError):
        with torch.inference_mode(), gh.watch(reader.model, keep="context") as seen:
            logits_of(reader, reading.tokens)
        norms = [
            seen[name][call].context.norm(dim=-1).flatten(0, -2)  # type: ignore[union-attr] - it is kept
            for name, call in _calls(reading)
        ]
        norm = torch.cat(norms).float()
        unknown = (None,) * len(reading.layers)
        return ModelWrites("context", norm, torch.full_like(norm, torch.nan), unknown)
    calls = [found[name][call] for name, call in _calls(reading)]
    norm, share = (
        torch.cat([each.flatten(0, -2) for each in parts]).float()
        for parts in ([call.norm for call in calls], [call.share for call in calls])
    )
    return ModelWrites("writes", norm, share, tuple(call.projection for call in calls))


def _calls(reading: ModelPass) -> list[tuple[str, int]]:
    """Return the name of each layer's module, and the number of its call."""
    parts = (name.partition("#") for name in reading.layers)
    return [(name, int(number or 0)) for name, _, number in parts]


def mlps(model: nn.Module, attention: str, projection: str) -> list[str]:
    """Return the names of the modules with matrices beside an attention in its block.

    Args:
        model: The model.
        attention: The name of the attention's module.
        projection: The name of its output projection, which may stand outside of it.

    >>> model = gh.LanguageModel(gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3))
    >>> mlps(model, "blocks.0.attention", "blocks.0.attention.output")
    ['blocks.0.feed_forward']
    """
    name = attention
    while name:
        within, _, own = name.rpartition(".")
        siblings = [
            f"{within}.{child}".lstrip(".")
            for child, module in model.get_submodule(within).named_children()
            if child != own and _has_matrices(module)
        ]
        # A list of blocks ends the search.
        if own.isdigit():
            return []
        found = [
            each
            for each in siblings
            if not f"{projection}.".startswith(f"{each}.") and not attends(each.rpartition(".")[2])
        ]
        if found:
            return found
        name = within
    return []


def _has_matrices(module: nn.Module) -> bool:
    return any(parameter.ndim > 1 for parameter in module.parameters())


def _add_routes(routes: "Routes") -> None:
    whole = WholeModel(routes.studio)

    @routes.json()
    def summary(work: Work, text: Prompt) -> dict[str, Any]:
        """Return the layers, heads and tokens of a text, and what its heads are lit by.

        404 if there is no model.
        """
        return whole.summary(text, work)

    @routes.numbers("/writes")
    def writes(work: Work, text: Prompt) -> Tensor:
        """Return the norm and the share of what each head writes, [2, heads, queries]."""
        return whole.writes(text, work)

    @routes.numbers("/reads")
    def reads(work: Work, text: Prompt, query: Place) -> Tensor:
        """Return the weights of a query in all heads, [heads, keys]; 400 if there is none."""
        return whole.reads(text, query, work)

    @routes.numbers("/map")
    def map_of_head(work: Work, text: Prompt, layer: Place, head: Place) -> Tensor:
        """Return the weights of one head; −0 if the mask hides.

        400 if there is no such layer or head.
        """
        return whole.map(text, layer, head, work)


PANEL = Panel(words=WORDS, routes=_add_routes)
