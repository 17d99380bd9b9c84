"""Storing: the answers that a report keeps, few enough for one small file."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from glasshead.studio.limits import Limits
from glasshead.studio.refusals import TooMuch
from glasshead.studio.views.steps.asked import Beta, Mask, Normalizer, StepsAsked
from glasshead.studio.views.steps.computing import steps_data
from glasshead.studio.views.steps.offering import betas
from glasshead.studio.views.steps.telling import steps_words

Answer = tuple[str, dict[str, Any], dict[str, Any]]
"""The path that is asked, its parameters, and what is answered."""

MOST_WORDS = 12
"""How many words a sentence has at most that is stored."""
# What is added to the choices, as long as there is room for all their combinations.
_MORE: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("betas", ("0.2", "inf", "5")),
    ("masks", ("causal",)),
    ("normalizers", ("sparsemax", "sigmoid")),
    ("queries", ()),
    ("betas", ("1", "2", "10")),
    ("normalizers", ("softmax-one", "entmax15", "hardmax")),
    ("masks", ("window",)),
    ("betas", ("0.05",)),
    ("betas", ("0.1", "0.5", "20")),
)


@dataclass(frozen=True, kw_only=True)
class _Choices:
    """The choices whose every combination is stored."""

    betas: tuple[Beta, ...]
    queries: tuple[int, ...]
    masks: tuple[Mask, ...] = ("none",)
    normalizers: tuple[Normalizer, ...] = ("softmax",)

    def more(self, name: str, values: tuple[Any, ...]) -> "_Choices":
        return replace(self, **{name: tuple(dict.fromkeys((*getattr(self, name), *values)))})


def steps_stored(
    text: str | None, lang: str, limits: Limits, *, most: int = 1_000_000
) -> Iterator[Answer]:
    """What the page may ask of a report's one sentence: (path, parameters, answer), one by one.

    The answers offer only what is stored. The sentence is the report's own: the page names none.

    Args:
        text: The sentence, of at most 12 words; None: the worked example.
        lang: The language of the words.
        limits: Those of the studio.
        most: Bytes that the answers may take as JSON in UTF-8.

    Errors: a `Refusal` where the sentence has no word, or too many, as of `steps_data`.

    >>> answers = list(steps_stored(None, "en", Limits(), most=50_000))
    >>> answers[0][:2], answers[1][:2]
    (('steps', {}), ('steps/words', {'lang': 'en'}))
    """
    asked = StepsAsked(text=text)
    data = steps_data(asked, limits)
    words = data["words"]
    if len(words) > MOST_WORDS:
        raise TooMuch(
            f"a report takes a sentence of at most {MOST_WORDS} words, and got {len(words)}: cut "
            f"it."
        )
    choices = _fitting(asked, data, steps_words(asked, lang, limits), most)
    for each in _combinations(asked, choices, len(data["matrices"]["queries"][0])):
        yield "steps", _named(each), _narrowed(steps_data(each, limits), choices)
        for query in choices.queries:
            told = replace(each, query=None if query == data["query"] else query)
            parameters = {**_named(told), "lang": lang}
            yield "steps/words", parameters, steps_words(told, lang, limits)


def _fitting(asked: StepsAsked, data: dict[str, Any], told: dict[str, Any], most: int) -> _Choices:
    """As many choices as there is room for."""
    choices = _Choices(betas=(asked.default_beta,), queries=(data["query"],))
    everything = tuple(range(len(data["words"])))
    for name, values in _MORE:
        larger = choices.more(name, everything if name == "queries" else values)
        # Others say more than these two, whose β is the plainest.
        numbers, words = int(1.25 * _size(_narrowed(data, larger))), int(1.1 * _size(told))
        count = len(larger.betas) * len(larger.masks) * len(larger.normalizers)
        if count * (numbers + len(larger.queries) * words) > most:
            continue
        choices = larger
    return choices


def _combinations(asked: StepsAsked, choices: _Choices, dim: int) -> Iterator[StepsAsked]:
    for mask, normalizer in product(choices.masks, choices.normalizers):
        each = replace(asked, mask=mask, normalizer=normalizer)
        offered = [stop["name"] for stop in betas(each, dim)]
        yield from (replace(each, beta=beta) for beta in choices.betas if beta in offered)


def _narrowed(data: dict[str, Any], choices: _Choices) -> dict[str, Any]:
    """An answer that offers what is stored, and nothing else."""
    options = data["options"]
    named = {"betas": choices.betas, "normalizers": choices.normalizers}
    stored = {
        name: [each for each in options[name] if each["name"] in kept]
        for name, kept in named.items()
    }
    stored["masks"] = [mask for mask in options["masks"] if mask in choices.masks]
    return {**data, "options": {**stored, "heads": [1], "queries": sorted(choices.queries)}}


def _named(asked: StepsAsked) -> dict[str, Any]:
    """What the page asks for: it leaves out the defaults, and the report's own sentence."""
    return {name: value for name, value in asked.parameters().items() if name != "text"}


def _size(answer: dict[str, Any]) -> int:
    return len(json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode())
