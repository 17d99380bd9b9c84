"""The `Attention` object, its results, and its execution plan."""

from glasshead.attention.attention import Attention
from glasshead.attention.joined_weights import JoinedWeights
from glasshead.attention.observe import Observation
from glasshead.attention.plan import Plan
from glasshead.attention.weight_gradients import Elementwise, WeightGradients
from glasshead.attention.weights import Weights

__all__ = [
    "Attention",
    "Elementwise",
    "JoinedWeights",
    "Observation",
    "Plan",
    "WeightGradients",
    "Weights",
]
