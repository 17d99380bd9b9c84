"""The weights of the last queries."""

from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from glasshead.engines import REFERENCE
from glasshead.recipe.problem import Problem
from glasshead.recipe.tile import Span


def last_rows(problem: Problem, count: int) -> Float[Tensor, "batch heads rows keys"]:
    """Of the last `count` queries, or of all where they are fewer, at the cost of these alone."""
    queries = problem.scores_shape[-2]
    span = Span(max(0, queries - count), queries)
    return REFERENCE.part(problem, replace(problem.tile(), queries=span)).weights
