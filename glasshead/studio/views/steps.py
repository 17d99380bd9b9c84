"""The view `steps`: every number of one small attention, and the words beside them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from jaxtyping import Float
from torch import Tensor

import glasshead as gh
from glasshead.explanation.choices import HARDENING, NORMALIZERS
from glasshead.explanation.embeddings import MADE_UP_SEED, Embeddings, head_counts, in_heads
from glasshead.explanation.explain_trace import names
from glasshead.explanation.explanation import json_ready, on_made_up_embeddings, on_one_of_heads
from glasshead.explanation.language import Say
from glasshead.ladder.worked_example import HELLO_SHINY_SUN
from glasshead.recipe.problem import Trace
from glasshead.studio.studio import Limits
from glasshead.studio.views.steps_request import (
    MASKS,
    Beta,
    Mask,
    Normalizer,
    StepsAsked,
    betas,
    normalizers,
    query_of,
    runs,
    scales,
    sentence_of,
    sums,
    thresholds,
)
from glasshead.studio.work import Refusal, TooMuch

_SHOWN = ("queries", "keys", "values", "scores", "scaled", "masked", "weights", "context")
# With more words than that, cells are too small for numbers.
_CLOSE = 8


@dataclass(frozen=True, eq=False)
class Computed:
    """An attention that was asked for.

    Attributes:
        sentence: The words and their vectors.
        trace: Every step of it; `[words, dim]`, or with heads `[1, heads, words, dim / heads]`.
        index: The leading axes of what is shown: none, or the head's.
        beta: The number that scores were multiplied by.
        normalizer: The one that was taken: with β = ∞ it is HardMax.
    """

    sentence: Embeddings
    trace: Trace
    index: tuple[int, ...]
    beta: float
    normalizer: Normalizer

    def step(self, name: str) -> Float[Tensor, "words columns"]:
        """A step of the head that is shown."""
        return getattr(self.trace, name)[self.index]


def computed(asked: StepsAsked, limits: Limits) -> Computed:
    """Compute the self-attention of the sentence: queries, keys and values are its vectors.

    Errors: a `Refusal` where the sentence has no word or too many, heads do not divide its
    vectors, there is no such head, or the normalizer never becomes hard.
    """
    sentence = sentence_of(asked, limits)
    width = sentence.vectors.shape[-1]
    _check_heads(asked, width)
    dim = width // asked.heads
    normalizer, beta = asked.normalizer, asked.chosen_beta
    if beta == "inf":
        if normalizer not in HARDENING:
            raise Refusal(
                f"β = ∞ is the hardest attention, which {NORMALIZERS[normalizer]} never "
                f"reaches: leave one of the two out."
            )
        normalizer, beta = "hardmax", asked.default_beta
    number = dim**-0.5 if beta == "auto" else float(beta)
    attention = gh.Attention(
        score=gh.Dot(beta=number) if asked.is_worked_example else _scaled(beta, number),
        mask={"none": None, "causal": gh.causal(), "window": gh.window(before=1, after=1)}[
            asked.mask
        ],
        normalizer=getattr(gh, NORMALIZERS[normalizer])(),
    )
    vectors = in_heads(sentence.vectors, asked.heads)
    trace = attention.trace(vectors, vectors, vectors)
    index = () if asked.heads == 1 else (0, asked.head)
    return Computed(sentence, trace, index, number, normalizer)


def steps_data(asked: StepsAsked, limits: Limits) -> dict[str, Any]:
    """The matrices of a sentence's attention, in full, and what else may be chosen for it.

    Where a score is hidden, it is None. `sums` says how the numbers of each matrix are made (see
    `sums`), and `scales` which of them share their colours. `thresholds` has for each row what
    sparsemax and 1.5-entmax subtract, and is None for the others.

    Errors: a `Refusal`, as of `computed`.

    >>> data = steps_data(StepsAsked(), Limits())
    >>> data["words"], data["query"], data["matrices"]["scores"][1][0]
    (['Hello', 'shiny', 'sun'], 1, 0.7842)
    """
    made = computed(asked, limits)
    tokens, width = made.sentence.tokens, made.sentence.vectors.shape[-1]
    matrices = {name: json_ready(made.step(name)) for name in _SHOWN}
    offered = betas(asked, width // asked.heads)
    return {
        "text": asked.text or HELLO_SHINY_SUN.text,
        "worked": asked.is_worked_example,
        "words": list(names(tokens)),
        "query": query_of(asked.without_query(), tokens),
        "chosen": {
            "beta": _nearest(offered, asked.chosen_beta, made.beta),
            "mask": asked.mask,
            "normalizer": asked.normalizer,
            "heads": asked.heads,
            "head": asked.head,
        },
        "beta": made.beta,
        "normalizer": made.normalizer,
        "matrices": matrices,
        "sums": sums(asked, made.beta, made.normalizer),
        "scales": scales(matrices),
        "decimals": _decimals(asked, len(tokens)),
        "thresholds": thresholds(matrices, made.normalizer),
        "options": {
            "betas": offered,
            "masks": list(MASKS),
            "normalizers": normalizers(),
            "heads": head_counts(width),
            "queries": list(range(len(tokens))),
        },
        "defaults": {
            "beta": asked.default_beta,
            "mask": "none",
            "normalizer": "softmax",
            "heads": 1,
            "head": 0,
            "query": query_of(asked.without_query(), tokens),
        },
    }


def _decimals(asked: StepsAsked, words: int) -> int:
    """How many decimals a cell has room for: nothing of the worked example is below 0."""
    if asked.is_worked_example:
        return 3
    return 2 if words <= _CLOSE else 0


def _scaled(beta: str, number: float) -> gh.Score:
    return gh.ScaledDot() if beta == "auto" else gh.ScaledDot(beta=number)


def _check_heads(asked: StepsAsked, width: int) -> None:
    if asked.heads < 1 or width % asked.heads:
        raise Refusal(
            f"{asked.heads} heads do not divide vectors of {width} numbers into equal parts: take "
            f"one of {', '.join(map(str, head_counts(width)))}."
        )
    if not 0 <= asked.head < asked.heads:
        raise Refusal(
            f"head takes one from 0 to {asked.heads - 1}, and got {asked.head}: there are "
            f"{asked.heads} of them."
        )


def _nearest(offered: list[dict[str, Any]], name: str, number: float) -> str:
    """The stop of the slider that was asked for: the same number may have another name there."""
    if any(stop["name"] == name for stop in offered):
        return name
    return next(stop["name"] for stop in offered if stop["value"] == number)


def steps_words(asked: StepsAsked, lang: str, limits: Limits) -> dict[str, Any]:
    """The title, the notes and the steps of the explanation, in a language.

    Formulas and numbers are lines of runs, as of `runs`.

    Errors: a `Refusal` as of `steps_data`, or where there is no such word; a ValueError where the
    language is not there.

    >>> told = steps_words(StepsAsked(), "en", Limits())
    >>> [step["name"] for step in told["steps"]][:5]
    ['opening', 'inputs', 'scores', 'scaled', 'weights']
    >>> told["steps"][2]["numbers"][0]
    [('s(Hello) = 0.53·0.34 + 0.34·0.22 + 0.98·0.54 = 0.7842', '')]
    """
    made = computed(asked, limits)
    query = query_of(asked, made.sentence.tokens)
    told = gh.explain(
        made.trace,
        tokens=made.sentence.tokens,
        query=query,
        lang=lang,
        index=made.index,
        printed=HELLO_SHINY_SUN if _is_printed(asked, made.sentence.tokens[query]) else None,
    ).to_dict()
    steps = [
        {
            "name": step["name"],
            "title": step["title"],
            "text": step["text"],
            "formula": [runs(line) for line in step["formula"].splitlines()],
            "numbers": [runs(line) for line in step["numbers"]],
            "why": step["why"],
        }
        for step in told["steps"]
    ]
    return {
        "title": told["title"],
        "query": query,
        "notes": _notes(asked, Say(lang)),
        "steps": steps,
    }


def _is_printed(asked: StepsAsked, word: str) -> bool:
    """Whether the texts print the numbers of this very attention."""
    bare = asked.without_query().parameters().keys() <= {"text"}
    return asked.is_worked_example and bare and word == HELLO_SHINY_SUN.query


def _notes(asked: StepsAsked, say: Say) -> list[str]:
    """What was made up, in the sentences of `glasshead explain`."""
    notes = []
    if not asked.is_worked_example:
        notes.append(on_made_up_embeddings(say, MADE_UP_SEED))
    if asked.heads > 1:
        notes.append(on_one_of_heads(say, asked.heads, asked.head))
    return notes


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
