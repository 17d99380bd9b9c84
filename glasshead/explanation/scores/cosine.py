"""The cosine of the angle."""

import math

from glasshead.explanation.figures import factor, figure, products
from glasshead.explanation.scores.telling import ScoreTelling, by_key
from glasshead.explanation.subject import Subject


def tell_cosine(subject: Subject) -> ScoreTelling:
    """The dot product, divided by both lengths."""
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
