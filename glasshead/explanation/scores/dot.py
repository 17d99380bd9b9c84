"""The dot product, plain and scaled."""

from glasshead.explanation.figures import products
from glasshead.explanation.scores.telling import ScoreTelling, by_key
from glasshead.explanation.subject import Subject


def tell_dot(subject: Subject) -> ScoreTelling:
    """Number by number, multiplied and added up."""
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
