"""How each kind of score is told: by the formula that it computes."""

from glasshead.explanation.scores.additive import tell_additive
from glasshead.explanation.scores.cosine import tell_cosine
from glasshead.explanation.scores.dot import tell_dot
from glasshead.explanation.scores.gaussian import tell_gaussian
from glasshead.explanation.scores.own import tell_own
from glasshead.explanation.scores.telling import ScoreTelling
from glasshead.explanation.subject import Subject
from glasshead.recipe.scores import Additive, Cosine, Dot, Gaussian, Score


def _runs(score: type[Score]) -> tuple[object, ...]:
    """What computes a score: its own formula, or its features and the inner product of them."""
    return score.forward, getattr(score, "features", None)


# By what runs, and not by class: a subclass that computes something else is not told as its base.
_TELLERS = {
    _runs(Dot): tell_dot,
    _runs(Cosine): tell_cosine,
    _runs(Gaussian): tell_gaussian,
    _runs(Additive): tell_additive,
}


def tell_score(subject: Subject) -> ScoreTelling:
    """Tell the score of the subject's recipe, whatever it is."""
    return _TELLERS.get(_runs(type(subject.problem.score)), tell_own)(subject)
