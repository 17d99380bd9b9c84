"""A normalizer that is not this library's."""

from glasshead.explanation.figures import aligned, figure
from glasshead.explanation.normalizers.telling import NormalizerTelling
from glasshead.explanation.recipe import formula_of
from glasshead.explanation.subject import Subject


def tell_own(subject: Subject) -> NormalizerTelling:
    """The results alone: what a class of the user's own does inside is not known."""
    say, normalizer, weights = subject.say, subject.problem.normalizer, subject.row("weights")
    lines = [(f"p({subject.key_names[key]})", figure(weights[key])) for key in subject.written]
    return NormalizerTelling(
        intro=(say("The scores are turned into weights p, one for each key."),),
        formula=f"p_j = {formula_of(normalizer)}",
        numbers=aligned(lines),
        why=say(
            "“{normalizer}” is a normalizer of your own, so only its results are shown here, not "
            "how it gets them.",
            normalizer=type(normalizer).__name__,
        ),
    )
