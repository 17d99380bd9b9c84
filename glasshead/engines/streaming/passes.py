"""Forward and backward pass: work shared among threads, and its sums combined."""

import threading
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from glasshead.engines.streaming import threads as workers
from glasshead.engines.streaming.arrays import (
    GradInputs,
    GradOutputs,
    PassResults,
    at,
    grid,
    matrix,
    panels,
    recipe_of,
    room_for_gradients,
    room_for_sums,
    spans,
)
from glasshead.engines.streaming.kernels.arguments import (
    BackwardWorkspace,
    KernelGradients,
    KernelGradOutputs,
    Matrix,
    Results,
    Wants,
    Workspace,
)
from glasshead.engines.streaming.kernels.backward import backward_blocks
from glasshead.engines.streaming.kernels.forward import forward_blocks
from glasshead.engines.streaming.lower import RecipeTensors, Wanted, real_of
from glasshead.engines.streaming.threads import Schedule, WorkItem
from glasshead.statistics.reductions import edges

# The most scores of a block: a few megabytes, however long the text.
_FORWARD_NUMBERS = 2**21


class _Stripe(NamedTuple):
    """Float64 sums over the queries of one stripe, added to the other stripes' in the end."""

    by_query: Tensor
    diagonals: Tensor
    maps: Tensor


def forward(
    query: Tensor, key: Tensor, value: Tensor | None, structure: RecipeTensors, wanted: Wanted
) -> PassResults:
    """Compute the context and the requested sums in one pass over the scores.

    Args:
        query: `[batch, heads, queries, dim]`.
        key, value: `[batch, kv_heads, keys, dim]`; without a value there is no context.
        structure, wanted: The recipe's tensors, and the output specification.
    """
    sums = room_for_sums(query, key, value, wanted, _zeros)
    sums.keys.fill_(-1)
    cut = Schedule(query, key, structure, numbers=_FORWARD_NUMBERS, shares=4)
    stripes = [
        _Stripe(*(torch.zeros_like(x, dtype=torch.float64) for x in sums[-3:]))
        for _ in range(cut.stripes)
    ]

    # Gradient mode is thread-local.
    @torch.no_grad()
    def work(units: Iterator[WorkItem]) -> None:
        one = _ForwardPass(query, key, value, structure, wanted, cut, sums)
        for unit in units:
            one.run(unit, stripes[unit.stripe])

    workers.share(cut.units(), work, cut.threads)
    for result, *parts in zip(sums[-3:], *stripes, strict=True):
        if result.numel():
            result.copy_(sum(parts[1:], parts[0]))
    _divide(sums.maps, wanted, query.shape[2])
    return sums._replace(context=sums.context.to(query.dtype))


def _zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Allocate zeros with NumPy: PyTorch's threads would spin afterwards on cores in use."""
    numbers = {torch.float32: np.float32, torch.float64: np.float64, torch.int64: np.int64}
    return torch.from_numpy(np.zeros(shape, numbers[dtype]))


def _divide(maps: Tensor, wanted: Wanted, queries: int) -> None:
    """Divide each row of blocks by its number of queries, in place."""
    first = 0
    for rows, columns in wanted.sizes():
        sizes = torch.tensor(edges(queries, rows)).diff().clamp(min=1)
        part = maps[..., first : first + rows * columns].unflatten(-1, (rows, columns))
        part /= sizes[:, None]
        first += rows * columns


class _ForwardPass:
    """One thread's forward pass over its work items, with its scratch memory."""

    def __init__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor | None,
        structure: RecipeTensors,
        wanted: Wanted,
        cut: Schedule,
        sums: PassResults,
    ) -> None:
        self.query, self.key, self.value = query, key, value
        self.structure, self.wanted, self.cut, self.sums = structure, wanted, cut, sums
        self.real = real = real_of(query)
        self.value_width = 0
        if value is not None:
            self.value_width = cut.padded(value.shape[-1])
        across = cut.largest(structure.bounds.numpy())
        self.workspace = Workspace(
            query=np.empty(cut.height * query.shape[-1], real),
            scores=np.empty(cut.height * across, real),
            product=np.empty(cut.height * self.value_width, real),
            groups=np.empty(64 if across < 1024 else 256, real),
            top_groups=np.empty(max(64, min(4 * wanted.top, cut.keys)), real),
            order=np.empty(wanted.top, real),
            columns=np.empty(across if wanted.maps else 0, np.float64),
            factors=np.empty(cut.height, real),
        )

    def run(self, unit: WorkItem, stripe: _Stripe) -> None:
        """Process every block of a work item."""
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
                    self.workspace,
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
    """Return the index of the first nonzero number, and one past the last."""
    (present,) = row.nonzero()
    return (present[0], present[-1] + 1) if len(present) else (0, 0)


# The backward pass holds two blocks, and may take no more memory than the forward pass.
_BACKWARD_NUMBERS = 2**20


def backward(
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    structure: RecipeTensors,
    row_stats: Tensor,
    grad_outputs: GradOutputs,
    wanted: tuple[bool, bool, bool],
) -> GradInputs:
    """Compute the gradients of all inputs in O(T) memory.

    Args:
        query, key, value, structure: As given to `forward`.
        row_stats: The largest score and the factor of each row, `[batch, heads, 2, queries]`.
        grad_outputs: The incoming gradients of its results.
        wanted: Whether bias, table and sink require gradients.
    """
    grad_inputs = room_for_gradients(query, key, value, structure, wanted)
    cut = Schedule(query, key, structure, numbers=_BACKWARD_NUMBERS, shares=1)
    # Heads may share a bias, whose gradients are then added one after the other.
    threads = 1 if wanted[0] else cut.threads
    shape = query.shape[:2]
    diagonals = query.shape[2] + key.shape[2] - 1 if wanted[1] else 0
    tables = torch.zeros(*shape, diagonals, dtype=torch.float64)
    sinks = torch.zeros(*shape, 1 if wanted[2] else 0, dtype=torch.float64)
    added = threading.Lock()

    # Gradient mode is thread-local.
    @torch.no_grad()
    def work(units: Iterator[WorkItem]) -> None:
        one = _BackwardPass(
            query, key, value, structure, row_stats, grad_outputs, grad_inputs, cut, added
        )
        for unit in units:
            one.run(unit, tables, sinks)

    workers.share(cut.units(), work, threads)
    if wanted[1]:
        grad_inputs.table.copy_(tables.sum_to_size(grad_inputs.table.shape))
    if wanted[2]:
        grad_inputs.sink.copy_(sinks[..., 0].sum(0).sum_to_size(grad_inputs.sink.shape))
    return grad_inputs


class _BackwardPass:
    """One thread's backward pass over its work items, with its scratch memory."""

    def __init__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor | None,
        structure: RecipeTensors,
        row_stats: Tensor,
        grad_outputs: GradOutputs,
        grad_inputs: GradInputs,
        cut: Schedule,
        added: threading.Lock,
    ) -> None:
        self.query, self.key, self.structure, self.cut = query, key, structure, cut
        self.value = value if grad_outputs.context is not None else None
        self.row_stats, self.grad_outputs, self.grad_inputs = row_stats, grad_outputs, grad_inputs
        self.added = added
        self.real = real = real_of(query)
        across = cut.largest(structure.bounds.numpy())
        self.dim = cut.padded(query.shape[-1])
        self.value_dim = 0 if self.value is None else cut.padded(self.value.shape[-1])
        self.workspace = BackwardWorkspace(
            query=np.empty(cut.height * self.dim, real),
            scores=np.empty(cut.height * across, real),
            capped=np.empty(cut.height * across if structure.softcap else 0, real),
            gradient=np.empty(cut.height * across, real),
            context=np.empty(cut.height * self.value_dim, real),
            product=np.empty(cut.height * self.dim, real),
        )

    def run(self, unit: WorkItem, tables: Tensor, sinks: Tensor) -> None:
        """Process every block of a work item."""
        batch, kv_head = unit.batch, unit.heads.start // self.cut.group
        vectors = self.key[batch, kv_head]
        packed = panels(matrix(vectors), self.cut.keys, self.real)
        rows = matrix(vectors, width=self.cut.width)
        values = np.empty(0, self.real)
        if self.value is not None:
            values = panels(matrix(self.value[batch, kv_head]), self.cut.keys, self.real)
        key_sums = self._sums(self.grad_inputs.key, batch, kv_head, self.dim)
        value_sums = np.empty(0, self.real)
        if self.value is not None:
            value_sums = self._sums(self.grad_inputs.value, batch, kv_head, self.value_dim)
        for head in unit.heads:
            recipe = recipe_of(self.structure, self.query, packed, self.cut.keys, batch, head)
            gradients = self._gradients(batch, head, key_sums, value_sums, tables, sinks)
            given = self._given(batch, head)
            for span, visible in spans(self.structure, self.cut, unit, head, recipe.visible):
                backward_blocks(
                    recipe._replace(visible=visible),
                    rows,
                    values,
                    self.row_stats[batch, head].numpy(),
                    given,
                    gradients,
                    self.workspace,
                    self.cut.width,
                    self.cut.height,
                    *span,
                )
        with self.added:
            self._add(self.grad_inputs.key, batch, kv_head, key_sums)
            if self.value is not None:
                self._add(self.grad_inputs.value, batch, kv_head, value_sums)

    def _fits(self, result: Tensor) -> bool:
        """Return whether a head's result is whole panels that no other work item adds to."""
        length, dim = result.shape[-2:]
        whole = length == self.cut.padded(length) and dim == self.cut.padded(dim)
        return whole and self.cut.stripes == 1

    def _sums(self, result: Tensor, batch: int, head: int, width: int) -> np.ndarray:
        """Return an array for sums over queries, in whole panels: the result itself if it fits."""
        if self._fits(result):
            return result[batch, head].numpy().reshape(-1)
        return np.zeros(self.cut.padded(self.cut.keys) * width, self.real)

    def _add(self, result: Tensor, batch: int, head: int, sums: np.ndarray) -> None:
        if self._fits(result):
            return
        into = result[batch, head].numpy()
        into += sums.reshape(self.cut.padded(self.cut.keys), -1)[: into.shape[0], : into.shape[1]]

    def _gradients(
        self,
        batch: int,
        head: int,
        key_sums: np.ndarray,
        value_sums: np.ndarray,
        tables: Tensor,
        sinks: Tensor,
    ) -> KernelGradients:
        bias = self.grad_inputs.bias if self.grad_inputs.bias.numel() else None
        return KernelGradients(
            query=self.grad_inputs.query[batch, head].numpy(),
            key=key_sums,
            value=value_sums,
            bias=grid(bias, batch, head, self.real),
            table=tables[batch, head].numpy(),
            sink=sinks[batch, head].numpy(),
        )

    def _given(self, batch: int, head: int) -> KernelGradOutputs:
        grad_outputs, empty = self.grad_outputs, np.empty((0, 0), self.real)
        context = Matrix(np.empty(0, self.real), 0, 0)
        if grad_outputs.context is not None:
            context = matrix(grad_outputs.context[batch, head])
        by_key, per_key = grad_outputs.by_key, grad_outputs.per_key
        return KernelGradOutputs(
            context=context,
            logsumexp=self._row(grad_outputs.logsumexp, batch, head),
            entropy=self._row(grad_outputs.entropy, batch, head),
            by_key=empty if by_key is None else by_key[batch, head].numpy(),
            per_key=empty
            if by_key is None or per_key is None
            else at(per_key, batch, head).numpy(),
        )

    def _row(self, tensor: Tensor | None, batch: int, head: int) -> np.ndarray:
        if tensor is None:
            return np.zeros(self.cut.queries, self.real)
        return np.ascontiguousarray(tensor[batch, head].numpy(), self.real)
