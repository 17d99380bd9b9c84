"""The forward pass: units of work are shared among threads, and their sums put together."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from glasshead.engines.streaming import threads as workers
from glasshead.engines.streaming.arrays import (
    Sums,
    at,
    matrix,
    panels,
    recipe_of,
    room_for_sums,
    spans,
)
from glasshead.engines.streaming.kernels.arguments import Matrix, Results, Room, Wants
from glasshead.engines.streaming.kernels.forward import forward_blocks
from glasshead.engines.streaming.lower import Structure, Wanted, real_of
from glasshead.engines.streaming.threads import Cut, Unit
from glasshead.statistics.reductions import edges

# How many scores a block may have: those of a long text are to take some megabytes, not more.
_NUMBERS = 2**21


class _Stripe(NamedTuple):
    """Sums over the queries of one stripe, in float64, which are added to the other stripes'."""

    by_query: Tensor
    diagonals: Tensor
    maps: Tensor


def forward(
    query: Tensor, key: Tensor, value: Tensor | None, structure: Structure, wanted: Wanted
) -> Sums:
    """The context of each query and the sums that are wanted, in one pass over the scores.

    Args:
        query: `[batch, heads, queries, dim]`.
        key, value: `[batch, kv_heads, keys, dim]`; without a value there is no context.
        structure, wanted: See there.
    """
    sums = room_for_sums(query, key, value, wanted, _zeros)
    sums.keys.fill_(-1)
    cut = Cut(query, key, structure, numbers=_NUMBERS, shares=4)
    stripes = [
        _Stripe(*(torch.zeros_like(x, dtype=torch.float64) for x in sums[-3:]))
        for _ in range(cut.stripes)
    ]

    # Whether gradients are recorded is each thread's own affair.
    @torch.no_grad()
    def work(units: Iterator[Unit]) -> None:
        one = _Pass(query, key, value, structure, wanted, cut, sums)
        for unit in units:
            one.run(unit, stripes[unit.stripe])

    workers.share(cut.units(), work, cut.threads)
    for result, *parts in zip(sums[-3:], *stripes, strict=True):
        if result.numel():
            result.copy_(sum(parts[1:], parts[0]))
    _divide(sums.maps, wanted, query.shape[2])
    return sums._replace(context=sums.context.to(query.dtype))


def _zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Zeros that PyTorch's threads do not make: after work these spin, on cores that are wanted."""
    numbers = {torch.float32: np.float32, torch.float64: np.float64, torch.int64: np.int64}
    return torch.from_numpy(np.zeros(shape, numbers[dtype]))


def _divide(maps: Tensor, wanted: Wanted, queries: int) -> None:
    """Make means over the queries of each row of blocks."""
    first = 0
    for rows, columns in wanted.sizes():
        sizes = torch.tensor(edges(queries, rows)).diff().clamp(min=1)
        part = maps[..., first : first + rows * columns].unflatten(-1, (rows, columns))
        part /= sizes[:, None]
        first += rows * columns


class _Pass:
    """One thread's way through its units, with the room that it needs."""

    def __init__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor | None,
        structure: Structure,
        wanted: Wanted,
        cut: Cut,
        sums: Sums,
    ) -> None:
        self.query, self.key, self.value = query, key, value
        self.structure, self.wanted, self.cut, self.sums = structure, wanted, cut, sums
        self.real = real = real_of(query)
        self.value_width = 0
        if value is not None:
            self.value_width = cut.padded(value.shape[-1])
        across = cut.largest(structure.bounds.numpy())
        self.room = Room(
            query=np.empty(cut.height * query.shape[-1], real),
            scores=np.empty(cut.height * across, real),
            product=np.empty(cut.height * self.value_width, real),
            groups=np.empty(64 if across < 1024 else 256, real),
            top_groups=np.empty(max(64, min(4 * wanted.top, cut.keys)), real),
            order=np.empty(wanted.top, real),
            columns=np.empty(across if wanted.maps else 0, np.float64),
            factors=np.empty(cut.height, real),
        )

    def run(self, unit: Unit, stripe: _Stripe) -> None:
        """Every block of a unit."""
        head = unit.heads.start // self.cut.group
        vectors = matrix(self.key[unit.batch, head])
        keys = panels(vectors, self.cut.keys, self.real)
        value = Matrix(np.empty(0, self.real), 0, 0)
        if self.value is not None:
            value = matrix(self.value[unit.batch, head], width=self.cut.width)
        for head in unit.heads:
            recipe = recipe_of(self.structure, self.query, keys, self.cut.keys, unit.batch, head)
            wants = self._wants(unit.batch, head)
            results = self._results(unit.batch, head, stripe)
            for span, visible in spans(self.structure, self.cut, unit, head, recipe.visible):
                forward_blocks(
                    recipe._replace(visible=visible),
                    value,
                    wants,
                    results,
                    self.room,
                    self.cut.width,
                    self.cut.height,
                    *span,
                )

    def _wants(self, batch: int, head: int) -> Wants:
        wanted, empty = self.wanted, np.empty((0, 0), self.real)
        per_key, per_query = wanted.per_key, wanted.per_query
        right = empty if per_key is None else at(per_key, batch, head).numpy()
        return Wants(
            keyed=wanted.keyed,
            far=wanted.far,
            per_key=right,
            spans=np.array([_span(row) for row in right], np.int64).reshape(-1, 2),
            per_query=empty if per_query is None else at(per_query, batch, head).numpy(),
            maps=np.array(wanted.maps, np.int64).reshape(-1, 2),
        )

    def _results(self, batch: int, head: int, stripe: _Stripe) -> Results:
        sums = [x[batch, head].numpy() for x in self.sums[:-3]]
        added = [x[batch, head].numpy() for x in stripe]
        return Results(
            context=sums[0],
            rows=sums[1],
            by_key=sums[2],
            top=sums[3],
            keys=sums[4],
            by_query=added[0],
            diagonals=added[1],
            maps=added[2],
        )


def _span(row: np.ndarray) -> tuple[int, int]:
    """From the first number that is not 0 to after the last."""
    (present,) = row.nonzero()
    return (present[0], present[-1] + 1) if len(present) else (0, 0)
