"""The loop over the heads of a call, which threads share without Python in between."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from glasshead.engines.streaming.kernels.arguments import (
    BY_BATCH,
    BY_HEAD,
    BY_KEY_HEAD,
    BY_STRIPE,
    EITHER,
    FROM,
    LEAST_NORMAL,
    LEAST_PRODUCT,
    LOADED,
    NEXT_THREAD,
    NEXT_UNIT,
    SCRATCH,
    STATUS,
    STOP,
)
from glasshead.engines.streaming.kernels.options import kernel
from glasshead.engines.streaming.kernels.packing import single_of

_WORD = ir.IntType(64)


@intrinsic
def _words_at(typing_context: Any, address: Any) -> Any:  # noqa: ARG001 - Numba's protocol
    """View memory as words of 8 bytes."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.inttoptr(arguments[0], _WORD.as_pointer())

    return types.CPointer(types.int64)(types.int64), code


@intrinsic
def next_of(typing_context: Any, address: Any) -> Any:  # noqa: ARG001 - Numba's protocol
    """Return the number in memory, and add 1 to it, as one step for all threads."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        place = builder.inttoptr(arguments[0], _WORD.as_pointer())
        return builder.atomic_rmw("add", place, _WORD(1), "seq_cst")

    return types.int64(types.int64), code


@intrinsic
def _call(typing_context: Any, function: Any, words: Any) -> Any:  # noqa: ARG001 - Numba's protocol
    """Call a kernel by its address with its packed arguments, and return its status."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        function, words = arguments
        unused = cgutils.alloca_once(builder, ir.ArrayType(_WORD, 4))
        pointer = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.IntType(32), [pointer, pointer, _WORD])
        unused = builder.bitcast(unused, pointer)
        called = builder.call(
            builder.inttoptr(function, kind.as_pointer()), [unused, unused, words]
        )
        return builder.sext(called, _WORD)

    return types.int64(types.int64, types.int64), code


@kernel
def _multiply_exactly(left, right):
    """Return whether pairs whose smallest sizes these are multiply as float32 does, in every bit.

    The processor's product of pairs rounds alike, but takes what is subnormal for 0, inputs and
    sums. Numbers of 8 bits, of size x and y at least, have products that are multiples of
    2⁻¹⁶ x y, and so are their sums: 0, or no less.

    Args:
        left, right: Addresses of the upper halves of two numbers of float32.
    """
    one = single_of(np.int16(_words_at(left)[0] & 0x7FFF), True)
    other = single_of(np.int16(_words_at(right)[0] & 0x7FFF), True)
    normal = one >= np.float32(LEAST_NORMAL) and other >= np.float32(LEAST_NORMAL)
    return normal and np.float64(one) * np.float64(other) >= LEAST_PRODUCT


@kernel
def share_heads(task, given):
    """Call kernels for each head, in as many threads as call this: each takes the next unit.

    Args:
        task: What is called for a head, and the sizes of the problem.
        given: The address of the words that a call of its own has: counters and addresses.
    """
    bases = _words_at(given)
    thread = next_of(given + 8 * NEXT_THREAD)
    if thread >= task.threads:
        return
    scratch = bases[SCRATCH] + thread * task.room
    block = _words_at(scratch)
    last = -1
    while True:
        unit = next_of(given + 8 * NEXT_UNIT)
        if unit >= bases[STOP]:
            return
        place, stripe = unit // task.stripes, unit % task.stripes
        batch, kv_head = place // task.kv_heads, place % task.kv_heads
        for head in range(task.group):
            for c in range(len(task.calls)):
                function, first, stop, once, scores, values = task.calls[c]
                if once and (head > 0 or place == last):
                    continue
                # Which of several calls depends on the numbers: `EITHER`, or as they are exact.
                if scores != EITHER and scores != _multiply_exactly(
                    scratch + task.least[0], scratch + task.least[1]
                ):
                    continue
                if values != EITHER and values != _multiply_exactly(
                    scratch + task.least[2], scratch + task.least[3]
                ):
                    continue
                for w in range(first, stop):
                    moves = task.moves[w]
                    base = scratch if moves[FROM] == SCRATCH else bases[moves[FROM]]
                    word = (
                        task.words[w]
                        + base
                        + batch * moves[BY_BATCH]
                        + kv_head * moves[BY_KEY_HEAD]
                        + head * moves[BY_HEAD]
                        + stripe * moves[BY_STRIPE]
                    )
                    block[w] = _words_at(word)[0] if moves[LOADED] else word
                status = _call(function, scratch + 8 * first)
                if status != 0:
                    bases[STATUS] = status
        last = place
