"""One head of the tensors, as the arrays that the kernels read."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from glasshead.engines.streaming.cut import Cut, Unit
from glasshead.engines.streaming.kernels.arguments import Grid, Matrix, Recipe
from glasshead.engines.streaming.kernels.blocks import pack
from glasshead.engines.streaming.kernels.product import columns_of
from glasshead.engines.streaming.structure import Structure, real_of


def at(tensor: Tensor, batch: int, head: int) -> Tensor:
    """The part of `[#batch, #heads, …]` that belongs to a head; axes of 1 serve all."""
    return tensor[batch if len(tensor) > 1 else 0, head if tensor.shape[1] > 1 else 0]


def matrix(vectors: Tensor, *, width: int = 1) -> Matrix:
    """Vectors `[length, dim]` where they lie, or a copy where they must be of another type.

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
    """Vectors as a product wants those on its right."""
    width = columns_of(dtype.itemsize)
    packed = np.empty(-(-count // width) * width * vectors.width, dtype)
    pack(vectors, count, width, packed)
    return packed


def grid(tensor: Tensor | None, batch: int, head: int, empty: np.dtype) -> Grid:
    """One head's pairs of `[#batch, #heads, #queries, keys]`, the keys side by side."""
    if tensor is None:
        return Grid(np.empty(0, empty), 0, 0)
    pairs = at(tensor, batch, head)
    row = pairs.stride(0) if pairs.shape[0] > 1 else 0
    return Grid(_flat(pairs, (pairs.shape[0] - 1) * row + pairs.shape[1]), 0, row)


def _flat(tensor: Tensor, extent: int) -> np.ndarray:
    """So many numbers from a tensor's first on, as they lie in memory."""
    return tensor.detach().as_strided((extent,), (1,)).numpy()


def _as_real(vectors: Tensor) -> np.ndarray:
    """A copy in numbers that NumPy knows; it has no bfloat16, the upper half of a float32."""
    if vectors.dtype == torch.bfloat16:
        bits = vectors.detach().contiguous().view(torch.int16).numpy().view(np.uint16)
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return vectors.detach().numpy().astype(real_of(vectors))


def recipe_of(
    structure: Structure, query: Tensor, keys: np.ndarray, count: int, batch: int, head: int
) -> Recipe:
    """What makes the scores of one head."""
    real = keys.dtype
    row = lambda tensor: batch if len(tensor) > 1 else 0  # noqa: E731
    table = structure.table
    sink = -np.inf
    if structure.sink is not None:
        sink = structure.sink[head if len(structure.sink) > 1 else 0].item()
    return Recipe(
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
    structure: Structure, cut: Cut, unit: Unit, head: int, visible: Grid
) -> Iterator[tuple[tuple[int, int, int], Grid]]:
    """The rows of a unit, as a kernel wants them, each with what says which pairs are visible.

    That is all rows at once, or block by block where a rule has to be asked for each.
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
        # The kernel counts queries and keys from the first of all.
        yield (row, step, last), shown._replace(first=-row * shown.row - start)
