"""NumPy arrays for the kernels, one head at a time, and the tensors that hold results."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from glasshead.engines.streaming.kernels.arguments import SAID, KernelGrid, KernelRecipe, Matrix
from glasshead.engines.streaming.kernels.blocks import columns_of, pack
from glasshead.engines.streaming.lower import RecipeTensors, Wanted, real_of
from glasshead.engines.streaming.threads import Schedule, WorkItem


class PassResults(NamedTuple):
    """Results of a forward pass, `[batch, heads, …]` each; size 0 where not requested.

    Attributes:
        context: `[…, queries, value_dim]`.
        rows: The statistics of each row, `[…, 9, queries]`.
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
) -> PassResults:
    """Allocate zeros in the shapes of the results, from shapes alone, so that tracing works."""
    batch, heads, queries, _ = query.shape
    keys = key.shape[2]
    exact = torch.promote_types(query.dtype, torch.float32)
    right = 0 if wanted.per_key is None else wanted.per_key.shape[2]
    left = 0 if wanted.per_query is None else wanted.per_query.shape[2]

    def allocate(*shape: int, dtype: torch.dtype = exact) -> Tensor:
        return zeros((batch, heads, *shape), dtype)

    return PassResults(
        context=allocate(queries, 0 if value is None else value.shape[-1]),
        rows=allocate(SAID, queries),
        by_key=allocate(right, queries),
        top=allocate(queries, wanted.top),
        keys=allocate(queries, wanted.top, dtype=torch.int64),
        by_query=allocate(left, keys),
        diagonals=allocate(queries + keys - 1 if wanted.diagonal else 0),
        maps=allocate(sum(rows * columns for rows, columns in wanted.sizes())),
    )


class GradOutputs(NamedTuple):
    """Incoming gradients of the results; None where there is none.

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


class GradInputs(NamedTuple):
    """Gradients of the inputs, in their shapes; size 0 where not required."""

    query: Tensor
    key: Tensor
    value: Tensor
    bias: Tensor
    table: Tensor
    sink: Tensor


def room_for_gradients(
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    structure: RecipeTensors,
    wanted: tuple[bool, ...],
) -> GradInputs:
    """Allocate zeros in the shapes of the gradients, from shapes alone, so that tracing works."""
    exact = torch.promote_types(query.dtype, torch.float32)

    def allocate(tensor: Tensor | None, *, want: bool = True) -> Tensor:
        shape = tensor.shape if tensor is not None and want else (0,)
        return query.new_zeros(shape, dtype=exact)

    bias, table, sink = wanted
    return GradInputs(
        allocate(query),
        allocate(key),
        allocate(value),
        allocate(structure.bias, want=bias),
        allocate(structure.table, want=table),
        allocate(structure.sink, want=sink),
    )


def at(tensor: Tensor, batch: int, head: int) -> Tensor:
    """Select one head of `[#batch, #heads, …]`; axes of size 1 broadcast."""
    return tensor[batch if len(tensor) > 1 else 0, head if tensor.shape[1] > 1 else 0]


def matrix(vectors: Tensor, *, width: int = 1) -> Matrix:
    """View vectors `[length, dim]` as a flat array, or copy them where the dtype differs.

    The copy is also made where `dim` is not a multiple of `width`, and filled up with 0.
    """
    length, dim = vectors.shape
    across = -(-dim // width) * width
    fits = vectors.dtype in (torch.float32, torch.float64) and across == dim
    if fits and vectors.stride(1) == 1 and vectors.stride(0) >= dim:
        row = vectors.stride(0)
        return Matrix(_flat(vectors, (length - 1) * row + dim), row, dim)
    numbers = np.zeros((length, across), real_of(vectors))
    numbers[:, :dim] = _as_real(vectors)
    return Matrix(numbers.reshape(-1), across, across)


def panels(vectors: Matrix, count: int, dtype: np.dtype) -> np.ndarray:
    """Pack vectors as the right operand of a matrix product."""
    width = columns_of(dtype.itemsize)
    packed = np.empty(-(-count // width) * width * vectors.width, dtype)
    pack(vectors, count, width, packed)
    return packed


def grid(tensor: Tensor | None, batch: int, head: int, empty: np.dtype) -> KernelGrid:
    """Return one head's pairs of `[#batch, #heads, #queries, keys]`; keys are contiguous."""
    if tensor is None:
        return KernelGrid(np.empty(0, empty), 0, 0)
    pairs = at(tensor, batch, head)
    row = pairs.stride(0) if pairs.shape[0] > 1 else 0
    return KernelGrid(_flat(pairs, (pairs.shape[0] - 1) * row + pairs.shape[1]), 0, row)


def _flat(tensor: Tensor, extent: int) -> np.ndarray:
    """View the first `extent` numbers of a tensor's memory as a flat array."""
    return tensor.detach().as_strided((extent,), (1,)).numpy()


def _as_real(vectors: Tensor) -> np.ndarray:
    """Copy to a dtype of NumPy, which has no bfloat16: the upper half of a float32."""
    if vectors.dtype == torch.bfloat16:
        bits = vectors.detach().contiguous().view(torch.int16).numpy().view(np.uint16)
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return vectors.detach().numpy().astype(real_of(vectors))


def recipe_of(
    structure: RecipeTensors, query: Tensor, keys: np.ndarray, count: int, batch: int, head: int
) -> KernelRecipe:
    """Build the kernel arguments that define the scores of one head."""
    real = keys.dtype
    row = lambda tensor: batch if len(tensor) > 1 else 0  # noqa: E731
    table = structure.table
    sink = -np.inf
    if structure.sink is not None:
        sink = structure.sink[head if len(structure.sink) > 1 else 0].item()
    return KernelRecipe(
        query=matrix(query[batch, head]),
        panels=keys,
        keys=count,
        bounds=structure.bounds[row(structure.bounds)].numpy(),
        bias=grid(structure.bias, batch, head, real),
        visible=grid(structure.visible, batch, head, np.dtype(np.bool_)),
        table=np.empty(0, real) if table is None else at(table, batch, head).numpy(),
        scale=structure.scale,
        softcap=structure.softcap,
        sink=sink,
        offset=int(structure.offsets[row(structure.offsets)]),
    )


def spans(
    structure: RecipeTensors, cut: Schedule, unit: WorkItem, head: int, visible: KernelGrid
) -> Iterator[tuple[tuple[int, int, int], KernelGrid]]:
    """Yield the row ranges of a work item as a kernel takes them, each with its visible pairs.

    That is all rows at once, or block by block where a rule is evaluated for each.
    """
    first, step = cut.rows(unit.stripe)
    if structure.rule is None:
        yield (first, step, cut.queries), visible
        return
    bounds = structure.bounds[unit.batch if len(structure.bounds) > 1 else 0].numpy()
    for row in range(first, cut.queries, step):
        last = min(row + cut.height, cut.queries)
        starts, stops = bounds[:, row:last]
        seeing = starts < stops
        if not seeing.any():
            yield (row, step, last), visible
            continue
        start, stop = int(starts[seeing].min()), int(stops[seeing].max())
        tile = structure.rule(range(row, last), range(start, stop))
        pairs = at(tile, unit.batch, head).expand(-1, stop - start).contiguous()
        shown = grid(pairs[None, None], 0, 0, np.dtype(np.bool_))
        # The kernel indexes queries and keys of the whole problem.
        yield (row, step, last), shown._replace(first=-row * shown.row - start)
