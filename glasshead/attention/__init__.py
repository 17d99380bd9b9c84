"""The `Attention` object, its results, and its execution plan."""

from glasshead.attention.attention import Attention
from glasshead.attention.observe import Observation
from glasshead.attention.plan import Plan
from glasshead.attention.weights import Weights

__all__ = ["Attention", "Observation", "Plan", "Weights"]
