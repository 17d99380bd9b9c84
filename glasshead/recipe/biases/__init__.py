"""Biases: numbers added to the scores before the mask."""

from glasshead.recipe.biases.alibi import ALiBi
from glasshead.recipe.biases.bias import Bias, as_bias, bias_shows, bias_values, check_bias
from glasshead.recipe.biases.relative import RelativeBias

__all__ = [
    "ALiBi",
    "Bias",
    "RelativeBias",
    "as_bias",
    "bias_shows",
    "bias_values",
    "check_bias",
]
