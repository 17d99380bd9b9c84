"""A score that is not this library's."""

from glasshead.explanation.figures import aligned, figure
from glasshead.explanation.recipe import formula_of
from glasshead.explanation.scores.telling import ScoreTelling
from glasshead.explanation.subject import Subject


def tell_own(subject: Subject) -> ScoreTelling:
    """The results alone: what a class of the user's own does inside is not known."""
    score, scores = subject.problem.score, subject.row("scores")
    lines = [(f"s({subject.key_names[key]})", figure(scores[key])) for key in subject.written]
    return ScoreTelling(
        f"s = {formula_of(score)}",
        aligned(lines),
        subject.say(
            "“{score}” is a score of your own, so only its results are shown here, not how it gets "
            "them.",
            score=type(score).__name__,
        ),
    )
