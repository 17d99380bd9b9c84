"""How each kind of score is told: by the formula that it computes."""

from glasshead.explanation.scores.additive import tell_additive
from glasshead.explanation.scores.cosine import tell_cosine
from glasshead.explanation.scores.dot import tell_dot
from glasshead.explanation.scores.gaussian import tell_gaussian
from glasshead.explanation.scores.own import tell_own
from glasshead.explanation.scores.telling import ScoreTelling
from glasshead.explanation.subject import Subject
from glasshead.recipe.scores import Additive, Cosine, Dot, Gaussian

# By what runs, and not by class: a subclass that computes something else is not told as its base.
_TELLERS = {
    Dot.forward: tell_dot,
    Cosine.forward: tell_cosine,
    Gaussian.forward: tell_gaussian,
    Additive.forward: tell_additive,
}


def tell_score(subject: Subject) -> ScoreTelling:
    """Tell the score of the subject's recipe, whatever it is."""
    return _TELLERS.get(type(subject.problem.score).forward, tell_own)(subject)
