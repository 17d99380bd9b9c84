"""Programs: the kernel calls of a pass for every head, as machine code makes them by itself.

A program is made once for inputs of the same shapes and strides. It holds the arguments of each
kernel, with addresses relative to the tensors of a call and to a thread's memory (`Place`);
`share_heads` completes them, head by head, in each thread.
"""

import ctypes
import math
import struct
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from glasshead.engines.streaming.kernels.arguments import (
    EITHER,
    FIRST_GIVEN,
    ROW_STATS,
    SCRATCH,
    STATUS,
    ZERO,
    BackwardWorkspace,
    HalfMatrix,
    KernelGradients,
    KernelGradOutputs,
    KernelGrid,
    KernelRecipe,
    KernelResults,
    Matrix,
    Panels,
    Task,
    VisibleGrid,
    Workspace,
)
from glasshead.engines.streaming.kernels.processor import at_hand, columns_of
from glasshead.engines.streaming.machine_code import Place, kernel
from glasshead.engines.streaming.operands import LoweredProblem, OutputSpec
from glasshead.engines.streaming.passes import BACKWARD_NUMBERS, EMPTY, FORWARD_NUMBERS
from glasshead.engines.streaming.threads import FEW_IN_CODE, Schedule, call_in_threads

_REAL, _CPU = np.dtype(np.float32), torch.device("cpu")
# The addresses that a call gives: of the forward pass, with the gradient of the context in place of
# the context in the backward pass, and of this alone.
(_QUERY, _KEY, _VALUE, _CONTEXT, _ROWS) = range(FIRST_GIVEN, FIRST_GIVEN + 5)
(_GRAD_QUERY, _GRAD_KEY, _GRAD_VALUE) = range(FIRST_GIVEN + 5, FIRST_GIVEN + 8)


class _When(NamedTuple):
    """When a call is made: as the pairs of q·kᵀ, or of dO·vᵀ, multiply exactly, 1, or not, 0."""

    scores: int = EITHER
    values: int = EITHER


_ALWAYS = _When()


class _Call(NamedTuple):
    """Call of a kernel, made for each head.

    Attributes:
        entry: The name of the kernel.
        arguments: With a `Place` for what depends on the call, the head or the thread.
        once: Whether it is made once for the heads that share keys.
        when: Whether it depends on numbers.
    """

    entry: str
    arguments: tuple[Any, ...]
    once: bool = False
    when: _When = _ALWAYS


class Program:
    """Calls of kernels for every head, with addresses that a call of its own completes.

    Args:
        calls: In their order.
        cut: How the work is divided.
        width: Of the values.
        least, room: As of a `Task`.

    Attributes:
        shape: Of the context.
        stripes: How many results of their own there are of sums over the queries.
        padded: The keys in whole panels.
    """

    def __init__(
        self, calls: Sequence[_Call], cut: Schedule, width: int, least: list[int], room: int
    ) -> None:
        self.shape = cut.batch, cut.heads, cut.queries, width
        self.stripes, self.padded = cut.stripes, cut.padded(cut.keys)
        self._threads, self._size = cut.threads, cut.threads * room
        self._rows = cut.batch * cut.heads * cut.queries * ROW_STATS * _REAL.itemsize
        # They hold the arrays whose addresses are among the words.
        self._calls = calls
        words: list[Any] = []
        table = []
        for call in calls:
            code, first = kernel(call.entry, _REAL), len(words)
            words += code.pack.words(call.arguments)
            table.append((code.address, first, len(words), call.once, *call.when))
        still = (ZERO, 0, 0, 0, 0)
        moves = [(word.base, *word.moves) if type(word) is Place else still for word in words]
        self._task = Task(
            words=np.array([_bits(word) for word in words], np.int64),
            moves=np.array(moves, np.int64),
            calls=np.array(table, np.int64),
            least=np.array(least, np.int64),
            batch=cut.batch,
            kv_heads=cut.kv_heads,
            group=cut.group,
            stripes=cut.stripes,
            threads=cut.threads,
            room=room,
        )
        self._share = kernel("share_heads", _REAL)
        # The last word is the address of what a call gives.
        self._packed = self._share.pack((self._task, 0))[:-8]

    def run(
        self, query: Tensor, key: Tensor, value: Tensor, context: Tensor, *others: Tensor
    ) -> None:
        """Call the kernels for tensors, in the order of their bases.

        Of a forward pass, the others are the statistics of rows, which may be left out.
        """
        size = self._size if others else self._size + self._rows
        memory = _memory(size)
        address = memory.data_ptr()
        given = _Given(
            *(0, 0, 0, 0, address),
            *(query.data_ptr(), key.data_ptr(), value.data_ptr(), context.data_ptr()),
            *([x.data_ptr() for x in others] if others else (address + self._size,)),
        )
        packed = self._packed + _WORD.pack(ctypes.addressof(given))
        call_in_threads(self._share, packed, self._threads)
        if size <= _SMALL:
            _SPARE[:] = (memory,)
        if given[STATUS]:
            raise RuntimeError(f"a kernel of the streaming engine ended with {given[STATUS]}.")


# Memory of small calls is kept for the next one.
_SMALL = 2**20
_SPARE: list[Tensor] = []
_WORD = struct.Struct("q")


def _memory(size: int) -> Tensor:
    """Return memory of so many bytes at least."""
    if size <= _SMALL:
        try:
            return _SPARE.pop()
        except IndexError:
            size = _SMALL
    return torch.empty(size, dtype=torch.uint8, device=_CPU)


_Given = ctypes.c_int64 * (FIRST_GIVEN + 8)


def _bits(word: Any) -> int:
    """Return a word as an integer: the offset of a place, the bits of a float."""
    if type(word) is Place:
        return word.offset
    return struct.unpack("q", struct.pack("d", word))[0] if isinstance(word, float) else int(word)


class _Vectors(NamedTuple):
    """Vectors of one head of an input, in place.

    Attributes:
        place: Their memory.
        row: The step from one to the next.
        length, dim: Their number, and their width.
        dtype: Theirs.
        shared: Whether the heads of a group share them.
    """

    place: Any
    row: int
    length: int
    dim: int
    dtype: torch.dtype
    shared: bool

    @classmethod
    def of(cls, base: int, x: Tensor, group: int, *, shared: bool = False) -> "_Vectors":
        """Describe the vectors of an input by the index of its base address."""
        (length, dim), row = x.shape[2:], x.stride(2)
        batch, head = (step * x.itemsize for step in x.stride()[:2])
        moves = (batch, head, 0, 0) if shared else (batch, head * group, head, 0)
        place = Place(base, ((length - 1) * row + dim,), 0, moves)
        return cls(place, row, length, dim, x.dtype, shared)


class _Builder:
    """Collects the calls of a program, and the memory that a thread needs for them."""

    def __init__(self) -> None:
        self.calls: list[_Call] = []
        self.least = [0, 0, 0, 0]
        # The words of all calls come first.
        self.room = 8 * 1024

    def take(self, *shape: int, itemsize: int = _REAL.itemsize) -> Any:
        """Take memory for an array of each thread."""
        place = Place(SCRATCH, shape, self.room)
        self.room += -(-math.prod(shape) * itemsize // 64) * 64
        return place

    def numbers(self, x: _Vectors, when: _When = _ALWAYS) -> Matrix:
        """Return vectors in float32: as they are, or widened."""
        if x.dtype == torch.float32:
            return Matrix(x.place, x.row, x.dim)
        made = self.take(x.length * x.dim)
        is_bfloat16 = int(x.dtype == torch.bfloat16)
        widen = HalfMatrix(x.place, x.row, x.dim), x.length, x.dim, is_bfloat16, made
        self.calls.append(_Call("widen", widen, x.shared and when is _ALWAYS, when))
        return Matrix(made, x.dim, x.dim)

    def panels(self, rows: Matrix, x: _Vectors, when: _When = _ALWAYS) -> Any:
        """Return the vectors of a key head in panels."""
        width = columns_of(_REAL.itemsize)
        made = self.take(-(-x.length // width) * width * rows.width)
        self.calls.append(_Call("pack", (rows, x.length, width, made), when is _ALWAYS, when))
        return made

    def pairs(self, x: _Vectors, least: int) -> Any:
        """Return vectors as rows of pairs, whose smallest size has one of the four places."""
        tile, deep = at_hand().tile.rows, -(-x.dim // 2)
        rows, size = self.take(-(-x.length // tile) * tile * deep), self.take(1, itemsize=8)
        self.least[least] = size.offset
        half = HalfMatrix(x.place, x.row, x.dim)
        self.calls.append(_Call("pair_up", (half, x.length, rows, size), x.shared))
        return rows

    def facing(
        self, place: int, left: _Vectors, right: _Vectors, numbers: Matrix | None = None
    ) -> Iterator[tuple[_When, Panels, Any]]:
        """Yield each way of a product: when it is taken, the panels, and the rows of pairs.

        Args:
            place: Of the product in a `_When`.
            left, right: Its operands.
            numbers: The right one in float32, if that is at hand.
        """
        if not (left.dtype == torch.bfloat16 and at_hand().half_products):
            yield _ALWAYS, Panels(self.panels(numbers or self.numbers(right), right), EMPTY), EMPTY
            return
        rows, others = self.pairs(left, 2 * place), self.pairs(right, 2 * place + 1)
        deep = -(-right.dim // 2)
        exactly, otherwise = (_ALWAYS._replace(**{_When._fields[place]: exact}) for exact in (1, 0))
        yield exactly, Panels(EMPTY, self.panels(Matrix(others, deep, deep), right)), rows
        numbers = numbers or self.numbers(right, otherwise)
        yield otherwise, Panels(self.panels(numbers, right, otherwise), EMPTY), EMPTY


def _stripe(cut: Schedule) -> tuple[Any, int, int]:
    """Return the first query of a stripe, the step to the next block, and the end."""
    return Place(ZERO, (), 0, (0, 0, 0, cut.height)), cut.stripes * cut.height, cut.queries


def _of_head(base: int, cut: Schedule, *shape: int, stripes: bool = False) -> Any:
    """Return the place of a head's numbers in a contiguous result.

    Args:
        base: The index of its address.
        cut: How the work is divided.
        shape: Of one head.
        stripes: Whether each stripe has some of its own, in the layout of the keys' heads.
    """
    size = math.prod(shape) * _REAL.itemsize
    if stripes:
        moves = cut.kv_heads * size, size, 0, cut.batch * cut.kv_heads * size
    else:
        moves = cut.heads * size, cut.group * size, size, 0
    return Place(base, shape, 0, moves)


def _recipe(problem: LoweredProblem, query: Matrix, half: Any, panels: Panels) -> KernelRecipe:
    """Return the kernel arguments that define the scores of a head."""
    return KernelRecipe(
        query=query,
        half_query=half,
        panels=panels,
        keys=problem.key.shape[2],
        bounds=problem.recipe.bounds[0].numpy(),
        bias=_NO_PAIRS,
        visible=VisibleGrid(np.empty(0, np.bool_), 0, 0),
        table=_NONE,
        scale=float(problem.recipe.scale),
        softcap=float(problem.recipe.softcap),
        sink=-math.inf,
        offset=0,
    )


_NONE, _NO_DOUBLES = np.empty(0, _REAL), np.empty(0, np.float64)
_NO_PAIRS = KernelGrid(_NONE, 0, 0)


def forward_program(problem: LoweredProblem) -> Program:
    """Return the program of a forward pass."""
    query, key, value = problem.query, problem.key, cast("Tensor", problem.value)
    width = value.shape[3]
    cut = Schedule(problem, numbers=FORWARD_NUMBERS, shares=4, few=FEW_IN_CODE)
    builder = _Builder()
    left = _Vectors.of(_QUERY, query, cut.group)
    right = _Vectors.of(_KEY, key, cut.group, shared=True)
    values = builder.numbers(_Vectors.of(_VALUE, value, cut.group, shared=True))
    workspace = Workspace(
        query=builder.take(cut.height * left.dim),
        scores=builder.take(cut.height * cut.across),
        product=builder.take(cut.height * width),
        top_groups=_NONE,
        order=_NONE,
        columns=_NO_DOUBLES,
        factors=builder.take(cut.height),
    )
    results = KernelResults(
        context=_of_head(_CONTEXT, cut, cut.queries, width),
        rows=_of_head(_ROWS, cut, ROW_STATS, cut.queries),
        by_key=np.empty((0, cut.queries), _REAL),
        top=np.empty((cut.queries, 0), _REAL),
        keys=np.empty((cut.queries, 0), np.int64),
        by_query=np.empty((0, cut.keys), np.float64),
        diagonals=_NO_DOUBLES,
        maps=_NO_DOUBLES,
    )
    spec = OutputSpec().of_head(0, 0, _REAL)
    for when, panels, half in builder.facing(0, left, right):
        numbers = Matrix(EMPTY, 0, left.dim)
        if half is EMPTY:
            numbers = builder.numbers(left, when)
        recipe = _recipe(problem, numbers, half, panels)
        blocks = cut.width, cut.height, *_stripe(cut)
        arguments = recipe, values, spec, results, workspace, *blocks
        builder.calls.append(_Call("forward_blocks", arguments, when=when))
    return Program(builder.calls, cut, width, builder.least, builder.room)


def backward_program(problem: LoweredProblem, gradient: Tensor) -> Program:
    """Return the program of a backward pass, for the gradient of the context."""
    query, key, value = problem.query, problem.key, cast("Tensor", problem.value)
    width = value.shape[3]
    cut = Schedule(problem, numbers=BACKWARD_NUMBERS, shares=1, few=FEW_IN_CODE)
    builder = _Builder()
    left = _Vectors.of(_QUERY, query, cut.group)
    right = _Vectors.of(_KEY, key, cut.group, shared=True)
    arriving = _Vectors.of(_CONTEXT, gradient, cut.group)
    values = _Vectors.of(_VALUE, value, cut.group, shared=True)
    numbers, keys, incoming = (builder.numbers(one) for one in (left, right, arriving))
    workspace = BackwardWorkspace(
        query=builder.take(cut.height * left.dim),
        scores=builder.take(cut.height * cut.across),
        capped=builder.take(cut.height * cut.across) if problem.recipe.softcap else _NONE,
        gradient=builder.take(cut.height * cut.across),
        context=builder.take(cut.height * width),
        product=builder.take(cut.height * left.dim),
        ones=np.ones(cut.height, _REAL),
    )
    padded = cut.padded(cut.keys)
    gradients = KernelGradients(
        query=_of_head(_GRAD_QUERY, cut, cut.queries, left.dim),
        key=_of_head(_GRAD_KEY, cut, padded * left.dim, stripes=True),
        value=_of_head(_GRAD_VALUE, cut, padded * width, stripes=True),
        bias=_NO_PAIRS,
        table=_NO_DOUBLES,
        sink=_NO_DOUBLES,
    )
    nothing, none = np.zeros(cut.queries, _REAL), np.empty((0, 0), _REAL)
    ways = product(
        list(builder.facing(0, left, right, keys)),
        list(builder.facing(1, arriving, values)),
    )
    for (scores, panels, half), (weights, value_panels, half_incoming) in ways:
        arguments = (
            _recipe(problem, numbers, half, panels),
            keys,
            value_panels,
            _of_head(_ROWS, cut, 2, cut.queries),
            KernelGradOutputs(incoming, half_incoming, nothing, nothing, none, none),
            gradients,
            workspace,
            *(cut.width, cut.height, *_stripe(cut)),
        )
        when = _When(scores.scores, weights.values)
        builder.calls.append(_Call("backward_blocks", arguments, when=when))
    return Program(builder.calls, cut, width, builder.least, builder.room)
