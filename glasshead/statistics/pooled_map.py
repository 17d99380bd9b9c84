"""The matrix of weights made small enough to be looked at."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.recipe.numbers import whole_number
from glasshead.recipe.problem import Problem
from glasshead.recipe.trace import Trace
from glasshead.statistics.reductions import BlockSum, Reduction, edges
from glasshead.statistics.statistic import Statistic


@dataclass(frozen=True)
class PooledMap(Statistic):
    """mean_{i in block r} Σ_{j in block c} P_ij, `[..., rows, columns]`, a weight.

    A row that sums to 1 still does. Of n queries, row r begins with query r · n // rows; of keys
    likewise.

    Args:
        rows: How many blocks of queries.
        columns: How many blocks of keys.

    Errors: a TypeError or ValueError where they are not whole numbers of at least 1, and a
    ValueError where there are fewer queries than rows or fewer keys than columns.

    Source: a sum is what a part of a distribution weighs, a mean what a query of the block gives
    to it.

    >>> import glasshead as gh
    >>> query, key = torch.zeros(4, 1), torch.zeros(4, 1)
    >>> PooledMap(2, 2).of(gh.Attention(mask=gh.causal()).trace(query, key, key))
    tensor([[1.0000, 0.0000],
            [0.5833, 0.4167]])
    """

    rows: int
    columns: int
    unit = "weight"
    axes = ("row", "column")

    def __post_init__(self) -> None:
        for name in ("rows", "columns"):
            number = whole_number(getattr(self, name), f"PooledMap({name})", least=1)
            object.__setattr__(self, name, number)

    def of(self, trace: Trace) -> Float[Tensor, "*leading rows columns"]:
        self.check(trace.problem)
        queries, keys = trace.weights.shape[-2:]
        columns = [block.sum(-1) for block in trace.weights.split(_sizes(keys, self.columns), -1)]
        summed = torch.stack(columns, -1)
        rows = [block.mean(-2) for block in summed.split(_sizes(queries, self.rows), -2)]
        return torch.stack(rows, -2)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        del problem
        return (BlockSum(self.rows, self.columns),)

    def finish(
        self, problem: Problem, *reduced: tuple[Tensor, ...]
    ) -> Float[Tensor, "*batch heads rows columns"]:
        del problem
        return reduced[0][0]

    def check(self, problem: Problem) -> None:
        queries, keys = problem.scores_shape[-2:]
        if self.rows > queries or self.columns > keys:
            raise ValueError(
                f"{self!r} takes at least as many queries and keys, and got {queries} and {keys}: "
                f"ask for a smaller map."
            )


def _sizes(length: int, parts: int) -> list[int]:
    return [stop - start for start, stop in pairwise(edges(length, parts))]
