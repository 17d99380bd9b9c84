"""What the passes give, and room for it, which traced tensors can be given, too."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from glasshead.engines.streaming.said import SAID
from glasshead.engines.streaming.structure import Structure, Wanted


class Sums(NamedTuple):
    """The results of a pass, `[batch, heads, …]` each; what was not wanted has a size of 0.

    Attributes:
        context: `[…, queries, value_dim]`.
        rows: What is said of each row, `[…, 9, queries]`.
        by_key: P·R, `[…, r, queries]`.
        top, keys: The largest weights and their keys, `[…, queries, k]`.
        by_query: Pᵀ·L, `[…, l, keys]`.
        diagonals: `[…, queries + keys - 1]`.
        maps: The numbers of all maps.
    """

    context: Tensor
    rows: Tensor
    by_key: Tensor
    top: Tensor
    keys: Tensor
    by_query: Tensor
    diagonals: Tensor
    maps: Tensor


def room_for_sums(
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    wanted: Wanted,
    zeros: Callable[[tuple[int, ...], torch.dtype], Tensor],
) -> Sums:
    """Zeros of the results' shapes; no numbers are read, so that traced tensors will do."""
    batch, heads, queries, _ = query.shape
    keys = key.shape[2]
    exact = torch.promote_types(query.dtype, torch.float32)
    right = 0 if wanted.per_key is None else wanted.per_key.shape[2]
    left = 0 if wanted.per_query is None else wanted.per_query.shape[2]

    def room(*shape: int, dtype: torch.dtype = exact) -> Tensor:
        return zeros((batch, heads, *shape), dtype)

    return Sums(
        context=room(queries, 0 if value is None else value.shape[-1]),
        rows=room(SAID, queries),
        by_key=room(right, queries),
        top=room(queries, wanted.top),
        keys=room(queries, wanted.top, dtype=torch.int64),
        by_query=room(left, keys),
        diagonals=room(queries + keys - 1 if wanted.diagonal else 0),
        maps=room(sum(rows * columns for rows, columns in wanted.sizes())),
    )


class Arriving(NamedTuple):
    """The gradients of results; None where none arrives.

    Attributes:
        context: `[batch, heads, queries, value_dim]`.
        logsumexp, entropy: `[batch, heads, queries]`.
        by_key: Of P·R, `[batch, heads, r, queries]`.
        per_key: R, `[#batch, #heads, r, keys]`.
    """

    context: Tensor | None
    logsumexp: Tensor | None
    entropy: Tensor | None
    by_key: Tensor | None
    per_key: Tensor | None


class Leaving(NamedTuple):
    """The gradients of the inputs, in their shapes; of size 0 where they were not wanted."""

    query: Tensor
    key: Tensor
    value: Tensor
    bias: Tensor
    table: Tensor
    sink: Tensor


def room_for_gradients(
    query: Tensor, key: Tensor, value: Tensor | None, structure: Structure, wanted: tuple[bool, ...]
) -> Leaving:
    """Zeros of the results' shapes; no numbers are read, so that traced tensors will do."""
    exact = torch.promote_types(query.dtype, torch.float32)

    def room(tensor: Tensor | None, *, want: bool = True) -> Tensor:
        shape = tensor.shape if tensor is not None and want else (0,)
        return query.new_zeros(shape, dtype=exact)

    bias, table, sink = wanted
    return Leaving(
        room(query),
        room(key),
        room(value),
        room(structure.bias, want=bias),
        room(structure.table, want=table),
        room(structure.sink, want=sink),
    )
