"""Normalizers: how scores become weights."""

from glasshead.recipe.normalizers.hard_max import HardMax
from glasshead.recipe.normalizers.normalizer import Normalizer
from glasshead.recipe.normalizers.sigmoid import Sigmoid
from glasshead.recipe.normalizers.softmax import Softmax, SoftmaxOne
from glasshead.recipe.normalizers.sparse import Entmax15, Sparsemax

__all__ = ["Entmax15", "HardMax", "Normalizer", "Sigmoid", "Softmax", "SoftmaxOne", "Sparsemax"]
