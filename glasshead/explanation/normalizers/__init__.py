"""How each kind of normalizer is told: by the formula that it computes."""

from glasshead.explanation.normalizers.hard_max import HARD_MAX_FORMULA, tell_hard_max
from glasshead.explanation.normalizers.hiding import any_hides, softmax_hides
from glasshead.explanation.normalizers.own import tell_own
from glasshead.explanation.normalizers.sigmoid import tell_sigmoid
from glasshead.explanation.normalizers.softmax import tell_softmax
from glasshead.explanation.normalizers.softmax_one import tell_softmax_one
from glasshead.explanation.normalizers.sparse import tell_entmax15, tell_sparsemax
from glasshead.explanation.normalizers.telling import NormalizerTelling
from glasshead.explanation.recipe import formula_of
from glasshead.explanation.subject import Subject
from glasshead.recipe.normalizers import (
    Entmax15,
    HardMax,
    Normalizer,
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
_HIDING = {Softmax.normalize: softmax_hides}
# Formulas in words are English: these are the same in signs.
_FORMULAS = {HardMax.normalize: HARD_MAX_FORMULA}


def tell_normalizer(subject: Subject) -> NormalizerTelling:
    """Tell the normalizer of the subject's recipe, whatever it is."""
    return _TELLERS.get(type(subject.problem.normalizer).normalize, tell_own)(subject)


def why_hidden(subject: Subject) -> str:
    """Why the scores of hidden keys are −∞, for the normalizer of the subject's recipe."""
    return _HIDING.get(type(subject.problem.normalizer).normalize, any_hides)(subject)


def normalizer_formula(normalizer: Normalizer) -> str:
    """A normalizer's formula, readable in every language."""
    return _FORMULAS.get(type(normalizer).normalize) or formula_of(normalizer)


def is_hard_max(subject: Subject) -> bool:
    """Whether one key gets all the weight."""
    return type(subject.problem.normalizer).normalize is HardMax.normalize


def is_softmax(subject: Subject) -> bool:
    """Whether the weights are a plain softmax of the scores."""
    return type(subject.problem.normalizer).normalize is Softmax.normalize
