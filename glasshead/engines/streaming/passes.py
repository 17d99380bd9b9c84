"""Forward and backward pass: vectors packed, work shared among threads, and its sums combined."""

import math
from collections.abc import Iterator, Sequence
from functools import cached_property, reduce
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from glasshead.engines.streaming import threads as workers
from glasshead.engines.streaming.kernels.arguments import (
    LEAST_NORMAL,
    LEAST_PRODUCT,
    BackwardWorkspace,
    HalfMatrix,
    KernelGradients,
    KernelGradOutputs,
    KernelGrid,
    KernelRecipe,
    Matrix,
    Panels,
    VisibleGrid,
    Workspace,
)
from glasshead.engines.streaming.kernels.processor import at_hand, columns_of
from glasshead.engines.streaming.kernels.streamed import ARRAYS, ASKED, OutputSpec, Results
from glasshead.engines.streaming.machine_code import EMPTY, Packed, fills_tiles, kernel
from glasshead.engines.streaming.operands import (
    LONGEST,
    GradInputs,
    GradOutputs,
    LoweredProblem,
    RecipeTensors,
    allocated,
    at,
    in_rows,
    of_operands,
    real_of,
)
from glasshead.engines.streaming.programs import forward_program, kept
from glasshead.engines.streaming.threads import (
    BACKWARD_NUMBERS,
    FORWARD_NUMBERS,
    Schedule,
    WorkItem,
)

_SINGLE = np.dtype(np.float32)


def flat(tensor: Tensor, extent: int) -> np.ndarray:
    """View the first `extent` numbers of a tensor's memory as a flat array."""
    return tensor.detach().as_strided((extent,), (1,)).numpy()


def matrix(vectors: Tensor, *, width: int = 1) -> Matrix:
    """View vectors `[length, dim]` as a flat array, or copy them to float32 from half precision.

    The copy is also made where `dim` is not a multiple of `width`, and filled up with 0.
    """
    length, dim = vectors.shape
    across = -(-dim // width) * width
    if vectors.itemsize == 2:
        numbers = np.empty(length * across, np.float32)
        is_bfloat16 = vectors.dtype == torch.bfloat16
        kernel("widen", numbers.dtype)(_halves(vectors), length, across, is_bfloat16, numbers)
        return Matrix(numbers, across, across)
    if across == dim:
        vectors = in_rows(vectors)
        row = vectors.stride(0)
        return Matrix(flat(vectors, (length - 1) * row + dim), row, dim)
    padded = np.zeros((length, across), real_of(vectors))
    padded[:, :dim] = vectors.detach().numpy()
    return Matrix(padded.reshape(-1), across, across)


def _halves(vectors: Tensor) -> HalfMatrix:
    """View vectors of half precision by their bits."""
    length, dim = vectors.shape
    vectors = in_rows(vectors.detach())
    row = vectors.stride(0)
    return HalfMatrix(flat(vectors.view(torch.int16), (length - 1) * row + dim), row, dim)


class Pairs(NamedTuple):
    """Rows of pairs of bfloat16, and their smallest size other than 0."""

    rows: np.ndarray
    least: float

    @classmethod
    def of(cls, vectors: Tensor) -> "Pairs":
        """Pair up the numbers of vectors, with rows of 0 to fill up the last tile."""
        (length, dim), tile = vectors.shape, at_hand().tile.rows
        rows = np.empty(-(-length // tile) * tile * -(-dim // 2), np.int32)
        least = np.empty(1, np.int32)
        kernel("pair_up", _SINGLE)(_halves(vectors), length, rows, least)
        return cls(rows, float((least << 16).view(_SINGLE)[0]))

    def multiplies(self, other: "Pairs") -> bool:
        """Return whether the processor's product of pairs is that of float32, in every bit.

        It rounds alike, but takes what is subnormal for 0, inputs and sums. Numbers of 8 bits, of
        size x and y at least, have products that are multiples of 2⁻¹⁶ x y, and so are their sums:
        0, or no less.
        """
        low, high = sorted((self.least, other.least))
        return low >= LEAST_NORMAL and low * high >= LEAST_PRODUCT


class RightOperand:
    """Keys or values of one head, packed where they are first needed.

    Args:
        vectors: `[length, dim]`.
        numbers: The same as a `Matrix`, if that is at hand.
    """

    def __init__(self, vectors: Tensor, numbers: Matrix | None = None) -> None:
        self.vectors, self.real, self._matrix = vectors, real_of(vectors), numbers

    @cached_property
    def numbers(self) -> np.ndarray:
        """The vectors in panels."""
        return self._packed(self._matrix or matrix(self.vectors))

    @cached_property
    def pairs(self) -> tuple[Pairs, np.ndarray]:
        """The vectors in pairs, and their panels."""
        pairs, deep = Pairs.of(self.vectors), -(-self.vectors.shape[1] // 2)
        # Words are moved as numbers are.
        packed = self._packed(Matrix(pairs.rows.view(_SINGLE), deep, deep))
        return pairs, packed.view(np.int32)

    def _packed(self, rows: Matrix) -> np.ndarray:
        count, width = len(self.vectors), columns_of(self.real.itemsize)
        packed = np.empty(-(-count // width) * width * rows.width, self.real)
        kernel("pack", self.real)(rows, count, width, packed)
        return packed

    def facing(self, left: Tensor) -> tuple[Panels, np.ndarray]:
        """Return the panels for a product with vectors on the left, and these as rows of pairs.

        There are pairs on both sides, or `EMPTY` on both: where both are of bfloat16, the
        processor multiplies it, and the result is the same.
        """
        half = self.vectors.dtype == left.dtype == torch.bfloat16
        if half and at_hand().half_products:
            rows, (pairs, panels) = Pairs.of(left), self.pairs
            if rows.multiplies(pairs):
                return Panels(EMPTY, panels), rows.rows
        return Panels(self.numbers, EMPTY), EMPTY


def grid(tensor: Tensor | None, batch: int, head: int, real: np.dtype) -> KernelGrid:
    """Return one head's pairs of `[#batch, #heads, #queries, keys]`; keys are contiguous."""
    return KernelGrid(*_pairs(tensor, batch, head, real))


def visible_grid(tensor: Tensor | None, batch: int, head: int) -> VisibleGrid:
    """Return which of one head's pairs are visible."""
    return VisibleGrid(*_pairs(tensor, batch, head, np.dtype(np.bool_)))


def _pairs(
    tensor: Tensor | None, batch: int, head: int, dtype: np.dtype
) -> tuple[np.ndarray, int, int]:
    if tensor is None:
        return np.empty(0, dtype), 0, 0
    pairs = at(tensor, batch, head)
    row = pairs.stride(0) if pairs.shape[0] > 1 else 0
    return flat(pairs, (pairs.shape[0] - 1) * row + pairs.shape[1]), 0, row


def _rows(tensor: Tensor) -> np.ndarray:
    """View or copy a tensor as a contiguous array."""
    return np.ascontiguousarray(tensor.detach().numpy())


def recipe_of(
    problem: LoweredProblem, keys: RightOperand, batch: int, head: int, *, backward: bool = False
) -> KernelRecipe:
    """Build the kernel arguments that define the scores of one head, from its packed keys."""
    recipe, real, query = problem.recipe, keys.real, problem.query[batch, head]
    panels, half_query = keys.facing(query)
    needed = backward or half_query is EMPTY
    row = lambda tensor: batch if len(tensor) > 1 else 0  # noqa: E731
    table = recipe.table
    sink = -np.inf
    if recipe.sink is not None:
        sink = recipe.sink[head if len(recipe.sink) > 1 else 0].item()
    return KernelRecipe(
        query=matrix(query) if needed else Matrix(EMPTY, 0, query.shape[-1]),
        half_query=half_query,
        panels=panels,
        keys=problem.key.shape[2],
        bounds=np.ascontiguousarray(recipe.bounds[row(recipe.bounds)].numpy()),
        bias=grid(recipe.bias, batch, head, real),
        visible=visible_grid(recipe.visible, batch, head),
        table=np.empty(0, real) if table is None else _rows(at(table, batch, head)),
        scale=recipe.scale,
        softcap=recipe.softcap,
        sink=sink,
        offset=int(recipe.offsets[row(recipe.offsets)]),
    )


def spans(
    recipe: RecipeTensors, cut: Schedule, unit: WorkItem, head: int, visible: VisibleGrid
) -> Iterator[tuple[tuple[int, int, int], VisibleGrid]]:
    """Yield the row ranges of a work item as a kernel takes them, each with its visible pairs.

    That is all rows at once, or block by block where a rule is evaluated for each.
    """
    first, step = cut.rows(unit.stripe)
    if recipe.rule is None:
        yield (first, step, cut.queries), visible
        return
    bounds = recipe.bounds[unit.batch if len(recipe.bounds) > 1 else 0].numpy()
    for row in range(first, cut.queries, step):
        last = min(row + cut.height, cut.queries)
        starts, stops = bounds[:, row:last]
        seeing = starts < stops
        if not seeing.any():
            yield (row, step, last), visible
            continue
        start, stop = int(starts[seeing].min()), int(stops[seeing].max())
        tile = recipe.rule(range(row, last), range(start, stop))
        pairs = at(tile, unit.batch, head).expand(-1, stop - start).contiguous()
        shown = visible_grid(pairs[None, None], 0, 0)
        # The kernel indexes queries and keys of the whole problem.
        yield (row, step, last), shown._replace(first=-row * shown.row - start)


def forward(problem: LoweredProblem, spec: OutputSpec) -> Results:
    """Compute the context and the requested sums in one pass over the scores."""
    results = allocated(problem, spec, _zeros)
    in_code = _ForwardCall.of(problem, spec)
    few = workers.FEW if in_code is None else workers.FEW_IN_CODE
    cut = Schedule.of(problem, numbers=FORWARD_NUMBERS, shares=4, few=few)
    stripes: dict[str, Tensor] = {}
    for array, result in zip(ARRAYS, results, strict=True):
        if array.empty:
            result.fill_(array.empty)
        if array.merged:
            dtype = torch.float64 if array.dtype == "float64" else result.dtype
            stripes[array.name] = torch.zeros(cut.stripes, *result.shape, dtype=dtype)
    if in_code is not None:
        in_code.run(cut, results._replace(**stripes))
    else:
        _share(problem, spec, cut, results, stripes)
    for array, result in zip(ARRAYS, results, strict=True):
        if array.merged and result.numel():
            first, *others = stripes[array.name]
            merge = torch.maximum if array.merged == "max" else torch.add
            result.copy_(reduce(merge, others, first))
    return results._replace(context=results.context.to(problem.query.dtype))


def _share(
    problem: LoweredProblem,
    spec: OutputSpec,
    cut: Schedule,
    results: Results,
    stripes: dict[str, Tensor],
) -> None:
    """Compute the results head by head, where Python hands them to the kernels."""

    # Gradient mode is thread-local.
    @torch.no_grad()
    def work(units: Iterator[WorkItem]) -> None:
        one = _ForwardPass(problem, spec, cut, results)
        for unit in units:
            one.run(unit, {name: parts[unit.stripe] for name, parts in stripes.items()})

    workers.share(cut.units(), work, cut.threads)


def _of_head(spec: OutputSpec, batch: int, head: int, real: np.dtype) -> OutputSpec:
    """Return the request of one head, in arrays for the kernels."""
    values: list[Any] = []
    for asked, value in zip(ASKED, spec, strict=True):
        if asked.kind == "rows":
            empty = np.empty((0, 0), real)
            values.append(empty if value is None else _rows(at(value, batch, head)))
        elif asked.kind == "each":
            values.append(np.array(value, np.int64).reshape(-1, len(asked.of)))
        else:
            values.append(value)
    return OutputSpec(*values)


class _ForwardCall(NamedTuple):
    """Call of a forward pass that is a program.

    Attributes:
        problem: The problem, in float32 or half precision, without a rule and without sinks.
        spec: What is asked for.
    """

    problem: LoweredProblem
    spec: OutputSpec

    @classmethod
    def of(cls, problem: LoweredProblem, spec: OutputSpec) -> "_ForwardCall | None":
        """Return it for a problem; None for one that Python hands to the kernels head by head."""
        query, key, value, recipe = problem
        scores = math.prod(query.shape[:3]) * key.shape[2]
        if (
            not (recipe.rule is None is recipe.sink)
            or query.dtype == torch.float64
            or len(recipe.offsets) > 1
            or scores * query.shape[3] > LONGEST
            or not fills_tiles(query.shape[3], *(() if value is None else (value.shape[3],)))
        ):
            return None
        value = value if value is None else in_rows(value)
        # A compiler may have laid them out anew.
        bounds, table, *operands = (
            part.contiguous() if isinstance(part, Tensor) else part
            for part in (recipe.bounds, recipe.table, *spec)
        )
        recipe = recipe._replace(bounds=bounds, table=table)
        spec = OutputSpec(*operands)
        return cls(LoweredProblem(in_rows(query), in_rows(key), value, recipe), spec)

    @torch.no_grad()
    def run(self, cut: Schedule, results: Results) -> None:
        """Compute the results, of which those that queries add to are of each stripe by itself."""
        problem, spec = self
        (query, key, value, recipe), operands = problem, of_operands(spec)
        program = kept(
            lambda: forward_program(problem, cut, spec), forward_program, problem, spec, cut
        )
        lengths = np.full(len(query), key.shape[2], np.int64)
        parts = recipe.visible, recipe.bias, recipe.table
        tensors = query, key, value, recipe.bounds, *results, *parts, *operands
        program.run(
            lengths.ctypes.data,
            *(0 if x is None else x.data_ptr() for x in tensors),
            int(recipe.offsets[0]),
        )


def _zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Allocate zeros with NumPy, whose pages are cleared by the thread that first writes them."""
    numbers = {torch.float32: np.float32, torch.float64: np.float64, torch.int64: np.int64}
    return torch.from_numpy(np.zeros(shape, numbers[dtype]))


class _ForwardPass:
    """One thread's forward pass over its work items, with its scratch memory."""

    def __init__(
        self, problem: LoweredProblem, spec: OutputSpec, cut: Schedule, results: Results
    ) -> None:
        self.problem, self.spec, self.cut, self.results = problem, spec, cut, results
        self.real = real = real_of(problem.query)
        value_width = 0 if problem.value is None else cut.padded(problem.value.shape[-1])
        across = cut.across
        self.kernel = kernel("forward_blocks", real)
        workspace = Workspace(
            query=np.empty(cut.height * problem.query.shape[-1], real),
            scores=np.empty(cut.height * across, real),
            product=np.empty(cut.height * value_width, real),
            top_groups=np.empty(max(64, min(4 * spec.top, cut.keys)), real),
            order=np.empty(spec.top, real),
            columns=np.empty(across if spec.maps else 0, np.float64),
            factors=np.empty(cut.height, real),
            spans=np.empty((0 if spec.per_key is None else spec.per_key.shape[2], 2), np.int64),
        )
        # What is the same for all heads is packed once.
        self.workspace = self.kernel.pack.argument(4, workspace)
        self.all_heads: Packed | None = None
        if all(one is None or one.shape[:2] == (1, 1) for one in of_operands(spec)):
            self.all_heads = self.kernel.pack.argument(2, _of_head(spec, 0, 0, real))
        self.stripes: dict[int, tuple[Packed, list[int]]] = {}
        # The keys and values of the last work item: the next one may be of the same head.
        self.packed: tuple[tuple[int, int], RightOperand, Matrix] | None = None

    def _results(self, unit: WorkItem, head: int, stripe: dict[str, Tensor]) -> Packed:
        """Pack the output arrays of one head: those of the first one, so many steps further."""
        if unit.stripe not in self.stripes:
            parts = self.results._replace(**stripe)
            first = Results(*(part[0, 0].numpy() for part in parts))
            steps: list[int] = []
            for part in parts:
                steps += [part[0, 0].numel() * part.element_size(), *([0] * (part.ndim - 2))]
            self.stripes[unit.stripe] = self.kernel.pack.argument(3, first), steps
        packed, steps = self.stripes[unit.stripe]
        return packed.moved(steps, unit.batch * self.cut.heads + head)

    def run(self, unit: WorkItem, stripe: dict[str, Tensor]) -> None:
        """Process every block of a work item."""
        problem, place = self.problem, (unit.batch, unit.heads.start // self.cut.group)
        if self.packed is None or self.packed[0] != place:
            keys = RightOperand(problem.key[place])
            value = Matrix(np.empty(0, self.real), 0, 0)
            if problem.value is not None:
                value = matrix(problem.value[place], width=self.cut.width)
            self.packed = place, keys, value
        _, keys, value = self.packed
        for head in unit.heads:
            one = recipe_of(problem, keys, unit.batch, head)
            spec = self.all_heads or _of_head(self.spec, unit.batch, head, self.real)
            results = self._results(unit, head, stripe)
            for span, visible in spans(problem.recipe, self.cut, unit, head, one.visible):
                self.kernel(
                    one._replace(visible=visible),
                    value,
                    spec,
                    results,
                    self.workspace,
                    self.cut.width,
                    self.cut.height,
                    *span,
                )


def backward(
    problem: LoweredProblem,
    row_stats: Tensor,
    grad_outputs: GradOutputs,
    wanted: Sequence[bool],
) -> GradInputs:
    """Compute the gradients of all inputs in O(T) memory.

    Args:
        problem: As given to `forward`.
        row_stats: The largest score and the factor of each row, `[batch, heads, 2, queries]`.
        grad_outputs: The incoming gradients of its results.
        wanted: Whether bias, table and sink require gradients.
    """
    grad_inputs = GradInputs.allocate(problem, wanted)
    # Divided as plain calls are, as stripes add up to other bits.
    cut = Schedule.of(problem, numbers=BACKWARD_NUMBERS, shares=1, few=workers.FEW_IN_CODE)
    # Heads may share a bias, whose gradients are then added one after the other.
    threads = 1 if wanted[0] or cut.operations < workers.FEW else cut.threads
    shape = cut.stripes, *problem.query.shape[:2]
    diagonals = cut.queries + cut.keys - 1 if wanted[1] else 0
    sums = _QuerySums(
        key=_KeySums.of(grad_inputs.key, cut),
        value=_KeySums.of(grad_inputs.value, cut),
        tables=torch.zeros(*shape, diagonals, dtype=torch.float64),
        sinks=torch.zeros(*shape, 1 if wanted[2] else 0, dtype=torch.float64),
    )

    # Gradient mode is thread-local.
    @torch.no_grad()
    def work(units: Iterator[WorkItem]) -> None:
        one = _BackwardPass(problem, row_stats, grad_outputs, grad_inputs, cut, sums)
        for unit in units:
            one.run(unit)

    workers.share(cut.units(), work, threads)
    sums.key.add_to(grad_inputs.key)
    sums.value.add_to(grad_inputs.value)
    if wanted[1]:
        grad_inputs.table.copy_(sums.tables.sum(0).sum_to_size(grad_inputs.table.shape))
    if wanted[2]:
        of_heads = sums.sinks[..., 0].sum((0, 1))
        grad_inputs.sink.copy_(of_heads.sum_to_size(grad_inputs.sink.shape))
    return grad_inputs


class _KeySums(NamedTuple):
    """Gradient of keys or values, summed over the queries: of each stripe, in whole panels.

    The stripes are added in their order, so that the sum has the same bits in every run.

    Attributes:
        parts: `[stripes, batch, kv_heads, padded keys, padded dim]`.
        is_result: Whether they are the memory of the result, which is whole panels of one stripe.
    """

    parts: np.ndarray
    is_result: bool

    @classmethod
    def of(cls, result: Tensor, cut: Schedule) -> "_KeySums":
        """Return 0 for the sums that make a result `[batch, kv_heads, keys, dim]`."""
        if not result.numel():
            return cls(np.empty((cut.stripes, cut.batch, cut.kv_heads, 0, 0)), is_result=True)
        *heads, keys, dim = result.shape
        padded = cut.padded(keys), cut.padded(dim)
        if (keys, dim) == padded and cut.stripes == 1:
            return cls(result.numpy()[None], is_result=True)
        return cls(np.zeros((cut.stripes, *heads, *padded), real_of(result)), is_result=False)

    def add_to(self, result: Tensor) -> None:
        """Add the stripes."""
        if not self.is_result:
            _, _, keys, dim = result.shape
            into = result.numpy()
            for part in self.parts:
                into += part[:, :, :keys, :dim]


class _QuerySums(NamedTuple):
    """Sums over the queries, of each stripe by itself, as each has a thread.

    Attributes:
        key, value: The gradients of keys and values.
        tables: That of the table, `[stripes, batch, heads, diagonals]`.
        sinks: That of the sink, `[stripes, batch, heads, 1]`.
    """

    key: _KeySums
    value: _KeySums
    tables: Tensor
    sinks: Tensor


class _BackwardPass:
    """One thread's backward pass over its work items, with its scratch memory."""

    def __init__(
        self,
        problem: LoweredProblem,
        row_stats: Tensor,
        grad_outputs: GradOutputs,
        grad_inputs: GradInputs,
        cut: Schedule,
        sums: _QuerySums,
    ) -> None:
        self.problem, self.cut, self.sums = problem, cut, sums
        self.value = problem.value if grad_outputs.context is not None else None
        self.row_stats, self.grad_outputs, self.grad_inputs = row_stats, grad_outputs, grad_inputs
        self.real = real = real_of(problem.query)
        across = cut.across
        self.dim = cut.padded(problem.query.shape[-1])
        self.value_dim = 0 if self.value is None else cut.padded(self.value.shape[-1])
        self.kernel = kernel("backward_blocks", real)
        workspace = BackwardWorkspace(
            query=np.empty(cut.height * self.dim, real),
            scores=np.empty(cut.height * across, real),
            capped=np.empty(cut.height * across if problem.recipe.softcap else 0, real),
            gradient=np.empty(cut.height * across, real),
            context=np.empty(cut.height * self.value_dim, real),
            product=np.empty(cut.height * self.dim, real),
            ones=np.ones(cut.height, real),
        )
        self.workspace = self.kernel.pack.argument(6, workspace)

    def run(self, unit: WorkItem) -> None:
        """Process every block of a work item."""
        batch, kv_head = unit.batch, unit.heads.start // self.cut.group
        vectors = self.problem.key[batch, kv_head]
        rows = matrix(vectors, width=self.cut.width)
        keys = RightOperand(vectors, rows._replace(width=vectors.shape[-1]))
        values = None if self.value is None else RightOperand(self.value[batch, kv_head])
        for head in unit.heads:
            one = recipe_of(self.problem, keys, batch, head, backward=True)
            gradients = self._gradients(unit, head, kv_head)
            panels, given = self._given(values, batch, head)
            for span, visible in spans(self.problem.recipe, self.cut, unit, head, one.visible):
                self.kernel(
                    one._replace(visible=visible),
                    rows,
                    panels,
                    _rows(self.row_stats[batch, head]),
                    given,
                    gradients,
                    self.workspace,
                    self.cut.width,
                    self.cut.height,
                    *span,
                )

    def _gradients(self, unit: WorkItem, head: int, kv_head: int) -> KernelGradients:
        batch, sums = unit.batch, self.sums
        bias = self.grad_inputs.bias if self.grad_inputs.bias.numel() else None
        place = unit.stripe, batch, kv_head
        value = np.empty(0, self.real)
        if self.value is not None:
            value = sums.value.parts[place].reshape(-1)
        return KernelGradients(
            query=self.grad_inputs.query[batch, head].numpy(),
            key=sums.key.parts[place].reshape(-1),
            value=value,
            bias=grid(bias, batch, head, self.real),
            table=sums.tables[unit.stripe, batch, head].numpy(),
            sink=sums.sinks[unit.stripe, batch, head].numpy(),
        )

    def _given(
        self, values: RightOperand | None, batch: int, head: int
    ) -> tuple[Panels, KernelGradOutputs]:
        """Return the packed values, and the incoming gradients of one head."""
        grad_outputs, empty = self.grad_outputs, np.empty((0, 0), self.real)
        context, half_context, panels = Matrix(EMPTY, 0, 0), EMPTY, Panels(EMPTY, EMPTY)
        if values is not None and grad_outputs.context is not None:
            gradient = grad_outputs.context[batch, head]
            context = matrix(gradient)
            panels, half_context = values.facing(gradient)
        by_key, per_key = grad_outputs.by_key, grad_outputs.per_key
        return panels, KernelGradOutputs(
            context=context,
            half_context=half_context,
            logsumexp=self._row(grad_outputs.logsumexp, batch, head),
            entropy=self._row(grad_outputs.entropy, batch, head),
            by_key=empty if by_key is None else _rows(by_key[batch, head]),
            per_key=empty if by_key is None or per_key is None else _rows(at(per_key, batch, head)),
        )

    def _row(self, tensor: Tensor | None, batch: int, head: int) -> np.ndarray:
        if tensor is None:
            return np.zeros(self.cut.queries, self.real)
        return np.ascontiguousarray(tensor[batch, head].numpy(), self.real)
