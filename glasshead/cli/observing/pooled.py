"""Pooled: the map of weights, as it is asked for and as it is drawn."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

import glasshead as gh
from glasshead.cli.observing.weights_map import COLUMNS, ROWS, WeightsMap
from glasshead.statistics import PooledMap
from glasshead.statistics.reductions import edges

if TYPE_CHECKING:
    from glasshead import Mask

MAP = "pooled_map"


def pooled_map(queries: int, keys: int) -> PooledMap:
    """The whole matrix, no larger than it can be looked at."""
    return PooledMap(min(ROWS, queries), min(COLUMNS, keys))


def drawn_map(
    pooled: Float[Tensor, "rows columns"],
    mask: "Mask | None",
    lengths: tuple[int, int],
    names: Sequence[str] | None,
    caption: str,
) -> WeightsMap:
    """A pooled matrix as a heat map, in which what the mask hides is seen as hidden.

    Args:
        pooled: As the statistic gives it.
        mask: Which pairs see each other; None: all.
        lengths: How many queries and keys there are.
        names: What queries and keys are called, where they have names.
        caption: What the map shows.
    """
    rows, columns = (edges(length, n) for length, n in zip(lengths, pooled.shape, strict=True))
    values = [
        [None if hides else weight for weight, hides in zip(row, hidden, strict=True)]
        for row, hidden in zip(pooled.tolist(), _hidden(mask, rows, columns), strict=True)
    ]
    return WeightsMap(values, rows, columns, names, caption)


def _hidden(mask: "Mask | None", rows: list[int], columns: list[int]) -> list[list[bool]]:
    """Whether the mask hides all of a block."""
    if mask is None:
        return [[False] * (len(columns) - 1) for _ in rows[1:]]
    offset = columns[-1] - rows[-1]
    return [
        [
            not mask.key_range(gh.Tile(range(*row), range(*column), offset))
            for column in pairwise(columns)
        ]
        for row in pairwise(rows)
    ]
