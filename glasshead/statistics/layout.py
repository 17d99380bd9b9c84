"""How the tensors of a trace lie: with heads, or without where the inputs had none."""

from jaxtyping import Bool, Int
from torch import Tensor

from glasshead.recipe.trace import Trace


def headed(trace: Trace) -> bool:
    """Whether the steps have a heads axis, as those of its problem always do."""
    return trace.weights.ndim == trace.problem.query.ndim


def sees_nothing(trace: Trace) -> Bool[Tensor, "*leading queries"]:
    """Which queries have no key, all being hidden."""
    return trace.masked.isneginf().all(-1)


def distances(trace: Trace) -> Int[Tensor, "*leading queries keys"]:
    """|i + offset - j| of each pair; the leading axes broadcast to those of the weights."""
    distance = trace.problem.tile().distance().abs()
    return distance if headed(trace) or distance.ndim < 3 else distance.squeeze(-3)
