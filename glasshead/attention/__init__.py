"""The `Attention` object, its results, and its execution plan."""

from glasshead.attention.attention import Attention
from glasshead.attention.joined_weights import JoinedWeights
from glasshead.attention.observe import Observation
from glasshead.attention.plan import Plan
from glasshead.attention.weights import Weights

__all__ = ["Attention", "JoinedWeights", "Observation", "Plan", "Weights"]
