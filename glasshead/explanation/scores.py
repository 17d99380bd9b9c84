"""Explanations of the score functions, by the formula that each computes."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from glasshead.explanation.numbers import factor, figure, products, short_vector, total
from glasshead.explanation.recipe import formula_of
from glasshead.explanation.subject import Subject
from glasshead.recipe.scores import Additive, Cosine, Dot, Gaussian, Score


class ScoreTelling(NamedTuple):
    """The explanation of a score: its formula, its numbers for some keys, and the reason."""

    formula: str
    numbers: tuple[str, ...]
    why: str


def by_key(subject: Subject, write: Callable[[list[float], list[float]], str]) -> tuple[str, ...]:
    """Format a line for each key that is written out: `write` of query and key, and the score.

    The score is the trace's own.
    """
    from_trace = subject.row("scores")
    query, keys = subject.used
    return subject.by_key(
        "s", lambda key: f"{write(query.tolist(), keys[key].tolist())} = {figure(from_trace[key])}"
    )


def tell_dot(subject: Subject) -> ScoreTelling:
    """Explain the dot product."""
    say = subject.say
    return ScoreTelling(
        "s = q·k = q₁·k₁ + q₂·k₂ + …",
        by_key(subject, lambda query, key: products(query, key, say)),
        say(
            "Why multiply and add: the sum is large where both vectors have large numbers in the "
            "same places, near 0 where they have nothing to do with each other, and negative where "
            "one is positive and the other negative. It measures how far the two point the same "
            "way."
        ),
    )


def tell_cosine(subject: Subject) -> ScoreTelling:
    """Explain the cosine: the dot product, divided by both lengths."""
    say = subject.say

    def written(query: list[float], key: list[float]) -> str:
        dot = math.fsum(a * b for a, b in zip(query, key, strict=True))
        lengths = math.hypot(*query), math.hypot(*key)
        return (
            f"({products(query, key, say)}) / (|q|·|k|) = "
            f"{factor(dot)} / ({figure(lengths[0])}·{figure(lengths[1])})"
        )

    return ScoreTelling(
        "s = q·k / (|q|·|k|),   |q| = √(q₁² + q₂² + …)",
        by_key(subject, written),
        say(
            "Why divide by the lengths |q| and |k|: then only the direction counts. The score is "
            "the cosine of the angle between the two vectors, 1 where they point the same way, 0 "
            "at a right angle, −1 where they are opposite; no key wins by being long. (A vector "
            "of zeros scores 0.)"
        ),
    )


def tell_gaussian(subject: Subject) -> ScoreTelling:
    """Explain the Gaussian score: differences, squared and summed."""
    say = subject.say

    def written(query: list[float], key: list[float]) -> str:
        pairs = zip(query, key, strict=True)
        return f"-[{total([f'({figure(a)}-{factor(b)})²' for a, b in pairs], say)}]"

    return ScoreTelling(
        "s = -|q - k|² = -[(q₁ - k₁)² + (q₂ - k₂)² + …]",
        by_key(subject, written),
        say(
            "Why a distance: a key in exactly the same place as the query scores 0, the highest "
            "there is, and the farther away a key is, the lower it scores. It measures how near "
            "the two are to each other."
        ),
    )


def tell_additive(subject: Subject) -> ScoreTelling:
    """Explain the additive score: the hidden layer, then its product with v."""
    say, score = subject.say, subject.problem.score
    if not isinstance(score, Additive):
        raise TypeError(f"tell_additive takes an Additive score, and got {type(score).__name__}.")
    v = score.v.detach().cpu().tolist()

    def written(query: list[float], key: list[float]) -> str:
        hidden = _hidden(score, query, key).tolist()
        return f"v·tanh(…) = {products(v, hidden, say)}"

    return ScoreTelling(
        "s = v·tanh(W_query·q + W_key·k)",
        (f"v = {short_vector(v)}", "", *by_key(subject, written)),
        say(
            "Why a network: two matrices, W_query and W_key, bring query and key into one common "
            "space, tanh squeezes each number of their sum to between −1 and 1, and the vector v "
            "weighs these numbers. All three are learned, so the network itself finds out what "
            "fits what. The attention that first learned to translate worked this way (Bahdanau et "
            "al., 2015)."
        ),
    )


def _hidden(score: Additive, query: list[float], key: list[float]) -> Tensor:
    """Compute tanh(W_query·q + W_key·k) for one pair."""
    with torch.no_grad():
        layers = score.W_query.weight.double().cpu(), score.W_key.weight.double().cpu()
        query_part, key_part = (
            layer @ torch.tensor(vector, dtype=torch.float64)
            for layer, vector in zip(layers, (query, key), strict=True)
        )
        return torch.tanh(query_part + key_part)


def tell_own(subject: Subject) -> ScoreTelling:
    """Explain a custom score by its results only."""
    score, scores = subject.problem.score, subject.row("scores")
    return ScoreTelling(
        f"s = {formula_of(score)}",
        subject.by_key("s", lambda key: figure(scores[key])),
        subject.say(
            "“{score}” is a score of your own, so only its results are shown here, not how it gets "
            "them.",
            score=type(score).__name__,
        ),
    )


def _runs(score: type[Score]) -> tuple[object, ...]:
    """Return the methods that compute a score: `forward`, and `features` where it has them."""
    return score.forward, getattr(score, "features", None)


# Keyed by methods, not by class: a subclass that computes something else is not its base.
_TELLERS = {
    _runs(Dot): tell_dot,
    _runs(Cosine): tell_cosine,
    _runs(Gaussian): tell_gaussian,
    _runs(Additive): tell_additive,
}


def tell_score(subject: Subject) -> ScoreTelling:
    """Explain the score of the subject's recipe."""
    return _TELLERS.get(_runs(type(subject.problem.score)), tell_own)(subject)
