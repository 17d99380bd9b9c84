"""Softmax's sparse relatives."""

import math

from glasshead.explanation.figures import factor, figure, total
from glasshead.explanation.normalizers.telling import NormalizerTelling, by_key
from glasshead.explanation.subject import Subject


def tell_sparsemax(subject: Subject) -> NormalizerTelling:
    """A threshold that all scores lose, and what is left of them."""
    say, scores = subject.say, subject.row("masked")
    above = _above(subject)
    terms = [factor(scores[key]) for key in above]
    threshold = (math.fsum(scores[key] for key in above) - 1) / max(len(above), 1)
    return NormalizerTelling(
        intro=(
            say(
                "The sparsemax subtracts one threshold τ (tau) from every score. What is left "
                "above 0 is the weight p; whatever falls below gets exactly 0. τ is chosen so that "
                "the weights add up to 1: add up the scores that stay above it, subtract 1, and "
                "divide by their number, here {count}.",
                count=len(above),
            ),
        ),
        formula="p_j = max(s_j - τ, 0),   Σ p_j = 1",
        numbers=(
            f"τ = ({total(terms, say)} - 1) / {len(above)} = {figure(threshold)}",
            "",
            *by_key(subject, lambda s: f"max({figure(s)} - {factor(threshold)}, 0)"),
        )
        if above
        else (),
        why=say(
            "Why cut off: a softmax never gives exactly 0, so in a long text many tiny weights add "
            "up to a lot. Visible keys that get nothing at all here: {zeros} of {seen}.",
            zeros=len(subject.seen) - len(above),
            seen=len(subject.seen),
        ),
    )


def tell_entmax15(subject: Subject) -> NormalizerTelling:
    """A threshold that half of each score loses, and the square of what is left."""
    say, scores, weights = subject.say, subject.row("masked"), subject.row("weights")
    above = _above(subject)
    best = max(above, key=lambda key: weights[key], default=None)
    threshold = 0.0 if best is None else scores[best] / 2 - math.sqrt(weights[best])
    return NormalizerTelling(
        intro=(
            say(
                "This is 1.5-entmax, halfway between softmax and sparsemax: one threshold τ (tau) "
                "is subtracted from half of every score, and what is left above 0 is squared. "
                "Whatever falls below gets exactly 0. τ is found by a search, so that the weights "
                "p add up to 1: here it is {threshold}.",
                threshold=figure(threshold),
            ),
        ),
        formula="p_j = max(s_j/2 - τ, 0)²,   Σ p_j = 1",
        numbers=(
            f"τ = {figure(threshold)}",
            "",
            *by_key(subject, lambda s: f"max({figure(s)}/2 - {factor(threshold)}, 0)²"),
        )
        if above
        else (),
        why=say(
            "Why halfway: like sparsemax it gives exactly 0 to keys that do not matter (here to "
            "{zeros} of the {seen} visible ones); like softmax it is smooth, without a sharp bend, "
            "which makes it easier to train.",
            zeros=len(subject.seen) - len(above),
            seen=len(subject.seen),
        ),
    )


def _above(subject: Subject) -> list[int]:
    """The keys that get any weight."""
    return [key for key, weight in enumerate(subject.row("weights")) if weight > 0]
