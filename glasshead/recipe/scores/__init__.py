"""Scores: how a query and a key make a number."""

from glasshead.recipe.scores.additive import Additive
from glasshead.recipe.scores.cosine import Cosine
from glasshead.recipe.scores.dot import Dot, ScaledDot
from glasshead.recipe.scores.gaussian import Gaussian
from glasshead.recipe.scores.inner_product import InnerProduct
from glasshead.recipe.scores.score import Score

__all__ = ["Additive", "Cosine", "Dot", "Gaussian", "InnerProduct", "ScaledDot", "Score"]
