"""Programs: the kernel calls of a pass for every head, as machine code makes them by itself.

A `Schedule` divides the work of a problem into blocks, stripes and threads.
A program is made once for inputs of the same shapes and strides. It holds the arguments of each
kernel, with a `Place` for each array that a call gives by name or that lies in a thread's memory;
`share_heads` completes them, head by head, in each thread.
"""

import ctypes
import math
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from glasshead.engines.streaming import matrix_tiles
from glasshead.engines.streaming.kernels.arguments import (
    EITHER,
    FIRST_GIVEN,
    FIRST_PAIR,
    FIRST_ROW,
    LAST_ROW,
    NEXT_THREAD,
    NEXT_UNIT,
    SCRATCH,
    STATUS,
    STOP,
    ZERO,
    HeadCalls,
)
from glasshead.engines.streaming.kernels.processor import SQUARE, at_hand, columns_of
from glasshead.engines.streaming.kernels.streamed import ASKED, Results
from glasshead.engines.streaming.machine_code import Place, kernel
from glasshead.engines.streaming.operands import (
    GradInputs,
    LoweredProblem,
    RecipeTensors,
    real_of,
)
from glasshead.engines.streaming.threads import call_in_threads, share

_CPU = torch.device("cpu")
# The arrays that a call gives, by name. Those of a backward pass follow: gradients that arrive, and
# gradients of inputs.
_ARRAYS = (
    *("query", "key", "value", "lengths"),
    *(name for name in RecipeTensors._fields if name not in ("scale", "softcap", "rule")),
    *Results._fields,
    *(asked.name for asked in ASKED if asked.kind == "rows"),
    *("row_stats", "of_context", "of_logsumexp", "of_entropy", "of_by_key"),
    *(f"grad_{name}" for name in GradInputs._fields),
)
# The words of a call by the names of what they are.
_AT = {name: FIRST_GIVEN + place for place, name in enumerate(_ARRAYS)} | {
    "": ZERO,
    "scratch": SCRATCH,
    "first row": FIRST_ROW,
    "last row": LAST_ROW,
    "first pair": FIRST_PAIR,
}
_Words = ctypes.c_int64 * (FIRST_GIVEN + len(_ARRAYS))
# Programs by what they are of; beyond this many, all are made again.
_PROGRAMS: "dict[tuple[object, ...], Program]" = {}
_MOST = 256
# Whether each array that a call gives is compared with what the kernels read and write of it.
_CHECKED = bool(os.environ.get("GLASSHEAD_DEBUG"))


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


# The most scores of a block: a few megabytes, however long the text. The backward pass holds two
# blocks, and may take no more memory. On matrix tiles products take so little time that the scores
# have to stay in the L2 cache.
_FORWARD_NUMBERS, _BACKWARD_NUMBERS, _TILED_NUMBERS = 2**21, 2**20, 2**18
# With fewer operations one thread computes alone, as others would take longer to begin.
_FEW = 1_000_000
# Queries per block; fewer where the block's scores would not stay in cache.
_HEIGHT = 64


@dataclass(frozen=True)
class Schedule:
    """Division of the work into blocks of queries, stripes of blocks, and work items.

    Attributes:
        batch, heads, kv_heads, queries, keys: The sizes of the problem.
        width: The keys of a panel.
        height: The queries of a block.
        rows: Of which the height is a multiple.
        across: The most numbers from one row of scores of a block to the next.
        stripes: In how many parts the queries are divided.
        threads: How many take part.
        tiled: Whether products of bfloat16 are computed on matrix tiles.
        operations: Of the products, by which the work is divided.
    """

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    width: int
    height: int
    rows: int
    across: int
    stripes: int
    threads: int
    tiled: bool
    operations: int = field(compare=False)

    @classmethod
    def forward(cls, problem: LoweredProblem) -> "Schedule":
        """Divide the work of a forward pass."""
        tiled = takes_tiles(problem)
        numbers = _TILED_NUMBERS if tiled else _FORWARD_NUMBERS
        return cls.of(problem, numbers=numbers, shares=4, tiled=tiled)

    @classmethod
    def backward(cls, problem: LoweredProblem) -> "Schedule":
        """Divide the work of a backward pass."""
        tiled = takes_tiles(problem)
        return cls.of(problem, numbers=_BACKWARD_NUMBERS, shares=1, tiled=tiled)

    @classmethod
    def of(
        cls, problem: LoweredProblem, *, numbers: int, shares: int, tiled: bool = False
    ) -> "Schedule":
        """Divide the work of a problem.

        Args:
            problem: The tensors, with the bounds of each query.
            numbers: The most scores of a block.
            shares: The least number of work items per thread.
            tiled: Whether products of bfloat16 are computed on matrix tiles.
        """
        query, bounds = problem.query, problem.recipe.bounds.numpy()
        rows = SQUARE if tiled else at_hand().tile.rows
        sizes = *query.shape, *problem.key.shape[1:3], columns_of(real_of(query).itemsize), rows
        how = numbers, shares, tiled, torch.get_num_threads()
        divided = _divided if bounds.nbytes <= _REMEMBERED else _divided.__wrapped__
        return divided(bounds.tobytes(), len(bounds), sizes, how)

    @property
    def group(self) -> int:
        """Return how many heads share keys."""
        return self.heads // self.kv_heads

    def padded(self, length: int) -> int:
        """Round a length up to whole panels."""
        return -(-length // self.width) * self.width


# Layers of a model have the same bounds: how their work is divided is found once for the last few.
# The bounds of some thousand queries are compared in less time than they are counted.
_REMEMBERED = 2**17


@lru_cache(maxsize=16)
def _divided(
    given: bytes, count: int, sizes: tuple[int, ...], how: tuple[int, int, bool, int]
) -> Schedule:
    """Divide the work of a problem.

    Args:
        given: The bounds of each query, `[#batch, 2, queries]`, as their bytes.
        count: The size of the first of these axes.
        sizes: Batch, heads, queries and width, heads of keys and keys, the keys of a panel, and
            the queries of which a block has a multiple.
        how: The most scores of a block, the least number of work items per thread, whether
            products are computed on matrix tiles, and the threads.
    """
    batch, heads, queries, dim, kv_heads, keys, width, rows = sizes
    numbers, shares, tiled, threads = how
    bounds = np.ndarray((count, 2, queries), np.int64, given)
    seen = np.maximum(bounds[:, 1] - bounds[:, 0], 0)
    operations = 4 * int(seen.sum()) * (batch // count) * heads * dim
    threads = 1 if operations < _FEW else threads
    most = int(seen.max()) + _HEIGHT + 2 * width if seen.size else 1
    height = min(rows if tiled and shares > 1 else _HEIGHT, max(8, numbers // most), queries)
    height = -(-height // rows) * rows
    sets, stripes = batch * kv_heads, 1
    if threads > 1:
        blocks = -(-queries // height)
        stripes = max(1, min(blocks, math.ceil(shares * threads / sets)))
    return Schedule(
        batch=batch,
        heads=heads,
        kv_heads=kv_heads,
        queries=queries,
        keys=keys,
        width=width,
        height=height,
        rows=rows,
        # A block's keys may begin and end within panels, and its rows are a panel further apart.
        across=_across(bounds, keys, height) + 3 * width,
        stripes=stripes,
        threads=min(threads, sets * stripes),
        tiled=tiled,
        operations=operations,
    )


def takes_tiles(problem: LoweredProblem) -> bool:
    """Return whether the products of a problem are computed on matrix tiles.

    Of few queries most rows of a tile would be empty.
    """
    dtypes = {x.dtype for x in (problem.query, problem.key, problem.value) if x is not None}
    return (
        dtypes == {torch.bfloat16}
        and 2 * problem.query.shape[2] >= SQUARE
        and matrix_tiles.refusal() is None
    )


def _across(bounds: np.ndarray, keys: int, height: int) -> int:
    """Return the most keys that a block of queries spans."""
    starts, stops = bounds.swapaxes(0, 1)
    seeing, firsts = starts < stops, range(0, bounds.shape[-1], height)
    low = np.minimum.reduceat(np.where(seeing, starts, keys), firsts, axis=-1)
    high = np.maximum.reduceat(np.where(seeing, stops, 0), firsts, axis=-1)
    return max(0, int((high - low).max()))


# Those of a backward pass in bfloat16, the most, are half as many.
MOST_WORDS = 1024


class When(NamedTuple):
    """When a call is made: as the pairs of q·kᵀ, or of dO·vᵀ, multiply exactly, 1, or not, 0."""

    scores: int = EITHER
    values: int = EITHER


ALWAYS = When()


class Call(NamedTuple):
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
    when: When = ALWAYS


class Program:
    """Calls of kernels for every head, with arrays that a call of its own gives.

    Args:
        calls: In their order.
        cut: How the work is divided.
        real: The dtype of the kernels.
        width: Of the values.
        least, room: As of a `HeadCalls`.
        rows: The bytes of the row statistics, which a call need not give.

    Attributes:
        shape, dtype: Of the context, which matrix tiles round to their own.
        stripes: How many results of their own there are of sums over the queries.
        padded: Rounds a length up to whole panels.
        calls: The calls.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        cut: Schedule,
        real: np.dtype,
        width: int,
        least: list[int],
        room: int,
        rows: int = 0,
    ) -> None:
        self.shape = cut.batch, cut.heads, cut.queries, width
        exact = torch.float64 if real == np.float64 else torch.float32
        self.dtype = torch.bfloat16 if cut.tiled else exact
        self.stripes, self.padded = cut.stripes, cut.padded
        # They hold the arrays whose addresses are among the words.
        self.calls = calls
        self._rows, self._room, self._threads = rows, room, cut.threads
        self._queries, self._step = cut.queries, cut.stripes * cut.height
        self._units = cut.batch * cut.kv_heads * cut.stripes
        self._lengths = torch.full((cut.batch,), cut.keys, device=_CPU)
        self._needed: dict[str, int] = {}
        words: list[Any] = []
        table = []
        for call in self.calls:
            code, first = kernel(call.entry, real), len(words)
            words += code.pack.words(call.arguments)
            table.append((code.address, first, len(words), call.once, *call.when))
            for place, size in code.pack.places(call.arguments):
                moves = zip(
                    place.moves, (cut.batch, cut.kv_heads, cut.group, cut.stripes), strict=True
                )
                # An array of no numbers is read nowhere, whatever its steps are.
                last = place.offset + sum(step * (count - 1) for step, count in moves)
                needed = last + size if size else 0
                self._needed[place.base] = max(needed, self._needed.get(place.base, 0))
        if len(words) > MOST_WORDS:
            raise ValueError(f"a program must have at most {MOST_WORDS} words, got {len(words)}.")
        self._task = HeadCalls(
            words=np.array([_bits(word) for word in words], np.int64),
            moves=np.array([_moves(word) for word in words], np.int64),
            calls=np.array(table, np.int64),
            least=np.array(least, np.int64),
            batch=cut.batch,
            kv_heads=cut.kv_heads,
            group=cut.group,
            stripes=cut.stripes,
            threads=cut.threads,
            room=room,
        )
        self._share = kernel("share_heads", real)
        # The last word is the address of what a call gives.
        self._packed = self._share.pack((self._task, 0))[:-8]

    def run(
        self,
        given: Mapping[str, Tensor | None],
        *,
        first_row: int = 0,
        last_row: int | None = None,
        first_pair: int = 0,
        parts: int = 1,
    ) -> None:
        """Call the kernels for some queries.

        Args:
            given: The arrays by name. The row statistics may be left out.
            first_row, last_row: The queries, from the first one of a stripe on; all, if not given.
            first_pair: The place of pair (0, 0) in `visible`, which may be of these queries alone.
            parts: In how many parts the work of a unit is divided, between which Python handles
                Ctrl-C; 1: it waits for the end.
        """
        if _CHECKED:
            self._check(given)
        size = self._threads * self._room
        memory = _memory(size if "rows" in given else size + self._rows)
        words = _Words()
        words[SCRATCH] = memory.data_ptr()
        words[FIRST_ROW], words[FIRST_PAIR] = first_row, first_pair
        words[LAST_ROW] = self._queries if last_row is None else last_row
        words[STOP] = self._units
        words[_LENGTHS] = self._lengths.data_ptr()
        words[_ROWS] = words[SCRATCH] + size
        for name, array in given.items():
            if array is not None:
                words[_AT[name]] = array.data_ptr()
        if parts == 1:
            packed = self._task_with(words)
            if self._threads == 1:
                self._share.run(packed)
            else:
                call_in_threads(self._share, packed, self._threads)
            self._check_status(words)
        else:
            share(range(self._units), lambda units: self._take(units, words, parts), self._threads)
        if memory.nbytes <= _SMALL:
            _SPARE[:] = (memory,)

    def _take(self, units: Iterator[int], words: Any, parts: int) -> None:
        """Call the kernels for units of work one by one, in this thread."""
        own, memory = (
            _Words.from_buffer_copy(words),
            torch.empty(self._room, dtype=torch.uint8, device=_CPU),
        )
        own[SCRATCH] = memory.data_ptr()
        first, last = words[FIRST_ROW], words[LAST_ROW]
        step = -(-(last - first) // (parts * self._step)) * self._step
        for unit in units:
            for row in range(first, last, step):
                own[FIRST_ROW], own[LAST_ROW] = row, min(row + step, last)
                own[NEXT_THREAD], own[NEXT_UNIT], own[STOP] = 0, unit, unit + 1
                self._share.run(self._task_with(own))
                self._check_status(own)

    def _task_with(self, words: Any) -> bytes:
        """Return the arguments of `share_heads`."""
        return self._packed + _WORD.pack(ctypes.addressof(words))

    def _check_status(self, words: Any) -> None:
        if words[STATUS]:
            raise RuntimeError(
                f"a kernel of the streaming engine ended with status {words[STATUS]}. Use "
                "Attention(engine='fused')."
            )

    def _check(self, given: Mapping[str, Tensor | None]) -> None:
        """Raise a ValueError if the kernels would read or write beyond an array."""
        for name, needed in self._needed.items():
            if name not in _ARRAYS or (name in ("lengths", "rows") and name not in given):
                continue
            array = given.get(name)
            held = 0
            if array is not None and array.is_cpu:
                held = array.untyped_storage().nbytes() - array.storage_offset() * array.itemsize
            if held < needed:
                raise ValueError(
                    f"{name} must have {needed} bytes for the kernels, got {held}: this is a bug."
                )


_LENGTHS, _ROWS = _AT["lengths"], _AT["rows"]
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


def _bits(word: Any) -> int:
    """Return a word as an integer: the offset of a place, the bits of a float."""
    if type(word) is Place:
        return word.offset
    return struct.unpack("q", struct.pack("d", word))[0] if isinstance(word, float) else int(word)


def _moves(word: Any) -> tuple[int, ...]:
    """Return how a word depends on the call, the head and the thread."""
    if type(word) is Place:
        return _AT[word.base], *word.moves, int(word.loaded)
    return ZERO, 0, 0, 0, 0, 0
