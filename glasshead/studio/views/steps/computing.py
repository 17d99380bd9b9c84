"""Computing: the attention that is asked for, and its matrices with every digit."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

import glasshead as gh
from glasshead.explanation.choices import HARDENING, NORMALIZERS
from glasshead.explanation.embeddings import Embeddings
from glasshead.explanation.explain import names
from glasshead.explanation.explanation import json_ready
from glasshead.explanation.projection import head_counts, in_heads
from glasshead.ladder.worked_example import HELLO_SHINY_SUN
from glasshead.recipe.trace import Trace
from glasshead.studio.limits import Limits
from glasshead.studio.refusals import Refusal
from glasshead.studio.views.steps.asked import MASKS, Normalizer, StepsAsked
from glasshead.studio.views.steps.offering import betas, normalizers
from glasshead.studio.views.steps.sentence import query_of, sentence_of
from glasshead.studio.views.steps.sums import scales, sums, thresholds

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
