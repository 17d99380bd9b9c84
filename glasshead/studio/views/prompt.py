"""The view `prompt`: what a model predicts of a text while it is typed, with heads taken away."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

import glasshead as gh
from glasshead.drawing import visible
from glasshead.message import _
from glasshead.models import LanguageModel, Translator
from glasshead.studio.background_jobs import Cache, Refusal, Work
from glasshead.studio.panel import Panel
from glasshead.studio.parameters import Prompt
from glasshead.studio.studio import Studio
from glasshead.studio.subject import ModelPass, check_place
from glasshead.studio.views import heads
from glasshead.studio.views.alignment import translations
from glasshead.studio.views.reading import observed, tokens_of

if TYPE_CHECKING:
    from glasshead.studio.routes import Routes
    from glasshead.tasks.readers.reader import Reader


WORDS = {
    "prompt.title": _("Prompt"),
    "prompt.none": _("No model loaded. Start the studio with a model folder."),
    "prompt.what": _(
        "This page shows where the attention heads of a model look in your text, and what the "
        "model predicts."
    ),
    "example.what": _(
        "This page computes the attention of a sentence: how much each word looks at each other "
        "word."
    ),
    "prompt.text": _("Type a text to see what the model does with it"),
    "prompt.empty": _("Type at least one word."),
    "prompt.words": _("The text; move between tokens with the arrow keys"),
    "prompt.why": _(
        "In layer {layer}, head {head}, “{query}” gives {weight} of its attention to “{key}”."
    ),
    "prompt.why.away": _(
        "In layer {layer}, head {head} (ablated), “{query}” gives {weight} of its attention to "
        "“{key}”."
    ),
    "prompt.why.example": _(
        "“{query}” gives {weight} of its attention to “{key}”: their score is {score}, the largest "
        "of its row."
    ),
    "prompt.numbers": _("Show all numbers"),
    "prompt.every": _("All weights, one row per query"),
    "prompt.map": _("Full map"),
    "prompt.top": _("Shown"),
    "prompt.temperature": _("Temperature"),
    "prompt.predicts.tokens": _("Next token"),
    "prompt.predicts.labels": _("Label"),
    "prompt.predicts.translations": _("Translations"),
    "prompt.predicts.blanks": _("Candidates for {blank}"),
    "prompt.predicts.token_labels": _("Labels of the tokens"),
    "prompt.predicts.nothing": _(
        "The studio shows predictions of language models, masked language models, classifiers and "
        "translation models. This model is none of these."
    ),
    "prompt.blank": _("Write {blank} in place of a word to see what the model puts there."),
    "prompt.follow": _("Append it to the text"),
    "prompt.fill": _("Put it into the text"),
    "prompt.loss": _("Loss on this text: {loss} nats per token"),
    "prompt.losses": _("Loss on this text: {loss} nats per token, {before} with all heads"),
    "prompt.hidden": _("Gray is hidden by the mask."),
    "prompt.click": _("A click on a head"),
    "prompt.shows": _("shows its arcs"),
    "prompt.takes": _("ablates it"),
    "prompt.layer": _("Ablate or restore all heads of layer {layer}"),
    "prompt.gone": _("Layer {layer}, head {head}: ablated"),
    "prompt.away": _("Ablated: {heads}."),
    "prompt.away.line": _("The line in each bar is the probability with all heads."),
    "prompt.undo": _("Undo"),
    "prompt.back": _("Restore all"),
}


Shown = Literal["tokens", "blanks", "labels", "token_labels", "translations", "nothing"]
Head = tuple[int, int]

# Passes that are remembered: that of a text with and without heads, and some before.
_PASSES = 8
_BEAM = 3
"""Characters of a prompt."""


@dataclass(frozen=True, eq=False)
class PromptPass:
    """A pass over a prompt, with some heads taken away.

    Attributes:
        reading: The tokens, and the attention of each layer.
        logits: Of tokens, `[length, vocabulary]`, or of labels, `[length, labels]` or
            `[1, labels]`; None if the model has no head.
    """

    reading: ModelPass
    logits: Float[Tensor, "rows outputs"] | None


class Prompts:
    """Runs a studio's model over prompts, and remembers the last passes.

    Args:
        studio: The studio that holds the model.
    """

    def __init__(self, studio: Studio) -> None:
        self._studio = studio
        self._passes: Cache[PromptPass] = Cache(_PASSES)

    def predictions(
        self, text: str, without: Sequence[Head], top: int, temperature: float, work: Work
    ) -> dict[str, Any]:
        """Return what the model predicts of a prompt, with heads taken away and with all of them.

        Args:
            text: The prompt.
            without: Layer and head of each head that is taken away, as by `gh.ablate`.
            top: Number of predictions.
            temperature: Divides the logits of the next token; 0 gives all to the largest.
            work: Checked for cancellation before each layer.

        Returns: `tokens` and `running`, the tokens as running text; `layers` and `heads`; `of`,
            the tokens of the whole prompt; `first`, the head to show first; `predicts`, one of
            `Shown`; `blank`, the mask token if it predicts masked tokens; `likely`, the most likely
            predictions, each with its `text`, its probability `p` and that with all heads,
            `before`; and `loss`, the mean of −ln p of each token but the first, in nats, with
            `loss_before`, that with all heads; None if the model predicts no tokens.

        Errors: a `Refusal` if the text has no word or too many bytes, there is no such head, or
        the model does not read it; `Cancelled`.
        """
        own, whole = self.pass_of(text, without, work), self.pass_of(text, (), work)
        reading, reader = own.reading, self._studio.subject.reader()
        kind = self.predicts(own)
        answer = tokens_and_heads(reading) | {
            "predicts": kind,
            "blank": None if reader.blank is None else reader.token(reader.blank),
            "likely": [],
            "loss": None,
            "loss_before": None,
        }
        if kind == "tokens":
            answer["first"] = telling_head(reading, slice(-1, None))
        if kind == "translations":
            return answer | {"likely": self._translations(text, reading, without, work)}
        if own.logits is None or whole.logits is None:
            return answer
        now, before = (
            shares_of(reader, reading.tokens, logits, temperature)
            for logits in (own.logits, whole.logits)
        )
        if kind == "token_labels":
            answer["likely"] = _labelled(reader, answer["tokens"], now, before)[:top]
        elif len(now):
            named = names_of(reader, kind)
            answer["likely"] = [
                {"text": named(at), "p": now[0, at].item(), "before": before[0, at].item()}
                for at in now[0].topk(min(top, now.shape[1])).indices.tolist()
            ]
        if kind == "tokens" and reading.length > 1:
            answer["loss"], answer["loss_before"] = (
                loss_of(each.logits, reading.tokens)  # type: ignore[arg-type] - checked above
                for each in (own, whole)
            )
        return answer

    def maps(self, text: str, without: Sequence[Head], work: Work) -> Tensor:
        """Return the small maps of all heads, as the view `heads` does."""
        return heads.small_maps(self.pass_of(text, without, work).reading)

    def weights(
        self, text: str, without: Sequence[Head], shown: Sequence[Head], work: Work
    ) -> Float[Tensor, "shown length length"]:
        """Return the weights of some heads.

        Errors: a `Refusal` if there is no such head, and as of `predictions`.
        """
        reading = self.pass_of(text, without, work).reading
        return torch.stack([heads.whole_map(reading, *head) for head in shown])

    def pass_of(self, text: str, without: Sequence[Head], work: Work) -> PromptPass:
        """Run the model over a prompt without some heads, or return the pass that was made.

        Errors: as of `predictions`.
        """
        studio, away = self._studio, tuple(sorted(set(without)))
        if not text.strip():
            raise Refusal("Enter at least one word.")
        key = studio.subject.version, text, away
        return self._passes.get(key, lambda: self._run(text, away, work), work.follow, work)

    def _run(self, text: str, without: Sequence[Head], work: Work) -> PromptPass:
        studio = self._studio
        reader = studio.subject.reader()
        numbers, of = tokens_of(reader, text, studio.limits.prompt)
        tokens = torch.tensor(numbers)
        written = {number: reader.token(number) for number in set(numbers)}
        ablated = ablated_heads(self.pass_of(text, (), work).reading, without) if without else {}
        logits: list[Tensor | None] = []

        def forward() -> None:
            logits.append(logits_of(reader, tokens))

        with gh.ablate(reader.model, ablated) if ablated else nullcontext():
            seen = observed(reader, forward, len(tokens), (), studio.limits.memory, work)
        words = tuple(written[number] for number in numbers)
        return PromptPass(ModelPass(tokens, words, of, seen, 0), logits[0])

    def predicts(self, one: PromptPass) -> Shown:
        """Return the kind of the predictions that follow from a pass."""
        if self._studio.subject.kind == "translate":
            return "translations"
        if one.logits is None:
            return "nothing"
        return self._studio.subject.reader().predicts or "nothing"

    def _translations(
        self, text: str, reading: ModelPass, without: Sequence[Head], work: Work
    ) -> list[dict[str, Any]]:
        """Return the candidates of beam search, with e^score as their share of likeness."""
        translator, limits = self._studio.subject.translator(), self._studio.limits
        ablated = ablated_heads(reading, without)

        def found() -> dict[str, float]:
            answer = translations(translator, text, limits, _BEAM, work)["candidates"]
            return {one["text"]: one["log_probability"] for one in answer}

        before = found()
        now = before
        if ablated:
            with gh.ablate(translator.model, ablated):
                now = found()
        return [
            {
                "text": name,
                "p": float(torch.tensor(ln_p).exp()),
                "before": float(torch.tensor(before[name]).exp()) if name in before else 0.0,
            }
            for name, ln_p in now.items()
        ]


def names_of(reader: "Reader", kind: Shown) -> Callable[[int], str]:
    """Return what names an output: its label, or its token with what is invisible made visible."""
    if kind == "labels":
        return reader.labels.__getitem__
    # Some tokenizers have a line break of bytes.
    return lambda token: visible(reader.token(token).replace("<0x0A>", "\n"))


def shares_of(
    reader: "Reader", tokens: Int[Tensor, " length"], logits: Tensor, temperature: float
) -> Float[Tensor, "rows outputs"]:
    """Return the probabilities that a head gives: of a text, of each token, or of the first blank.

    Labels of which several may hold have a sigmoid each, and a single output is a score. Without a
    blank, a masked language model has no row.
    """
    if reader.predicts == "tokens":
        return likely(logits[-1:], temperature)
    if reader.predicts == "blanks":
        return likely(logits[tokens == reader.blank][:1], temperature)
    if logits.shape[-1] == 1:
        return logits.float()
    config = getattr(reader.model, "config", None)
    if getattr(config, "problem_type", None) == "multi_label_classification":
        return logits.float().sigmoid()
    return likely(logits, 1.0)


def _labelled(
    reader: "Reader", tokens: Sequence[str], now: Tensor, before: Tensor
) -> list[dict[str, Any]]:
    """Return each token of the text with its most likely label."""
    first, last = len(reader.around[0]), len(tokens) - len(reader.around[1])
    return [
        {
            "text": f"{tokens[row].strip('␣') or tokens[row]} → {reader.labels[label]}",
            "p": now[row, label].item(),
            "before": before[row, label].item(),
        }
        for row, label in enumerate(now.argmax(-1).tolist())
        if first <= row < last
    ]


def tokens_and_heads(reading: ModelPass) -> dict[str, Any]:
    """Describe a reading as JSON: its tokens, alone and as running text, and its heads.

    `of` counts the tokens of the whole text, and `first` is the head to show first.
    """
    tokens = [visible(word) for word in reading.words]
    return {
        "tokens": tokens,
        "running": heads.running(tokens),
        "of": reading.of,
        "layers": list(reading.layers),
        "heads": list(reading.heads),
        "first": telling_head(reading),
    }


def telling_head(
    reading: ModelPass, queries: slice = slice(None), norm: Tensor | float = 1.0
) -> list[int]:
    """Return the layer and head whose queries look most sharply at one token.

    Args:
        reading: The reading.
        queries: Rows of the small maps that count: of a language model the last one, which the
            next token follows.
        norm: Of what each head writes, by which its look counts.

    Neither themselves, the token before nor the first token count, at which heads look that tell
    little of a text.
    """
    maps = heads.small_maps(reading)[..., :-1]
    side = maps.shape[-1]
    others = torch.ones(side, side).tril(-2) + torch.ones(side, side).triu(1)
    others[:, 0] = 0
    sharpest = (maps * others)[..., queries, :].amax(-1).mean(-1)
    best = int((norm * sharpest).argmax())
    for layer, count in enumerate(reading.heads):
        if best < count:
            return [layer, best]
        best -= count
    return [0, 0]


def logits_of(reader: "Reader", tokens: Int[Tensor, " length"]) -> Tensor | None:
    """Run a reader's model with its head: logits after each token, or of each label.

    None if the model has no head; it has run all the same.
    """
    model = reader.model
    if isinstance(model, LanguageModel):
        return model(tokens[None])[0]
    if hasattr(model, "base_model") and getattr(model, "base_model", model) is not model:
        options = {"use_cache": False} if hasattr(model.config, "use_cache") else {}
        batch: Any = {"input_ids": tokens[None], "attention_mask": torch.ones_like(tokens[None])}
        output = model(**batch, **options)  # pyright: ignore[reportCallIssue] - a module's own
        logits = getattr(output, "logits", None)
        # Labels of a text have no axis of tokens.
        return logits[0] if logits is not None and logits.ndim == 3 else logits
    output = reader.read(tokens[None])
    is_of_labels = isinstance(output, Tensor) and output.ndim == 2
    return output if is_of_labels else None


def likely(
    logits: Float[Tensor, "*rows outputs"], temperature: float
) -> Float[Tensor, "*rows outputs"]:
    """Compute softmax(logits / temperature) in float32; at 0 all goes to the largest.

    >>> likely(torch.tensor([0.0, 2.0]), 0.0)
    tensor([0., 1.])
    """
    if temperature == 0:
        return F.one_hot(logits.argmax(-1), logits.shape[-1]).float()
    return (logits.float() / temperature).softmax(-1)


def loss_of(logits: Float[Tensor, "length vocabulary"], tokens: Int[Tensor, " length"]) -> float:
    """Compute the mean of −ln p of each token but the first, in nats."""
    return F.cross_entropy(logits[:-1].float(), tokens[1:]).item()


def ablated_heads(reading: ModelPass, without: Sequence[Head]) -> Mapping[str, list[int]]:
    """Return heads by the name of their module, as `gh.ablate` takes them.

    Errors: a `Refusal` if there is no such layer or head.
    """
    found: dict[str, list[int]] = {}
    for layer, head in without:
        check_place("layer", layer, len(reading.layers))
        check_place("head", head, reading.heads[layer])
        name = reading.layers[layer]
        if "#" in name:
            raise Refusal("layers that share one attention cannot lose a head each. Ablate none.")
        found.setdefault(name, []).append(head)
    return found


def described(studio: Studio) -> dict[str, Any] | None:
    """Return what a studio's model is: its `name`, `layers`, `heads` and `parameters`.

    For a translator, `layers` counts the layers of its encoder and `decoder` those of its decoder.

    The name is None for a model of this library's own and for a vision model, which the page names
    by their tasks. Numbers of layers and heads are None if the model does not tell, or its layers
    differ. None if it cannot be opened, which the views report.
    """
    try:
        subject = studio.subject
        opened = subject.pictures() if subject.kind == "vision" else subject.reader()
        model: nn.Module = opened.model
    except (OSError, ValueError):
        return None
    name, layers, count, decoder = None, None, None, None
    config = getattr(model, "config", None)
    own = [each for each in model.modules() if isinstance(each, gh.MultiHeadAttention)]
    if own:
        numbers = {each.num_heads for each in own}
        layers, count = len(own), numbers.pop() if len(numbers) == 1 else None
        name = "Llama" if studio.subject.kind == "model" else None
        if isinstance(model, Translator):
            # A layer of the decoder has two attentions.
            layers, decoder = len(model.encoder), len(model.decoder)
    elif config is not None:
        if studio.subject.kind != "vision":
            name = str(getattr(config, "model_type", "") or type(model).__name__)
        layers = getattr(config, "num_hidden_layers", None)
        count = getattr(config, "num_attention_heads", None)
    return {
        "name": name,
        "layers": layers,
        "decoder": decoder,
        "heads": count,
        "parameters": sum(each.numel() for each in model.parameters()),
    }


WithoutHeads = Annotated[
    str,
    {
        "max_length": 2**14,
        "pattern": r"^([0-9]{1,5}\.[0-9]{1,5}(,[0-9]{1,5}\.[0-9]{1,5})*)?$",
        "description": "Heads as layer.head, separated by commas, counted from 0.",
    },
]
_Shown = Annotated[
    str,
    {
        "max_length": 200,
        "pattern": r"^[0-9]{1,5}\.[0-9]{1,5}(,[0-9]{1,5}\.[0-9]{1,5}){0,11}$",
        "description": "One to twelve heads, as layer.head.",
    },
]
# Probabilities of the page, by the temperature and the number of predictions.
Temperature = Annotated[float, {"ge": 0, "le": 10, "allow_inf_nan": False}]
Top = Annotated[int, {"ge": 1, "le": 50}]


def heads_listed(listed: str) -> list[Head]:
    """Parse a list of heads.

    >>> heads_listed("1.3,4.0")
    [(1, 3), (4, 0)]
    """
    pairs = (one.split(".") for one in listed.split(",") if one)
    return [(int(layer), int(head)) for layer, head in pairs]


def _add_routes(routes: "Routes") -> None:
    prompts = Prompts(routes.studio)

    @routes.json()
    def predictions(
        work: Work,
        text: Prompt,
        without: WithoutHeads = "",
        top: Top = 10,
        temperature: Temperature = 1.0,
    ) -> dict[str, Any]:
        """Return what the model predicts after a prompt, with heads taken away and with all.

        400 if there is no such head, 404 if there is no model.
        """
        return prompts.predictions(text, heads_listed(without), top, temperature, work)

    @routes.numbers("/maps")
    def maps(work: Work, text: Prompt, without: WithoutHeads = "") -> Tensor:
        """Return pooled maps of all heads, and the weight of the first token in a last column.

        400 if there is no such head to take away.
        """
        return prompts.maps(text, heads_listed(without), work)

    @routes.numbers("/weights")
    def weights(work: Work, text: Prompt, heads: _Shown, without: WithoutHeads = "") -> Tensor:
        """Return the weights of some heads, [heads, queries, keys]; −0 if the mask hides.

        400 if there is no such head.
        """
        return prompts.weights(text, heads_listed(without), heads_listed(heads), work)

    @routes.json("/model")
    def model() -> dict[str, Any] | None:
        """Describe the model: its name, layers, heads and parameters; null where none opens."""
        return described(routes.studio)


PANEL = Panel(words=WORDS, routes=_add_routes)
