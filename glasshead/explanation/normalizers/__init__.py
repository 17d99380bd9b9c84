"""How each kind of normalizer is told: by the formula that it computes."""

from glasshead.explanation.normalizers.hard_max import tell_hard_max
from glasshead.explanation.normalizers.own import tell_own
from glasshead.explanation.normalizers.sigmoid import tell_sigmoid
from glasshead.explanation.normalizers.softmax import tell_softmax
from glasshead.explanation.normalizers.softmax_one import tell_softmax_one
from glasshead.explanation.normalizers.sparse import tell_entmax15, tell_sparsemax
from glasshead.explanation.normalizers.telling import NormalizerTelling
from glasshead.explanation.subject import Subject
from glasshead.recipe.normalizers import (
    Entmax15,
    HardMax,
    Sigmoid,
    Softmax,
    SoftmaxOne,
    Sparsemax,
)

# By what runs, and not by class: a subclass that computes something else is not told as its base.
_TELLERS = {
    Softmax.normalize: tell_softmax,
    SoftmaxOne.normalize: tell_softmax_one,
    HardMax.normalize: tell_hard_max,
    Sparsemax.normalize: tell_sparsemax,
    Entmax15.normalize: tell_entmax15,
    Sigmoid.normalize: tell_sigmoid,
}


def tell_normalizer(subject: Subject) -> NormalizerTelling:
    """Tell the normalizer of the subject's recipe, whatever it is."""
    return _TELLERS.get(type(subject.problem.normalizer).normalize, tell_own)(subject)


def is_softmax(subject: Subject) -> bool:
    """Whether the weights are a plain softmax of the scores."""
    return type(subject.problem.normalizer).normalize is Softmax.normalize
