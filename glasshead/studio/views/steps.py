"""The view `steps`: every matrix of a small self-attention, and its explanation."""

import json
from collections.abc import Iterator
from dataclasses import Field, asdict, dataclass, field, make_dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any

from jaxtyping import Float
from torch import Tensor

from glasshead.drawing import Block, Paragraph, Table
from glasshead.explanation.embeddings import Projection, composed, head_counts, split
from glasshead.explanation.explain_trace import Sentence, SentenceAttention, names
from glasshead.explanation.explanation import json_ready
from glasshead.explanation.settings import Setting
from glasshead.explanation.walk import COLUMNS
from glasshead.ladder.worked_example import (
    EXAMPLES,
    HELLO_SHINY_SUN,
    JOURNEY,
    example_of,
    text_of,
)
from glasshead.message import _
from glasshead.recipe.problem import Trace
from glasshead.studio.background_jobs import Refusal, TooMuch
from glasshead.studio.panel import Panel
from glasshead.studio.parameters import HAS_A_SIGN, Language, text_limits
from glasshead.studio.stored_answers import ReportContent, StoredAnswers, report_note
from glasshead.studio.studio import Limits
from glasshead.studio.views.alignment import sentences_of
from glasshead.studio.views.steps_request import (
    MASKS,
    Beta,
    Mask,
    Normalizer,
    StepsRequest,
    betas,
    controls,
    normalizers,
    numbered,
    query_of,
    runs,
    scales,
    sentence_of,
    sums,
    thresholds,
)

if TYPE_CHECKING:
    from glasshead.studio.routes import Routes


WORDS = COLUMNS | {
    **{f"steps.{each.name}": Setting.of(each).label for each in controls()},
    "steps.title": _("Steps"),
    "steps.what": _("This page computes attention step by step, with every number."),
    "steps.show": _("Show"),
    "steps.examples": _("The worked examples"),
    "steps.choices": _("Settings"),
    # By their titles, and what these mean.
    "steps.source.A": _("A: Attention mechanisms (Dikkat Mekanizmaları)"),
    "steps.source.B": _("B: Attention mechanisms (Mecanismos de Atención)"),
    "steps.source.C": _("C: Day 13. Scaled dot-product attention"),
    "steps.source.D": _("D: Attention and transformer (Dikkat ve Dönüştürücü)"),
    "steps.source.E": _("E: Scaled dot-product attention (缩放点积注意力机制)"),
    "steps.mask.none": _("none"),
    "steps.mask.causal": _("causal"),
    "steps.mask.window": _("window"),
    "steps.matrices": _("Matrices, in order of computation"),
    "steps.queries": _("Queries"),
    "steps.context": _("Context"),
    "steps.hint": _(
        "Point at a cell, or tap it, to read how it is computed. Numbers are rounded; a cell shows "
        "as many decimals as fit."
    ),
    "steps.keyboard": _(
        "Tab and the arrow keys move among the cells, and Enter explains the word of the row."
    ),
    "steps.words": _("In words"),
    "steps.legend": _("Meaning of the colors"),
    "steps.hidden": _("hatched: hidden"),
    "steps.made": _("framed: inputs of the cell"),
}


_SHOWN = ("queries", "keys", "values", "scores", "scaled", "masked", "weights", "context")
# Maximum words whose cells have room for decimals.
_ROOMY = 8


@dataclass(frozen=True, eq=False)
class Computed:
    """A computed self-attention of a sentence."""

    attention: SentenceAttention
    trace: Trace

    @property
    def sentence(self) -> Sentence:
        """The words and their embeddings."""
        return self.attention.sentence

    @property
    def beta(self) -> float:
        """The factor of the scores."""
        return float(self.trace.problem.scale)

    def step(self, name: str) -> Float[Tensor, "words columns"]:
        """Return a step of the shown head."""
        return getattr(self.trace, name)[self.attention.index]


def computed(request: StepsRequest, limits: Limits) -> Computed:
    """Compute the self-attention of a sentence.

    Errors: a `Refusal` if the sentence has no word or too many; a ValueError if a setting is
    beyond its limits or does not go with another.
    """
    request.check()
    attention = SentenceAttention(sentence=sentence_of(request, limits), settings=request)
    return Computed(attention, attention.trace())


def steps_data(request: StepsRequest, limits: Limits) -> dict[str, Any]:
    """Return the matrices of a sentence's attention as JSON, and the available settings.

    A masked score is None. `sums` has the formulas of each matrix (see `sums`), and `scales` the
    matrices that share a color scale. `projection` has the embeddings x and the matrices that make
    queries, keys and values of them, or is None. `thresholds` has the threshold τ of each row for
    sparsemax and 1.5-entmax, and is None for the others.

    `options` has those of each setting, as names and how they are said; without `said`, a name is
    a number or is said in the page's language.

    Errors: as of `computed`.

    >>> data = steps_data(StepsRequest(), Limits())
    >>> data["words"], data["query"], data["matrices"]["scores"][1][0]
    (['Hello', 'shiny', 'sun'], 1, 0.7842)
    """
    made = computed(request, limits)
    tokens, projection = made.sentence.embeddings.tokens, made.attention.projection
    normalizer: Normalizer = made.attention.recipe.normalizer  # type: ignore[assignment]
    matrices = {name: json_ready(made.step(name)) for name in _SHOWN}
    options, own = _options(request, made), _own(request, made.sentence)
    beta = _nearest(options["beta"], request.chosen_beta, made.beta)
    # The numbers are the same for each query.
    given = {name: getattr(request, name) for name in options if name != "query"}
    return {
        "text": request.sentence,
        "examples": [HELLO_SHINY_SUN.text, JOURNEY.text],
        "words": list(names(tokens)),
        "query": made.sentence.default_query,
        "chosen": given | {"source": request.source or own["source"], "beta": beta},
        "beta": made.beta,
        "normalizer": normalizer,
        "matrices": matrices,
        "sums": sums(request, made.beta, normalizer, projected=projection is not None),
        "projection": None if projection is None else _projection(projection),
        "scales": scales(matrices),
        "decimals": {"cells": _decimals(request, len(tokens)), "sums": request.decimals},
        "thresholds": thresholds(matrices, normalizer),
        "options": options,
        "defaults": {each.name: each.default for each in controls() if each.name in options} | own,
    }


def _own(request: StepsRequest, sentence: Sentence) -> dict[str, Any]:
    """Return the defaults that follow from the sentence."""
    example = example_of(request.sentence)
    return {
        "source": example and text_of(example, None),
        "beta": request.own_beta,
        "query": sentence.default_query,
    }


def _options(request: StepsRequest, made: Computed) -> dict[str, list[dict[str, Any]]]:
    """Return the options of each setting, in the order of their controls."""
    width, example = made.attention.width, example_of(request.sentence)
    letters = () if example is None else EXAMPLES[example]
    words = names(made.sentence.embeddings.tokens)
    own = {
        "source": [{"name": letter} for letter in letters],
        "beta": betas(request, width // request.heads),
        "mask": [{"name": mask} for mask in MASKS],
        "normalizer": normalizers(),
        "heads": numbered(head_counts(width)),
        "head": numbered(range(request.heads)),
        "query": [{"name": place, "said": word} for place, word in enumerate(words)],
    }
    others = (each for each in controls() if each.name not in ("text", *own))
    return own | {each.name: numbered(Setting.of(each).numbers) for each in others}


def _block(block: Block) -> dict[str, Any]:
    """Return a table, or a paragraph, as JSON."""
    if isinstance(block, Table):
        return {"columns": list(block.columns), "rows": [list(row) for row in block.rows]}
    return {"text": block.text} if isinstance(block, Paragraph) else {}


def _projection(projection: Projection) -> dict[str, list[list[float]]]:
    """Return the embeddings x, and the matrices by the names of what they make of these."""
    made = {
        "x": projection.inputs,
        "queries": projection.W_query,
        "keys": projection.W_key,
        "values": projection.W_value,
    }
    return {name: json_ready(matrix) for name, matrix in made.items()}


def _decimals(request: StepsRequest, words: int) -> int:
    """Return the decimals of a cell, as far as they fit."""
    # The first example has no negative numbers.
    is_narrow = request.worked is not None and request.worked.text == HELLO_SHINY_SUN.text
    fitting = 4 if is_narrow else 3 if words <= _ROOMY else 0
    return min(fitting, request.decimals)


def _nearest(offered: list[dict[str, Any]], name: str, number: float) -> str:
    """Return the slider stop of a β, which may be listed under another name of equal value."""
    if any(stop["name"] == name for stop in offered):
        return name
    return next(stop["name"] for stop in offered if stop["value"] == number)


def steps_words(request: StepsRequest, lang: str, limits: Limits) -> dict[str, Any]:
    """Explain a sentence's attention in a language: title, notes and steps.

    Formulas, numbers and `why` are lines of runs, as from `runs`. `printed` are tables and
    sentences of what a text prints at a step.

    Errors: a `Refusal` as of `steps_data`, or if there is no such word; a ValueError if the
    language is unknown.

    >>> told = steps_words(StepsRequest(), "en", Limits())
    >>> [step["name"] for step in told["steps"]][:5]
    ['opening', 'inputs', 'scores', 'scaled', 'weights']
    >>> told["steps"][2]["numbers"][0]
    [('s(Hello) = 0.53·0.34 + 0.34·0.22 + 0.98·0.54 = 0.7842', '')]
    """
    made = computed(replace(request, lang=lang), limits)
    query = query_of(request, made.sentence)
    explanation = made.attention.explain(made.trace, query)
    steps = [
        {
            "name": step.name,
            "title": step.title,
            "text": list(step.intro),
            "formula": [runs(line) for line in step.formula.splitlines()],
            "numbers": [runs(line) for line in step.numbers],
            "why": runs(step.why),
            "printed": [_block(block) for block in step.printed],
        }
        for step in explanation.steps
        # At β = ∞, hard attention takes the scores as they are.
        if not (request.chosen_beta == "inf" and step.name == "scaled")
    ]
    return {
        "title": explanation.title,
        "query": query,
        "notes": list(explanation.notes),
        "steps": steps,
    }


Answer = tuple[str, dict[str, Any], dict[str, Any]]
"""A path, its parameters, and the answer."""

MOST_WORDS = 12
"""Maximum words of a sentence in a report."""
# Settings added in this order, as long as all their combinations fit.
_ADDITIONS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("beta", ("0.2", "inf", "5")),
    ("mask", ("causal",)),
    ("normalizer", ("sparsemax", "sigmoid")),
    ("query", ()),
    ("beta", ("1", "2", "10")),
    ("normalizer", ("softmax-one", "entmax15", "hardmax")),
    ("mask", ("window",)),
    ("beta", ("0.05",)),
    ("beta", ("0.1", "0.5", "20")),
)


@dataclass(frozen=True, kw_only=True)
class _Choices:
    """Settings whose combinations are all stored."""

    beta: tuple[Beta, ...]
    query: tuple[int, ...]
    mask: tuple[Mask, ...] = ("none",)
    normalizer: tuple[Normalizer, ...] = ("softmax",)

    def more(self, name: str, values: tuple[Any, ...]) -> "_Choices":
        return replace(self, **{name: tuple(dict.fromkeys((*getattr(self, name), *values)))})


def steps_stored(
    text: str | None, lang: str, limits: Limits, *, most: int = 1_000_000
) -> Iterator[Answer]:
    """Generate the answers of the view for a report, as (path, parameters, answer).

    The answers list only stored settings as options. Requests do not name the sentence, as a
    report has only one.

    Args:
        text: The sentence, of at most 12 words; None: the worked example.
        lang: Language code of the explanations.
        limits: Limits of the studio.
        most: Maximum bytes of the answers as JSON in UTF-8.

    Errors: a `Refusal` if the sentence has no word, or too many, as of `steps_data`.

    >>> answers = list(steps_stored(None, "en", Limits(), most=50_000))
    >>> answers[0][:2], answers[1][:2]
    (('steps', {}), ('steps/words', {'lang': 'en'}))
    """
    request = StepsRequest(text=text)
    data = steps_data(request, limits)
    words = data["words"]
    if len(words) > MOST_WORDS:
        raise TooMuch(
            "A sentence must have at most {most:,} words and marks, got {count:,}. Choose a "
            "shorter one.",
            most=MOST_WORDS,
            count=len(words),
        )
    choices = _fitting(request, data, steps_words(request, lang, limits), most)
    for each in _combinations(request, choices, len(data["matrices"]["queries"][0])):
        yield "steps", _parameters(each), _narrowed(steps_data(each, limits), choices)
        for query in choices.query:
            explained = replace(each, query=None if query == data["query"] else query)
            parameters = {**_parameters(explained), "lang": lang}
            yield "steps/words", parameters, steps_words(explained, lang, limits)


def _fitting(
    request: StepsRequest, data: dict[str, Any], explanation: dict[str, Any], most: int
) -> _Choices:
    """Choose as many settings as fit into `most` bytes."""
    choices = _Choices(beta=(request.own_beta,), query=(data["query"],))
    everything = tuple(range(len(data["words"])))
    for name, values in _ADDITIONS:
        larger = choices.more(name, everything if name == "query" else values)
        # Allow for longer answers than the default's, whose β has the fewest digits.
        numbers = int(1.25 * _size(_narrowed(data, larger)))
        words = int(1.1 * _size(explanation))
        count = len(larger.beta) * len(larger.mask) * len(larger.normalizer)
        if count * (numbers + len(larger.query) * words) > most:
            continue
        choices = larger
    return choices


def _combinations(request: StepsRequest, choices: _Choices, dim: int) -> Iterator[StepsRequest]:
    for mask, normalizer in product(choices.mask, choices.normalizer):
        each = replace(request, mask=mask, normalizer=normalizer)
        offered = [stop["name"] for stop in betas(each, dim)]
        yield from (replace(each, beta=beta) for beta in choices.beta if beta in offered)


def _narrowed(data: dict[str, Any], choices: _Choices) -> dict[str, Any]:
    """Restrict the options of an answer to the stored settings."""
    stored = {
        name: [each for each in options if each["name"] in getattr(choices, name, ())]
        for name, options in data["options"].items()
    }
    return {**data, "examples": [], "options": stored}


def _parameters(request: StepsRequest) -> dict[str, Any]:
    """Return the non-default parameters of a request, without the report's sentence."""
    return {name: value for name, value in request.parameters().items() if name != "text"}


def _size(answer: dict[str, Any]) -> int:
    return len(json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode())


# Bytes before compression, which is about twentyfold.
_STEPS_BYTES = 1_000_000


def export_steps(answers: StoredAnswers, content: ReportContent) -> list[str]:
    """Export the matrices and explanations of the first sentence, for most settings.

    Errors: a `Refusal` if the text has no word.
    """
    whole = [part for part in sentences_of(composed(content.text)) if split(part)]
    if not whole:
        raise Refusal("Enter at least one word, as a report needs a text.")
    sentence = beginning(whole[0], MOST_WORDS)
    limits = content.studio.limits
    answers.hold_all(steps_stored(sentence, content.lang, limits, most=_STEPS_BYTES), content.work)
    if len(whole) == 1 and sentence == whole[0]:
        return []
    return report_note(content, "sentence", count=len(split(sentence)))


def beginning(sentence: str, most: int) -> str:
    """Truncate a sentence after a number of words and punctuation marks.

    >>> beginning("The  sun, the moon.", 4)
    'The  sun, the'
    """
    end = 0
    for token in split(sentence)[:most]:
        end = sentence.index(token, end) + len(token)
    return sentence if len(split(sentence)) <= most else sentence[:end]


def _parameters_within(limits: Limits) -> type[Any]:
    """Create the dataclass of the parameters of the view: its settings, within their limits."""
    bounds = {
        "text": text_limits(HAS_A_SIGN, limits.sentence),
        "query": {"ge": 0, "lt": limits.words},
    }

    def parameter(each: "Field[Any]") -> tuple[str, Any, Any]:
        known = Setting.of(each)
        bound = bounds.get(each.name, {"ge": known.least, "le": known.most})
        return each.name, Annotated[each.type, bound], field(default=each.default)

    return make_dataclass("Parameters", map(parameter, controls()), frozen=True)


def _add_routes(routes: "Routes") -> None:
    limits = routes.studio.limits

    @dataclass(frozen=True)
    class Asked(_parameters_within(limits)):
        """The settings of the view."""

    @routes.at_once()
    def matrices(asked: Asked) -> dict[str, Any]:
        """Return the matrices of a sentence's attention at full precision, and the options.

        400 if parameters do not fit each other: a text that does not work the example, heads
        that do not divide the dimension, a head index out of range, or β = ∞ with a normalizer that
        has no hard limit. 413 if the sentence has too many words and punctuation marks.
        """
        return steps_data(StepsRequest(**asdict(asked)), limits)

    @routes.at_once("/words")
    def explanation(asked: Asked, lang: Language = "en") -> dict[str, Any]:
        """Explain one word's attention step by step, in one of five languages.

        400 and 413 as for the matrices, and 400 if the sentence has no word at `query`.
        """
        return steps_words(StepsRequest(**asdict(asked)), lang, limits)


PANEL = Panel(words=WORDS, routes=_add_routes)
