"""Requests of the view `steps`: settings, and the formula and worked lines of each matrix."""

import re
from collections.abc import Iterable
from dataclasses import Field, dataclass, field, fields, replace
from html import unescape
from typing import Any, Literal, get_args

from glasshead.drawing.document import subscripts
from glasshead.explanation.choices import HARDENING, NORMALIZERS
from glasshead.explanation.embeddings import Embeddings, composed, split
from glasshead.explanation.explain_trace import Sentence, VectorSource
from glasshead.explanation.figures import figure
from glasshead.explanation.normalizers import entmax15_threshold, sparsemax_threshold
from glasshead.explanation.settings import ExplanationSettings, Setting, known_of
from glasshead.ladder.worked_example import HELLO_SHINY_SUN
from glasshead.message import _
from glasshead.studio.background_jobs import Refusal, TooMuch
from glasshead.studio.panel import Panel
from glasshead.studio.studio import Limits

WORDS = {
    "steps.sum": _("How the cell is computed"),
    "steps.full": _("in full"),
    "steps.of.queries": _("Number {number} of the query of “{word}”"),
    "steps.of.keys": _("Number {number} of the key of “{word}”"),
    "steps.of.values": _("Number {number} of the value of “{word}”"),
    "steps.of.scores": _("Score of “{query}” and “{key}”"),
    "steps.of.scaled": _("Scaled score of “{query}” and “{key}”"),
    "steps.of.masked": _("Score of “{query}” and “{key}” after masking"),
    "steps.of.weights": _("Weight that “{query}” gives to “{key}”"),
    "steps.of.context": _("Number {number} of the context of “{word}”"),
    "steps.embedding": _("It is number {number} of the embedding x of the word, as it is."),
    "steps.projected": _("It is the embedding x of the word times column {number} of the matrix."),
    "steps.seen": _("The mask lets “{query}” see “{key}”: the score stays as it is."),
    "steps.seen.none": _("There is no mask: the score stays as it is."),
    "steps.hides.causal": _(
        "“{key}” comes after “{query}”, and the causal mask hides what comes later."
    ),
    "steps.hides.window": _(
        "“{key}” is more than one word away from “{query}”, and the window ends there."
    ),
    "steps.nothing": _("The key is hidden, and what is hidden gets no weight."),
    "steps.largest": _("The score is the largest of the row, so its key gets all the weight."),
    "steps.first": _("Ties go to the first, so its key gets all the weight."),
    "steps.second": _("An equal score stands before it and wins, so this key gets nothing."),
    "steps.smaller": _("A larger score stands in the row, so this key gets nothing."),
    "steps.sparse": _("τ is chosen so that the weights of the row add up to 1."),
    "steps.sink": _("The first term of Σ is the sink, which takes weight and gives no value."),
    "steps.shifted": _(
        "The largest score m = {largest} is subtracted from each score, which changes nothing."
    ),
    "steps.hard": _("β = ∞ gives all the weight to the largest score, as HardMax does."),
}


Beta = Literal[
    "auto", "0.05", "0.1", "0.2", "0.3", "0.5", "0.7", "1", "1.5", "2", "3", "5", "7", "10",
    "20", "50", "inf",
]  # fmt: skip
Mask = Literal["none", "causal", "window"]
Source = Literal["A", "B", "C", "D", "E"]
Normalizer = Literal["softmax", "softmax-one", "hardmax", "sparsemax", "entmax15", "sigmoid"]

BETAS: tuple[Beta, ...] = get_args(Beta)
"""Values of β from soft to hard: "auto" is 1/√d, "inf" gives all weight to the largest score."""
MASKS: tuple[Mask, ...] = get_args(Mask)
"""Masks; the window spans the word itself and one on either side."""
STEPS_NORMALIZERS: tuple[Normalizer, ...] = get_args(Normalizer)


@dataclass(frozen=True, kw_only=True)
class StepsRequest(ExplanationSettings):
    """The settings as the view offers them, which has a control for each with a label.

    The query is a position, from 0.

    >>> StepsRequest(mask="causal", head=0).parameters()
    {'mask': 'causal'}
    """

    source: Source | None = field(default=None, metadata=known_of("source"))
    beta: Beta | None = field(default=None, metadata=known_of("beta"))
    mask: Mask = field(default="none", metadata=known_of("mask"))
    normalizer: Normalizer = field(default="softmax", metadata=known_of("normalizer"))
    heads: int = field(default=1, metadata=known_of("heads", most=4))
    head: int = field(default=0, metadata=known_of("head", least=0, most=3))
    query: int | None = field(default=None, metadata=known_of("query"))

    @property
    def sentence(self) -> str:
        return HELLO_SHINY_SUN.text if self.text is None else self.text

    @property
    def mask_text(self) -> str:
        return "window:1:1" if self.mask == "window" else self.mask

    @property
    def chosen_beta(self) -> Beta:
        """The β in use."""
        return self.beta or self.own_beta

    def parameters(self) -> dict[str, str | int]:
        """Return the non-default settings as URL parameters."""
        request = replace(self, beta=None) if self.beta == self.own_beta else self
        given = {each.name: getattr(request, each.name) for each in controls()}
        return {name: value for name, value in given.items() if value != _DEFAULTS[name]}


def controls() -> "list[Field[Any]]":
    """Return the settings that have a control in the view."""
    return [each for each in fields(StepsRequest) if Setting.of(each).label]


_DEFAULTS = {each.name: each.default for each in fields(StepsRequest)}


def sentence_of(request: StepsRequest, limits: Limits) -> Sentence:
    """Return the words and their embeddings: the worked example's, or made-up ones.

    Errors: a `Refusal` if there is no word, or there are too many.

    >>> sentence_of(StepsRequest(text="Hello, sun!"), Limits()).embeddings.tokens
    ('Hello', ',', 'sun', '!')
    """
    if request.worked is not None:
        return Sentence.of_the_texts(request.worked)
    words = _words(request.sentence, limits)
    return Sentence(Embeddings.generated(words), VectorSource.GENERATED)


def query_of(request: StepsRequest, sentence: Sentence) -> int:
    """Return the position of the explained word.

    Errors: a `Refusal` if the sentence has no such position.
    """
    if request.query is None:
        return sentence.default_query
    count = len(sentence.embeddings.tokens)
    if not 0 <= request.query < count:
        raise Refusal(
            "query must be a position from 0 to {most}, got {place}. Words in the sentence: "
            "{count}.",
            most=count - 1,
            place=request.query,
            count=count,
        )
    return request.query


def _words(text: str, limits: Limits) -> list[str]:
    if len(text) > limits.sentence:
        raise TooMuch(
            "A sentence must have at most {most:,} characters, but this one has {count:,}. Choose "
            "a shorter one.",
            most=limits.sentence,
            count=len(text),
        )
    if any(0xD800 <= ord(character) <= 0xDFFF for character in text):
        raise Refusal("a sentence must have whole characters, got halves of some. Retype it.")
    words = split(composed(text))
    if not words:
        raise Refusal("Enter at least one word.")
    if len(words) > limits.words:
        raise TooMuch(
            "A sentence must have at most {most:,} words and marks, but this one has {count:,}. "
            "Choose a shorter one.",
            most=limits.words,
            count=len(words),
        )
    return words


_MARK = re.compile(r"<(/?)(su[bp])>")

Run = tuple[str, str]
"""A text and its markup: "", "sub", "sup", or "sup sub" for the index of an exponent."""


def runs(line: str) -> list[Run]:
    """Split a formula into runs of plain, subscript and superscript text.

    >>> runs("p_j = e^s_j")
    [('p', ''), ('j', 'sub'), (' = e', ''), ('s', 'sup'), ('j', 'sup sub')]
    """
    found: list[Run] = []
    places: list[str] = []
    done = 0
    html = str(subscripts(line))
    for mark in [*_MARK.finditer(html), None]:
        text = html[done : mark.start() if mark else None]
        if text:
            found.append((unescape(text), " ".join(places)))
        if mark is None:
            break
        if mark[1]:
            places.pop()
        else:
            places.append(mark[2])
        done = mark.end()
    return found


# The page fills in placeholders such as {score} by name (steps-sums.js).
_VECTOR_ENTRY = "{letter}{number}({word}) = {x}({word}) = {value}"
_PROJECTED_ENTRY = "{letter}{number}({word}) = {entries} = {value}"
_SOFTMAX = (
    "Σ = {powers} = {total}",
    "p = {power} / Σ = {share} / {total} = {value}",
)
_WEIGHTS: dict[Normalizer, tuple[str, ...]] = {
    "softmax": _SOFTMAX,
    "softmax-one": _SOFTMAX,
    "hardmax": (
        "max s = max({seen}) = {largest}",
        "s = {score},   p = {value}",
    ),
    "sparsemax": (
        "τ = ({above} − 1) / {count} = {threshold}",
        "p = max({score} − {subtracted}, 0) = {value}",
    ),
    "entmax15": ("τ = {threshold}", "p = max({score}/2 − {subtracted}, 0)² = {value}"),
    "sigmoid": ("p = 1 / (1 + {inverse}) = {value}",),
}
_NOTES: dict[Normalizer, str] = {
    "softmax-one": "steps.sink",
    "sparsemax": "steps.sparse",
    "entmax15": "steps.sparse",
}


def sums(
    request: StepsRequest, beta: float, normalizer: Normalizer, *, projected: bool = False
) -> dict[str, dict[str, Any]]:
    """Return the formula of each matrix, the worked lines behind a cell, and the name of its note.

    Args:
        request: The settings.
        beta, normalizer: Those in use.
        projected: Whether matrices make queries, keys and values of the embeddings.

    Masked cells have lines of their own. A formula is a text or the name of a string.

    >>> made = sums(StepsRequest(mask="causal"), 1.0, "softmax")
    >>> made["scores"]["lines"], made["masked.hidden"]["note"]
    (['s = q·k = {products} = {value}'], 'steps.hides.causal')
    """
    mask = request.mask
    hard = "steps.hard" if request.chosen_beta == "inf" else None
    entry = _PROJECTED_ENTRY if projected else _VECTOR_ENTRY
    note = "steps.projected" if projected else "steps.embedding"
    written = figure(beta, request.decimals)
    letters = {"queries": "Q", "keys": "Kᵀ", "values": "V"}
    return {
        **{name: _sum(letter, entry, note=note) for name, letter in letters.items()},
        "scores": _sum("Q·Kᵀ", "s = q·k = {products} = {value}"),
        "scaled": _sum(f"× β = {written}", "β·s = {beta}·{unscaled} = {value}", note=hard),
        "masked": _sum(
            f"steps.mask.{mask}",
            "s = {scaled}",
            note="steps.seen.none" if mask == "none" else "steps.seen",
        ),
        "masked.hidden": _sum("", "s = {scaled} → −∞", note=f"steps.hides.{mask}"),
        "weights": _sum(
            NORMALIZERS[normalizer], *_WEIGHTS[normalizer], note=_NOTES.get(normalizer)
        ),
        "weights.hidden": _sum("", "s → {score},   p = {value}", note="steps.nothing"),
        "context": _sum("P·V", "c{number} = Σ p·v{number} = {shares} = {value}"),
    }


def scales(matrices: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the matrices that share a color scale, and the upper end of each scale.

    No number is above the end of its scale, so that equal colors are equal numbers.

    >>> vectors = {"queries": [[0.5, -2.0]], "keys": [[1.0]], "values": [[3.0]], "context": [[0]]}
    >>> scores = {"scores": [[4.25]], "scaled": [[8.5]], "masked": [[None]]}
    >>> [scale["top"] for scale in scales(vectors | scores)]
    [3.0, 8.5, 1]
    """
    groups = (("queries", "keys", "values", "context"), ("scores", "scaled", "masked"))
    return [
        *(
            {"names": list(names), "top": max(_largest(matrices[name]) for name in names)}
            for names in groups
        ),
        {"names": ["weights"], "top": 1},
    ]


def thresholds(matrices: dict[str, Any], normalizer: Normalizer) -> list[float] | None:
    """Compute the threshold τ that sparsemax or 1.5-entmax subtracts in each row, else None."""
    if normalizer not in _THRESHOLDS:
        return None
    rows = zip(matrices["masked"], matrices["weights"], strict=True)
    return [_THRESHOLDS[normalizer](scores, weights) for scores, weights in rows]


def _sum(formula: str, *lines: str, note: str | None = None) -> dict[str, Any]:
    given = {"formula": formula, "lines": list(lines), "note": note}
    return {name: value for name, value in given.items() if value}


def _largest(rows: list[list[float | None]]) -> float:
    return max((abs(number) for row in rows for number in row if number is not None), default=0.0)


_THRESHOLDS = {"sparsemax": sparsemax_threshold, "entmax15": entmax15_threshold}


def normalizers() -> list[dict[str, Any]]:
    """List the normalizers: name, display name, and whether β = ∞ is allowed."""
    return [
        {"name": name, "said": said, "hardens": name in HARDENING}
        for name, said in NORMALIZERS.items()
    ]


def numbered(numbers: Iterable[int]) -> list[dict[str, Any]]:
    """List numbers as options.

    >>> numbered([3, 5])
    [{'name': 3}, {'name': 5}]
    """
    return [{"name": number} for number in numbers]


def betas(request: StepsRequest, dim: int) -> list[dict[str, Any]]:
    """List the slider stops of β from soft to hard, without duplicates; the value of ∞ is None.

    Of two names for one value, such as 0.5 and 1/√4, the default's stays, or else "auto".

    >>> stops = betas(StepsRequest(text="Any other"), dim=4)
    >>> [stop["name"] for stop in stops][:6], stops[-1]
    (['0.05', '0.1', '0.2', '0.3', 'auto', '0.7'], {'name': 'inf', 'value': None, 'said': '∞'})
    >>> stops[4]
    {'name': 'auto', 'value': 0.5, 'said': '1/√4 = 0.5'}
    """
    auto = dim**-0.5
    numbers = {name: auto if name == "auto" else float(name) for name in BETAS}
    twin = next((name for name in BETAS if name != "auto" and numbers[name] == auto), None)
    hidden = "auto" if twin is not None and twin == request.own_beta else twin
    stops = sorted((value, name) for name, value in numbers.items() if name not in (hidden, "inf"))
    said = {name: figure(value, request.decimals) for value, name in stops}
    said["auto"] = f"1/√{dim} = {figure(auto, request.decimals)}"
    offered: list[dict[str, Any]] = [
        {"name": name, "value": value, "said": said[name]} for value, name in stops
    ]
    if request.normalizer in HARDENING:
        offered.append({"name": "inf", "value": None, "said": "∞"})
    return offered


PANEL = Panel(words=WORDS)
