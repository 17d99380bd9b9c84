"""One head of a lazy matrix, as a lazy matrix of its own."""

import os
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.attention.indexing import checked_range, inside
from glasshead.attention.known import KnownRows
from glasshead.attention.narrowing import narrowed
from glasshead.attention.place import Place
from glasshead.attention.products import factor_of
from glasshead.attention.weights import Weights
from glasshead.recipe.problem import Problem
from glasshead.recipe.validation import whole_number


def one_head(weights: Weights, index: tuple[int, ...]) -> Weights:
    """The weights of one head, `[queries, keys]`, as `Weights.head` tells it."""
    leading, problem = weights.shape[:-2], weights._problem  # noqa: SLF001 - of one family
    if len(index) != len(leading):
        raise ValueError(
            f"W.head takes a place along each axis before the queries, {list(leading)}, and got "
            f"{list(index)}: give {len(leading)}."
        )
    places = tuple(
        inside(whole_number(place, "W.head", least=None), length, "entries along a leading axis")
        for place, length in zip(index, leading, strict=True)
    )
    if problem.axes == 2:
        return weights
    batch, head = (places[:-1], places[-1]) if problem.axes > 3 else (places, 0)
    place = (*batch, slice(head, head + 1))
    logsumexp, known = weights._logsumexp[place], weights._known  # noqa: SLF001
    one = narrowed(problem, batch, head)
    if one is None:
        return OneOfAll(weights, places, logsumexp)
    return _Held(one, logsumexp, None if known is None else known.at(place))


class _Held(Weights):
    """Weights of queries and keys that nobody else writes to, which need not be copied again."""

    def __init__(self, problem: Problem, logsumexp: Tensor, rows: KnownRows | None) -> None:
        self._problem, self._logsumexp, self._known = problem, logsumexp, rows


class OneOfAll(Weights):
    """One head where heads cannot be told apart: all are computed, and one is taken.

    A score or a normalizer of one's own may read across heads.

    Args:
        whole: The weights of all heads.
        places: A place along each axis before the queries.
        logsumexp: Of the one head, `[1, queries]`.
    """

    def __init__(self, whole: Weights, places: tuple[int, ...], logsumexp: Tensor) -> None:
        self._whole, self._places, self._logsumexp = whole, places, logsumexp
        self._known = None
        problem = whole._problem  # noqa: SLF001 - of one family
        # It stands for the shape, numbers and offset of one head; the whole computes.
        batch, head = (places[:-1], places[-1]) if problem.axes > 3 else (places, 0)
        query = problem.query[(*batch, slice(head, head + 1))]
        of = head // problem.group
        key = problem.key[(*batch, slice(of, of + 1))]
        offset = Place(problem, batch, head).offset
        self._problem = replace(problem, query=query, key=key, value=key, offset=offset, axes=2)

    @property
    def numbers_a_pair(self) -> int:
        return self._whole.numbers_a_pair

    @torch.no_grad()
    def tile(self, rows: range, columns: range) -> Float[Tensor, "rows columns"]:
        rows = checked_range(rows, self.shape[-2], "tile(rows)")
        columns = checked_range(columns, self.shape[-1], "tile(columns)")
        return self._whole.tile(rows, columns)[self._places].clone()

    def _computed(self, rows: range, columns: range) -> tuple[range, range]:
        return self._whole._computed(rows, columns)  # noqa: SLF001 - of one family

    def seen(self, rows: range) -> range:
        return self._whole.seen(rows)

    @torch.no_grad()
    def __matmul__(self, right: Tensor) -> Float[Tensor, "queries r"]:
        factor_of(self._problem, right, self.shape, "W @ R")
        return (self._whole @ right)[self._places]

    def _times_queries(self, per_query: Tensor) -> Tensor:
        return (self._whole.T @ per_query)[self._places]

    def pooled(self, rows: int, columns: int) -> Float[Tensor, "rows columns"]:
        return self._whole.pooled(rows, columns)[self._places]

    def save(self, file: str | os.PathLike[str]) -> None:
        self._whole.save(file)  # A recipe of one's own, which it refuses.
