"""Programs: the kernel calls of a pass for every head, as machine code makes them by itself.

A program is made once for inputs of the same shapes and strides. It holds the arguments of each
kernel, with addresses relative to the tensors of a call and to a thread's memory (`Place`);
`share_heads` completes them, head by head, in each thread.
"""

import ctypes
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from glasshead.engines.streaming.kernels.arguments import (
    EITHER,
    FIRST_GIVEN,
    LENGTHS,
    SCRATCH,
    STATUS,
    ZERO,
    BackwardWorkspace,
    HalfMatrix,
    HeadCalls,
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
from glasshead.engines.streaming.machine_code import EMPTY, Place, kernel
from glasshead.engines.streaming.operands import LoweredProblem
from glasshead.engines.streaming.threads import Schedule, call_in_threads

_REAL, _CPU = np.dtype(np.float32), torch.device("cpu")
# The addresses that a call gives, in order: of a forward pass also results, what is added to scores
# or hides them, operands of sums, and a number, the position of query 0.
_FORWARD = (
    *("query", "key", "value", "bounds", *Results._fields, "visible", "bias", "table"),
    *(asked.name for asked in ASKED if asked.kind == "rows"),
    "offset",
)
# Of a backward pass, where the gradient of the context has the place of the context.
_BACKWARD = (*_FORWARD[:6], "grad_query", "grad_key", "grad_value")
_AT = {name: FIRST_GIVEN + n for names in (_FORWARD, _BACKWARD) for n, name in enumerate(names)}
(_QUERY, _KEY, _VALUE, _BOUNDS, _CONTEXT, _ROWS, _VISIBLE, _BIAS, _TABLE, _OFFSET) = (
    _AT[name]
    for name in (
        *("query", "key", "value", "bounds", "context", "rows"),
        *("visible", "bias", "table", "offset"),
    )
)
(_GRAD_QUERY, _GRAD_KEY, _GRAD_VALUE) = (_AT[name] for name in _BACKWARD[6:])
# Programs by what they are of; beyond this many, all are made anew.
_PROGRAMS: "dict[tuple[object, ...], Program]" = {}
_MOST = 256


def kept(make: "Callable[[], Program]", *parts: object) -> "Program":
    """Return the program of what the parts have in common, made by the first call of it."""
    key = key_of(*parts)
    program = _PROGRAMS.get(key)
    if program is None:
        if len(_PROGRAMS) >= _MOST:
            _PROGRAMS.clear()
        _PROGRAMS[key] = program = make()
    return program


def key_of(*parts: object) -> tuple[object, ...]:
    """Return what a program depends on: every field of the parts, of tensors their layout alone."""
    return torch.get_num_threads(), *map(_layout, parts)


def _layout(part: Any) -> Any:
    if isinstance(part, Tensor):
        return part.dtype, part.shape, part.stride()
    return tuple(map(_layout, part)) if isinstance(part, tuple) else part


class KeySpans:
    """Keys that batch rows see, in arrays whose addresses a call gives.

    Args:
        of_lengths: The keys that there are, `[batch]`: none beyond are read.
        of_bounds: The first key that each query sees, and the one after the last,
            `[#batch, 2, queries]`.

    Attributes:
        lengths, bounds: Their addresses.
        tensor: The bounds.
    """

    def __init__(self, of_lengths: np.ndarray, of_bounds: np.ndarray) -> None:
        self._lengths, self.tensor = of_lengths, torch.from_numpy(of_bounds)
        self.lengths, self.bounds = of_lengths.ctypes.data, self.tensor.data_ptr()


# Those of a backward pass in bfloat16, the most, are half as many.
_MOST_WORDS = 1024


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
        least, room: As of a `HeadCalls`.

    Attributes:
        shape: Of the context.
        stripes: How many results of their own there are of sums over the queries.
        padded: The keys in whole panels.
        bounds: What all its calls see, where they see the same.
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
        if len(words) > _MOST_WORDS:
            raise ValueError(f"a program takes at most {_MOST_WORDS} words, and got {len(words)}.")
        still = (ZERO, 0, 0, 0, 0)
        moves = [(word.base, *word.moves) if type(word) is Place else still for word in words]
        self._task = HeadCalls(
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
        self.bounds = KeySpans(np.zeros(cut.batch, np.int64), np.zeros((0, 2, 0), np.int64))
        self._share = kernel("share_heads", _REAL)
        # The last word is the address of what a call gives.
        self._packed = self._share.pack((self._task, 0))[:-8]

    def with_bounds(self, bounds: "KeySpans") -> "Program":
        """Keep what all its calls see."""
        self.bounds = bounds
        return self

    def run(self, lengths: int, *given: int) -> None:
        """Call the kernels with addresses: of the batch rows' lengths, and by their bases.

        Of a forward pass, the last ones may be left out, where nothing but the context is wanted.
        """
        size = self._size if len(given) > _ROWS - FIRST_GIVEN else self._size + self._rows
        memory = _memory(size)
        address = memory.data_ptr()
        if size > self._size:
            given = (*given, address + self._size)
        words = _Given(0, 0, 0, 0, address, lengths, *given)
        packed = self._packed + _WORD.pack(ctypes.addressof(words))
        call_in_threads(self._share, packed, self._threads)
        if size <= _SMALL:
            _SPARE[:] = (memory,)
        if words[STATUS]:
            raise RuntimeError(
                f"a kernel of the streaming engine ended with status {words[STATUS]}: take "
                "Attention(engine='fused')."
            )


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


_Given = ctypes.c_int64 * (_OFFSET + 1)


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
        """How many of them there are: for keys, as many as their batch row has."""
        return Place(LENGTHS, ()) if self.shared else self.length

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
        self.room = 8 * _MOST_WORDS

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
        widen = HalfMatrix(x.place, x.row, x.dim), x.number, x.dim, is_bfloat16, made
        self.calls.append(_Call("widen", widen, x.shared and when is _ALWAYS, when))
        return Matrix(made, x.dim, x.dim)

    def panels(self, rows: Matrix, x: _Vectors, when: _When = _ALWAYS) -> Any:
        """Return the vectors of a key head in panels."""
        width = columns_of(_REAL.itemsize)
        made = self.take(-(-x.length // width) * width * rows.width)
        self.calls.append(_Call("pack", (rows, x.number, width, made), when is _ALWAYS, when))
        return made

    def pairs(self, x: _Vectors, least: int) -> Any:
        """Return vectors as rows of pairs, whose smallest size has one of the four places."""
        tile, deep = at_hand().tile.rows, -(-x.dim // 2)
        rows, size = self.take(-(-x.length // tile) * tile * deep), self.take(1, itemsize=8)
        self.least[least] = size.offset
        half = HalfMatrix(x.place, x.row, x.dim)
        self.calls.append(_Call("pair_up", (half, x.number, rows, size), x.shared))
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


def _of_head(
    base: int, cut: Schedule, *shape: int, itemsize: int = 4, stripes: bool = False
) -> Any:
    """Return the place of a head's numbers in a contiguous result.

    Args:
        base: The index of its address.
        cut: How the work is divided.
        shape: Of one head.
        itemsize: The bytes of a number.
        stripes: Whether each stripe has numbers of its own.
    """
    size = math.prod(shape) * itemsize
    stripe = cut.batch * cut.heads * size if stripes else 0
    return Place(base, shape, 0, (cut.heads * size, cut.group * size, size, stripe))


def _of_key_head(base: int, cut: Schedule, size: int, both: int) -> Any:
    """Return the place of a key head's sums.

    Args:
        base: The index of their address.
        cut: How the work is divided.
        size: Of them.
        both: Of those of keys and values together, which each stripe has by itself.
    """
    step, stripe = size * _REAL.itemsize, cut.batch * cut.kv_heads * both * _REAL.itemsize
    return Place(base, (size,), 0, (cut.kv_heads * step, step, 0, stripe))


def _operand(base: int, x: Tensor | None, cut: Schedule) -> Any:
    """Return the place of a head's numbers of an operand `[#batch, #heads, …]`."""
    if x is None:
        return np.empty((0, 0), _REAL)
    batch, head = (
        0 if x.shape[axis] == 1 else x.stride(axis) * x.element_size() for axis in (0, 1)
    )
    return Place(base, tuple(x.shape[2:]), 0, (batch, head * cut.group, head, 0))


def _recipe(
    problem: LoweredProblem, cut: Schedule, query: Matrix, half: Any, panels: Panels
) -> KernelRecipe:
    """Return the kernel arguments that define the scores of a head."""
    recipe = problem.recipe
    return KernelRecipe(
        query=query,
        half_query=half,
        panels=panels,
        keys=Place(LENGTHS, ()),  # type: ignore[arg-type]
        bounds=_bounds(recipe.bounds),
        bias=KernelGrid(*_pairs(_BIAS, recipe.bias, cut, _NONE)),
        visible=VisibleGrid(*_pairs(_VISIBLE, recipe.visible, cut, np.empty(0, np.bool_))),
        table=_NONE if recipe.table is None else _operand(_TABLE, recipe.table, cut),
        scale=float(recipe.scale),
        softcap=float(recipe.softcap),
        sink=-math.inf,
        offset=Place(_OFFSET, ()),  # type: ignore[arg-type]
    )


def _pairs(base: int, x: Tensor | None, cut: Schedule, none: Any) -> tuple[Any, int, int]:
    """Return the place of a head's pairs of `[#batch, #heads, #queries, keys]`, as a grid's."""
    if x is None:
        return none, 0, 0
    queries, keys = x.shape[2:]
    row = x.stride(2) if queries > 1 else 0
    place = _operand(base, x, cut)._replace(shape=((queries - 1) * row + keys,))
    return place, 0, row


def _bounds(bounds: Tensor) -> Any:
    """Return the place of a batch row's bounds."""
    size = 0 if len(bounds) == 1 else bounds[0].numel() * bounds.element_size()
    return Place(_BOUNDS, tuple(bounds.shape[1:]), 0, (size, 0, 0, 0))


_NONE, _NO_DOUBLES = np.empty(0, _REAL), np.empty(0, np.float64)
_NO_PAIRS = KernelGrid(_NONE, 0, 0)


def forward_program(problem: LoweredProblem, cut: Schedule, spec: OutputSpec) -> Program:
    """Return the program of a forward pass."""
    query, key, value, _ = problem
    width = 0 if value is None else value.shape[3]
    builder = _Builder()
    left = _Vectors.of(_QUERY, query, cut.group)
    right = _Vectors.of(_KEY, key, cut.group, shared=True)
    values = Matrix(_NONE, 0, 0)
    if value is not None:
        values = builder.numbers(_Vectors.of(_VALUE, value, cut.group, shared=True))
    sizes = sizes_of(spec, cut.queries, cut.keys, width)
    workspace = Workspace(
        query=builder.take(cut.height * left.dim),
        scores=builder.take(cut.height * cut.across),
        product=builder.take(cut.height * width),
        top_groups=builder.take(max(64, min(4 * spec.top, cut.keys))),
        order=builder.take(spec.top),
        columns=builder.take(cut.across if spec.maps else 0, itemsize=8),
        factors=builder.take(cut.height),
        spans=builder.take(sizes["per_key"], 2, itemsize=8),
    )
    results = Results(*(_result(array, cut, array.shape(sizes)) for array in ARRAYS))
    asked = OutputSpec(*(_asked(one, value, cut) for one, value in zip(ASKED, spec, strict=True)))
    for when, panels, half in builder.facing(0, left, right):
        numbers = Matrix(EMPTY, 0, left.dim)
        if half is EMPTY:
            numbers = builder.numbers(left, when)
        recipe = _recipe(problem, cut, numbers, half, panels)
        blocks = cut.width, cut.height, *_stripe(cut)
        arguments = recipe, values, asked, results, workspace, *blocks
        builder.calls.append(_Call("forward_blocks", arguments, when=when))
    return Program(builder.calls, cut, width, builder.least, builder.room)


def _result(array: Array, cut: Schedule, shape: tuple[int, ...]) -> Any:
    """Return the place of a head's numbers of a result."""
    itemsize = _REAL.itemsize if array.dtype == "real" else 8
    return _of_head(_AT[array.name], cut, *shape, itemsize=itemsize, stripes=bool(array.merged))


def _asked(asked: Asked, value: Any, cut: Schedule) -> Any:
    """Return a head's field of the request."""
    if asked.kind == "rows":
        return _operand(_AT[asked.name], value, cut)
    if asked.kind == "each":
        return np.array(value, np.int64).reshape(-1, len(asked.of))
    return value


def backward_program(problem: LoweredProblem, gradient: Tensor, cut: Schedule) -> Program:
    """Return the program of a backward pass, for the gradient of the context."""
    query, key, value = problem.query, problem.key, cast("Tensor", problem.value)
    width = value.shape[3]
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
    both = padded * (left.dim + width)
    gradients = KernelGradients(
        query=_of_head(_GRAD_QUERY, cut, cut.queries, left.dim),
        key=_of_key_head(_GRAD_KEY, cut, padded * left.dim, both),
        value=_of_key_head(_GRAD_VALUE, cut, padded * width, both),
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
            _recipe(problem, cut, numbers, half, panels),
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
