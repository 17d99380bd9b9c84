"""Lowering: the program of a pass, from a problem whose tensors are laid out as it takes them."""

import math
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from glasshead.engines.streaming.kernels.arguments import (
    ROW_SUMS,
    BackwardPairs,
    BackwardVectors,
    BackwardWorkspace,
    Blocks,
    ForwardOutputs,
    HalfMatrix,
    KernelGradients,
    KernelGradOutputs,
    KernelGrid,
    KernelRecipe,
    Matrix,
    Panels,
    Values,
    VisibleGrid,
    Workspace,
)
from glasshead.engines.streaming.kernels.processor import NEAR_ROW, SIDE, SQUARE, at_hand
from glasshead.engines.streaming.kernels.streamed import (
    ARRAYS,
    ASKED,
    ROW_STATS,
    Array,
    Asked,
    OutputSpec,
    Results,
    sizes_of,
)
from glasshead.engines.streaming.machine_code import Place
from glasshead.engines.streaming.operands import GradInputs, GradOutputs, LoweredProblem, real_of
from glasshead.engines.streaming.programs import (
    ALWAYS,
    MOST_WORDS,
    Call,
    Program,
    Schedule,
    When,
)


class _Vectors(NamedTuple):
    """Vectors of one head of an input, in place.

    Attributes:
        place: Their memory.
        row: The step from one to the next.
        length, dim: Their number, and their width.
        dtype: Theirs.
        shared: Whether the heads of a group share them, as keys: each batch row has some of them.
    """

    place: Any
    row: int
    length: int
    dim: int
    dtype: torch.dtype
    shared: bool

    @property
    def number(self) -> Any:
        """Number of them: for keys, as many as their batch row has."""
        return _KEYS if self.shared else self.length

    @classmethod
    def of(cls, base: str, x: Tensor, group: int, *, shared: bool = False) -> "_Vectors":
        """Describe the vectors of an input by its name."""
        (length, dim), row = x.shape[2:], x.stride(2)
        batch, head = (step * x.itemsize for step in x.stride()[:2])
        moves = (batch, head, 0, 0) if shared else (batch, head * group, head, 0)
        place = Place(base, ((length - 1) * row + dim,), 0, moves)
        return cls(place, row, length, dim, x.dtype, shared)


_KEYS = Place("lengths", (), 0, (8, 0, 0, 0), loaded=True)


class Builder:
    """Collects the calls of a program, and the memory that a thread needs for them.

    Args:
        problem: The problem.
        cut: How the work is divided.
    """

    def __init__(self, problem: LoweredProblem, cut: Schedule) -> None:
        self.problem, self.cut, self.real = problem, cut, real_of(problem.query)
        self.calls: list[Call] = []
        # Where in a thread's memory the smallest sizes stand that decide a `When`.
        self.least = [0, 0, 0, 0]
        # The words of all calls come first.
        self.room = 8 * MOST_WORDS
        group, value = cut.group, problem.value
        self.query = _Vectors.of("query", problem.query, group)
        self.key = _Vectors.of("key", problem.key, group, shared=True)
        self.value = None if value is None else _Vectors.of("value", value, group, shared=True)

    def take(self, *shape: int, itemsize: int = 0) -> Any:
        """Take memory for an array of each thread, of the problem's numbers if not of others."""
        place = Place("scratch", shape, self.room)
        self.room += -(-math.prod(shape) * (itemsize or self.real.itemsize) // 64) * 64
        return place

    def numbers(self, x: _Vectors, when: When = ALWAYS, *, padded: bool = False) -> Matrix:
        """Return vectors as they are, or widened; `padded` with 0 to whole panels."""
        across = self.cut.padded(x.dim) if padded else x.dim
        is_half = x.dtype.itemsize == 2
        if not is_half and across == x.dim:
            return Matrix(x.place, x.row, x.dim)
        made = self.take(x.length * across)
        entry, given = "copy_rows", (Matrix(x.place, x.row, x.dim), 0, x.number, across, made)
        if is_half:
            is_bfloat16 = int(x.dtype == torch.bfloat16)
            half = HalfMatrix(x.place, x.row, x.dim)
            entry, given = "widen", (half, x.number, across, is_bfloat16, made)
        self.calls.append(Call(entry, given, x.shared and when is ALWAYS, when))
        return Matrix(made, across, across)

    def panels(self, rows: Matrix, x: _Vectors, when: When = ALWAYS, width: int = 0) -> Any:
        """Return the vectors of a key head in panels, as wide as the schedule's if not given."""
        made = self.take(self.cut.padded(x.length) * rows.width)
        given = rows, x.number, width or self.cut.width, made
        self.calls.append(Call("pack", given, when is ALWAYS, when))
        return made

    def pairs(self, x: _Vectors, least: int) -> Any:
        """Return vectors as rows of pairs, whose smallest size has one of the four places."""
        deep = self.deep(x)
        rows = self.take(-(-x.length // self.cut.rows) * self.cut.rows * deep, itemsize=4)
        size = self.take(1, itemsize=8)
        self.least[least] = size.offset
        half = HalfMatrix(x.place, x.row, x.dim)
        # The order of a pair matters where its products are added one after the other.
        given = half, x.number, deep, int(not self.cut.tiled), rows, size
        self.calls.append(Call("pair_up", given, x.shared))
        return rows

    def deep(self, x: _Vectors) -> int:
        """Return the pairs of a row: on matrix tiles, in whole steps."""
        step = SQUARE if self.cut.tiled else 2
        return -(-x.dim // step) * step // 2

    def pairs_of_rows(self, x: _Vectors) -> Any:
        """Return vectors of a head as pairs of rows: the right operand of matrix tiles."""
        across = self.cut.padded(x.dim)
        made = self.take(self.cut.padded(x.length) // 2 * across, itemsize=4)
        half = HalfMatrix(x.place, x.row, x.dim)
        self.calls.append(Call("pair_rows", (half, x.number, across, made), once=x.shared))
        return made

    def facing(
        self, place: int, left: _Vectors, right: _Vectors, numbers: Matrix | None = None
    ) -> Iterator[tuple[When, Panels, Any]]:
        """Yield each way of a product: when it is taken, the panels, and the rows of pairs.

        Where both operands are of bfloat16, the processor may multiply pairs of them, and the
        result is the same; it depends on their numbers whether it is.

        Args:
            place: Of the product in a `When`.
            left, right: Its operands.
            numbers: The right one, if that is at hand.
        """
        if not (left.dtype == right.dtype == torch.bfloat16 and at_hand().half_products):
            rows = numbers or self.numbers(right)
            yield ALWAYS, Panels(self.panels(rows, right), None), None
            return
        rows, others = self.pairs(left, 2 * place), self.pairs(right, 2 * place + 1)
        deep = self.deep(right)
        exactly, otherwise = (ALWAYS._replace(**{When._fields[place]: exact}) for exact in (1, 0))
        # Words are moved as numbers are.
        packed = self.panels(Matrix(others, deep, deep), right, width=SIDE * self.cut.tiled)
        yield exactly, Panels(None, packed, deep, int(self.cut.tiled)), rows
        numbers = numbers or self.numbers(right, otherwise)
        yield otherwise, Panels(self.panels(numbers, right, otherwise), None), None

    def recipe(self, query: Matrix, half: Any, panels: Panels) -> KernelRecipe:
        """Return the kernel arguments that define the scores of a head."""
        recipe = self.problem.recipe
        visible, _, row = self.pairs_of("visible", recipe.visible)
        table = None if recipe.table is None else self.operand("table", recipe.table)
        return KernelRecipe(
            query=query,
            half_query=half,
            panels=panels,
            keys=_KEYS,  # type: ignore[arg-type]
            bounds=self.by_batch("bounds", recipe.bounds),
            bias=KernelGrid(*self.pairs_of("bias", recipe.bias)),
            visible=VisibleGrid(visible, Place("first pair"), row),  # type: ignore[arg-type]
            table=table,
            known=None if recipe.known is None else self.result("known", self.cut.queries),
            scale=float(recipe.scale),
            softcap=float(recipe.softcap),
            sink=-math.inf if recipe.sink is None else self.by_head("sink", recipe.sink),
            offset=self.by_batch("offsets", recipe.offsets, loaded=True),
            rows=self.cut.rows,
        )

    def by_batch(self, name: str, x: Tensor, *, loaded: bool = False) -> Any:
        """Return the place of a batch row's part of `[#batch, …]`."""
        size = 0 if len(x) == 1 else x[0].numel() * x.itemsize
        return Place(name, tuple(x.shape[1:]), 0, (size, 0, 0, 0), loaded)

    def by_head(self, name: str, x: Tensor) -> Any:
        """Return a head's number of `[#heads]`."""
        size = 0 if len(x) == 1 else x.itemsize
        return Place(name, (), 0, (0, size * self.cut.group, size, 0), loaded=True)

    def operand(self, name: str, x: Tensor) -> Any:
        """Return the place of a head's numbers of an operand `[#batch, #heads, …]`."""
        batch, head = (0 if x.shape[axis] == 1 else x.stride(axis) * x.itemsize for axis in (0, 1))
        return Place(name, tuple(x.shape[2:]), 0, (batch, head * self.cut.group, head, 0))

    def pairs_of(self, name: str, x: Tensor | None) -> tuple[Any, int, int]:
        """Return the place of a head's pairs of `[#batch, #heads, #queries, keys]`, as a grid's."""
        if x is None:
            return None, 0, 0
        queries, keys = x.shape[2:]
        row = x.stride(2) if queries > 1 else 0
        place = self.operand(name, x)._replace(shape=((queries - 1) * row + keys,))
        return place, 0, row

    def result(self, name: str, *shape: int, itemsize: int = 0, stripes: bool = False) -> Any:
        """Return the place of a head's numbers of `[batch, heads, …]`, or of each stripe's."""
        cut = self.cut
        size = math.prod(shape) * (itemsize or self.real.itemsize)
        stripe = cut.batch * cut.heads * size if stripes else 0
        return Place(name, shape, 0, (cut.heads * size, cut.group * size, size, stripe))

    def sums(self, name: str, x: _Vectors, across: int) -> Any:
        """Return the place of a key head's sums of `[stripes, batch, kv_heads, …]`, flat."""
        numbers = self.cut.padded(x.length) * across
        step = numbers * self.real.itemsize
        heads = self.cut.kv_heads * step
        return Place(name, (numbers,), 0, (heads, step, 0, self.cut.batch * heads))

    def program(self, width: int, rows: int = 0) -> Program:
        """Return the program of the calls, for values of a width."""
        return Program(self.calls, self.cut, self.real, width, self.least, self.room, rows)

    def blocks(self) -> Blocks:
        """Return the blocks of a stripe."""
        cut = self.cut
        first: Any = Place("first row", moves=(0, 0, 0, cut.height))
        last: Any = Place("last row")
        return Blocks(cut.width, cut.height, first, cut.stripes * cut.height, last)


def forward_program(problem: LoweredProblem, cut: Schedule, spec: OutputSpec) -> Program:
    """Return the program of a forward pass."""
    builder = Builder(problem, cut)
    width, values = 0, Values(Matrix(None, 0, 0), None)
    if builder.value is not None:
        width = builder.value.dim
        if cut.tiled:
            pairs = builder.pairs_of_rows(builder.value)
            values = Values(Matrix(None, 0, cut.padded(width)), pairs)
        else:
            values = Values(builder.numbers(builder.value, padded=True), None)
    sizes = sizes_of(spec, cut.queries, cut.keys, width)
    block, near = cut.height * cut.across, builder.take(cut.height * NEAR_ROW)
    workspace = Workspace(
        query=builder.take(cut.height * builder.query.dim),
        scores=builder.take(block),
        near=near,
        near_halves=near._replace(shape=(2 * cut.height * NEAR_ROW,)),
        rounded=builder.take(0 if values.pairs is None else block, itemsize=2),
        product=builder.take(cut.height * values.numbers.width),
        sums=builder.take(ROW_SUMS * cut.height * at_hand().tile.bytes // builder.real.itemsize),
        top_groups=builder.take(max(64, min(4 * spec.top, cut.keys))),
        order=builder.take(spec.top),
        columns=builder.take(cut.across if spec.maps else 0, itemsize=8),
        factors=builder.take(cut.height),
        spans=builder.take(sizes["per_key"], 2, itemsize=8),
    )
    results = Results(*(_result(builder, array, array.shape(sizes)) for array in ARRAYS))
    outputs = ForwardOutputs(results, None)
    if values.pairs is not None:
        halves = builder.result("context", cut.queries * width, itemsize=2)
        outputs = ForwardOutputs(results._replace(context=None), halves)
    asked = OutputSpec(
        *(_asked(builder, one, value) for one, value in zip(ASKED, spec, strict=True))
    )
    for when, panels, half in builder.facing(0, builder.query, builder.key):
        query = Matrix(None, 0, builder.query.dim)
        if half is None:
            query = builder.numbers(builder.query, when)
        recipe = builder.recipe(query, half, panels)
        arguments = recipe, values, asked, outputs, workspace, builder.blocks()
        builder.calls.append(Call("forward_blocks", arguments, when=when))
    rows = cut.batch * cut.heads * cut.queries * ROW_STATS * builder.real.itemsize
    return builder.program(width, rows)


def _result(builder: Builder, array: Array, shape: tuple[int, ...]) -> Any:
    """Return the place of a head's numbers of a result."""
    itemsize = builder.real.itemsize if array.dtype == "real" else 8
    return builder.result(array.name, *shape, itemsize=itemsize, stripes=bool(array.merged))


def _asked(builder: Builder, asked: Asked, value: Any) -> Any:
    """Return a head's field of the request."""
    if asked.kind == "rows":
        return None if value is None else builder.operand(asked.name, value)
    if asked.kind == "each":
        return np.array(value, np.int64).reshape(-1, len(asked.of))
    return value


def backward_program(
    problem: LoweredProblem, cut: Schedule, given: GradOutputs, grads: GradInputs
) -> Program:
    """Return the program of a backward pass.

    Args:
        problem: Without a value where the context has no gradient.
        cut: How the work is divided.
        given: The gradients that arrive.
        grads: Those to compute, of no numbers where bias, table and sink need none.
    """
    builder = Builder(problem, cut)
    left, right = builder.query, builder.key
    across = cut.padded(left.dim)
    numbers, keys = builder.numbers(left), builder.numbers(right, padded=True)
    arriving, incoming, width, wide = None, Matrix(None, 0, 0), 0, 0
    if builder.value is not None and given.context is not None:
        arriving = _Vectors.of("of_context", given.context, cut.group)
        incoming = builder.numbers(arriving)
        width, wide = arriving.dim, cut.padded(arriving.dim)
    in_pairs = arriving is not None and cut.tiled and arriving.dtype == torch.bfloat16
    workspace = _backward_workspace(builder, across, wide, in_pairs=in_pairs)
    no_pairs = pairs = BackwardPairs(None, None, None)
    if arriving is not None and in_pairs:
        pairs = BackwardPairs(*map(builder.pairs_of_rows, (left, right, arriving)))
    gradients = KernelGradients(
        query=builder.result("grad_query", cut.queries, left.dim),
        key=builder.sums("grad_key", right, across),
        value=None if builder.value is None else builder.sums("grad_value", builder.value, wide),
        bias=KernelGrid(*builder.pairs_of("grad_bias", grads.bias if grads.bias.numel() else None)),
        table=_learned(builder, "grad_table", grads.table, cut.queries + cut.keys - 1),
        sink=_learned(builder, "grad_sink", grads.sink, 1),
    )
    ways: list[tuple[When, Panels, Any]] = [(ALWAYS, Panels(None, None), None)]
    scores = list(builder.facing(0, left, right, keys._replace(width=right.dim)))
    if arriving is not None and builder.value is not None:
        ways = list(builder.facing(1, arriving, builder.value))
    for (of_scores, panels, half), (of_values, value_panels, half_incoming) in product(
        scores, ways
    ):
        when = When(of_scores.scores, of_values.values)
        # Where numbers are too small for tiles, all products are those of float32.
        on_tiles = in_pairs and when == When(1, 1)
        query = Matrix(None, 0, left.dim) if on_tiles else numbers
        arguments = (
            builder.recipe(query, half, panels),
            BackwardVectors(keys, value_panels, pairs if on_tiles else no_pairs),
            builder.result("row_stats", 2, cut.queries),
            _outputs(builder, given, incoming, half_incoming),
            gradients,
            workspace,
            builder.blocks(),
        )
        builder.calls.append(Call("backward_blocks", arguments, when=when))
    return builder.program(width)


def _backward_workspace(
    builder: Builder, across: int, wide: int, *, in_pairs: bool
) -> BackwardWorkspace:
    """Take scratch memory for a block: rows of queries and of gradients of the context."""
    height, keys = builder.cut.height, builder.cut.across
    return BackwardWorkspace(
        query=builder.take(height * across),
        scores=builder.take(height * keys),
        capped=builder.take(height * keys if builder.problem.recipe.softcap else 0),
        gradient=builder.take(height * keys),
        context=builder.take(height * wide),
        product=builder.take(height * across),
        ones=np.ones(height, builder.real),
        rounded=builder.take(height * (keys + SQUARE) if in_pairs else 0, itemsize=2),
        turned=builder.take(height // 2 * SQUARE if in_pairs else 0, itemsize=4),
    )


def _outputs(
    builder: Builder, given: GradOutputs, context: Matrix, half_context: Any
) -> KernelGradOutputs:
    """Return the gradients of a head that arrive, 0 for rows that have none."""
    queries = builder.cut.queries
    nothing = np.zeros(queries, builder.real)

    def of_rows(name: str, x: Tensor | None) -> Any:
        return nothing if x is None else builder.result(name, queries)

    return KernelGradOutputs(
        context=context,
        half_context=half_context,
        logsumexp=of_rows("of_logsumexp", given.logsumexp),
        entropy=of_rows("of_entropy", given.entropy),
        by_key=None if given.by_key is None else builder.operand("of_by_key", given.by_key),
        per_key=None if given.per_key is None else builder.operand("per_key", given.per_key),
    )


def _learned(builder: Builder, name: str, gradient: Tensor, count: int) -> Any:
    """Return the place of a head's sums for a gradient that each stripe has by itself."""
    if not gradient.numel():
        return None
    return builder.result(name, count, itemsize=8, stripes=True)
