"""Tiles: rectangles of query-key pairs, on which masks and biases are evaluated."""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor


class Span(NamedTuple):
    """Index range whose ends torch.compile may keep symbolic; a `range` would fix them."""

    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class Tile:
    """Pairs (i, j) of a range of queries and a range of keys, and their relative position.

    Query i is at position i + offset among the keys, so that `distance` is i + offset - j:
    positive for keys before the query, 0 for its own, negative for keys after it.

    Attributes:
        queries: The rows of the tile, counted among all queries, from `start` to before `stop`.
        keys: The columns of the tile, counted among all keys, likewise.
        offset: The position of query 0 among the keys; a number, or one per batch row, `[*batch]`.
        headed: Whether the caller's tensors have a heads axis, to which dense tensors then align.
        device: Where tensors made for this tile are to live.
        dtype: In which numbers the scores are computed.

    >>> Tile(range(2), range(3), offset=1).distance()
    tensor([[ 1,  0, -1],
            [ 2,  1,  0]])
    """

    queries: "range | Span"
    keys: "range | Span"
    offset: int | Tensor = 0
    headed: bool = True
    device: torch.device = field(default=torch.device("cpu"))
    dtype: torch.dtype = torch.float32

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of queries and of keys."""
        return self.queries.stop - self.queries.start, self.keys.stop - self.keys.start

    def columns(self) -> Int[Tensor, " keys"]:
        """Return the keys j as a tensor."""
        return torch.arange(self.keys.start, self.keys.stop, device=self.device)

    def positions(self, offset: int | Tensor | None = None) -> Int[Tensor, "*leading queries 1"]:
        """Return each query's position among the keys, i + offset; an `offset` given here wins."""
        offset = self.offset if offset is None else offset
        rows = torch.arange(self.queries.start, self.queries.stop, device=self.device)[:, None]
        return rows + (per_batch(offset, self.device) if isinstance(offset, Tensor) else offset)

    def distance(self) -> Int[Tensor, "*leading queries keys"]:
        """Compute i + offset - j for every pair of the tile."""
        return self.positions() - self.columns()

    def cut(self, tensor: Tensor) -> Tensor:
        """Slice `[..., queries, keys]` to this tile; axes of size 1 stay."""
        tensor = torch.atleast_2d(tensor)
        if tensor.shape[-1] != 1:
            tensor = tensor[..., self.keys.start : self.keys.stop]
        if tensor.shape[-2] != 1:
            tensor = tensor[..., self.queries.start : self.queries.stop, :]
        return with_heads(tensor.to(self.device), headed=self.headed)


def per_batch(values: Tensor, device: torch.device) -> Tensor:
    """Reshape values `[*batch]` to broadcast with scores `[*batch, heads, queries, keys]`."""
    values = values.to(device)
    return values[..., None, None, None] if values.ndim else values


def with_heads(tensor: Tensor, *, headed: bool) -> Tensor:
    """Add a heads axis of size 1 to a tensor of the caller's layout where that has none."""
    return tensor if headed or tensor.ndim < 3 else tensor.unsqueeze(-3)


def three_axes(tensor: Tensor) -> Tensor:
    """Reshape what broadcasts to scores to at least the axes heads, queries and keys."""
    return tensor if tensor.ndim >= 3 else tensor[(None,) * (3 - tensor.ndim)]
