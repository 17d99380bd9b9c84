"""A rectangle of query-key pairs: what a mask or a bias is asked about."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Tile:
    """The pairs (i, j) of some queries with some keys, and where they stand to each other.

    Query i stands at position i + offset among the keys, so that `distance` is i + offset - j:
    positive for keys before the query, 0 for its own, negative for keys after it.

    Attributes:
        queries: The rows of the tile, counted among all queries.
        keys: The columns of the tile, counted among all keys.
        offset: The position of query 0 among the keys; a number, or one per batch row, `[*batch]`.
        headed: Whether the caller's tensors have a heads axis, to which dense tensors then align.
        device: Where tensors made for this tile are to live.

    >>> Tile(range(2), range(3), offset=1).distance()
    tensor([[ 1,  0, -1],
            [ 2,  1,  0]])
    """

    queries: range
    keys: range
    offset: int | Tensor = 0
    headed: bool = True
    device: torch.device = field(default=torch.device("cpu"))

    def distance(self, offset: int | Tensor | None = None) -> Int[Tensor, "*leading queries keys"]:
        """i + offset - j for every pair of the tile; `offset` given here wins over the tile's."""
        rows = torch.arange(self.queries.start, self.queries.stop, device=self.device)
        columns = torch.arange(self.keys.start, self.keys.stop, device=self.device)
        return self.positions(rows[:, None], offset) - columns

    def positions(self, rows: Tensor, offset: int | Tensor | None = None) -> Tensor:
        """Where the queries `rows` stand among the keys: rows + offset."""
        offset = self.offset if offset is None else offset
        return rows + (per_batch(offset, self.device) if isinstance(offset, Tensor) else offset)

    def cut(self, tensor: Tensor) -> Tensor:
        """The part of `tensor` `[..., queries, keys]` that lies in this tile; axes of 1 stay."""
        tensor = torch.atleast_2d(tensor)
        if tensor.shape[-1] != 1:
            tensor = tensor[..., self.keys.start : self.keys.stop]
        if tensor.shape[-2] != 1:
            tensor = tensor[..., self.queries.start : self.queries.stop, :]
        return with_heads(tensor.to(self.device), headed=self.headed)


def per_batch(values: Tensor, device: torch.device) -> Tensor:
    """Values `[*batch]` shaped to meet scores `[*batch, heads, queries, keys]`."""
    values = values.to(device)
    return values[..., None, None, None] if values.ndim else values


def with_heads(tensor: Tensor, *, headed: bool) -> Tensor:
    """A tensor of the caller's layout, given a heads axis of 1 where that layout has none."""
    return tensor if headed or tensor.ndim < 3 else tensor.unsqueeze(-3)


def three_axes(tensor: Tensor) -> Tensor:
    """A tensor that broadcasts to scores, with the axes heads, queries and keys at least."""
    return tensor if tensor.ndim >= 3 else tensor[(None,) * (3 - tensor.ndim)]
