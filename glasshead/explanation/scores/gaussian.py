"""Nearness: the negative squared distance."""

from glasshead.explanation.figures import factor, figure, total
from glasshead.explanation.scores.telling import ScoreTelling, by_key
from glasshead.explanation.subject import Subject


def tell_gaussian(subject: Subject) -> ScoreTelling:
    """Differences, squared and added up."""
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
