"""Rows: what each query sees, in a few numbers, and the first few places of some cells."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

MOST_PLACES = 4
_CELLS = 2**22


@dataclass(frozen=True, eq=False)
class Rows:
    """How many keys each query sees, its first and its last one; both are 0 where it sees none."""

    count: Int[Tensor, "*leading queries"]
    first: Int[Tensor, "*leading queries"]
    last: Int[Tensor, "*leading queries"]

    @classmethod
    def of(cls, visible: Bool[Tensor, "*leading queries keys"]) -> "Rows":
        """The rows of a mask."""
        parts: tuple[list[Tensor], ...] = ([], [], [])
        for band in bands(visible):
            count = band.sum(-1)
            first = band.view(torch.uint8).argmax(-1)
            last = visible.shape[-1] - 1 - band.flip(-1).view(torch.uint8).argmax(-1)
            for part, numbers in zip(parts, (count, first, last * (count > 0)), strict=True):
                part.append(numbers)
        return cls(*(torch.cat(part, -1) for part in parts))

    @property
    def alive(self) -> Bool[Tensor, "*leading queries"]:
        """Which queries see a key."""
        return self.count > 0


@dataclass(frozen=True)
class Edge:
    """Where most queries see their last key: at i + `lag`.

    Attributes:
        lag: The most frequent one.
        share: Of the queries that say so, how many do; those that see the last key that any does
            say nothing.
        count: How many queries say so.
    """

    lag: int
    share: float
    count: int


def last_edge(rows: Rows) -> Edge | None:
    """Where a mask is cut to the right, along a diagonal; None where no query tells."""
    highest = rows.last.amax(-1, keepdim=True)
    telling = rows.alive & (rows.last < highest)
    queries = torch.arange(rows.last.shape[-1], device=rows.last.device)
    lags = (rows.last - queries)[telling]
    if not len(lags):
        return None
    lag, count = most_frequent(lags)
    return Edge(lag, count / len(lags), count)


def most_frequent(numbers: Int[Tensor, "n"]) -> tuple[int, int]:
    """The number that comes most often, the lowest of several, and how often it comes."""
    found, counts = numbers.unique(return_counts=True)
    best = int(counts.argmax())
    return int(found[best]), int(counts[best])


def stretches(cells: Bool[Tensor, "*leading queries keys"]) -> Iterator[range]:
    """The rows, some at a time."""
    queries = cells.shape[-2]
    step = max(1, _CELLS // max(1, cells[..., :1, :].numel()))
    for start in range(0, queries, step):
        yield range(start, min(start + step, queries))


def bands(cells: Bool[Tensor, "*leading queries keys"]) -> Iterator[Tensor]:
    """The same cells, some rows at a time: torch counts booleans in eight bytes each."""
    for rows in stretches(cells):
        yield cells[..., rows.start : rows.stop, :]


def total(cells: Bool[Tensor, "..."]) -> int:
    """How many are True."""
    if cells.ndim < 2:
        return int(cells.sum())
    return sum(int(band.sum()) for band in bands(cells))


def places(cells: Bool[Tensor, "..."], most: int = MOST_PLACES) -> tuple[tuple[int, ...], ...]:
    """The first few True cells, without an index for each of them.

    >>> places(torch.tensor([[False, True], [True, True]]), most=2)
    ((0, 1), (1, 0))
    """
    if cells.ndim == 1:
        return tuple((int(place),) for place in cells.nonzero()[:most, 0])
    found: list[tuple[int, ...]] = []
    for row in cells.any(-1).nonzero()[:most].tolist():
        keys = cells[tuple(row)].nonzero()[: most - len(found), 0].tolist()
        found += [(*row, key) for key in keys]
        if len(found) == most:
            break
    return tuple(found)
