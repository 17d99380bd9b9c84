"""Predicted time of a call by SDPA and by the streaming engine, from a few measured numbers.

The model reads shapes, dtype and mask. It predicts the forward pass and both passes, so that a call
may have the same engine, and the same bits, with gradients, without, and when it is observed.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from glasshead.engines.fused import AddedMask
from glasshead.engines.streaming.engine import seen_pairs, without_lengths
from glasshead.recipe.biases import ALiBi, Bias
from glasshead.recipe.masks.base import Mask
from glasshead.recipe.problem import Problem

ENGINES, WAYS = ("fused", "streaming"), ("forward", "both")
# The most time that the engine of "auto" may take in any pass, as a multiple of SDPA's; and the
# most in one pass if the other takes at most `_HALF`.
LIMIT, _LIMIT_FOR_HALF, _HALF = 1.03, 1.1, 0.5
# Queries of a block of PyTorch's kernel, from so many queries on, and of the streaming engine.
_BLOCKS_OF_SDPA, _BLOCK = ((768, 256), (192, 64), (0, 32)), 64
# Fewer queries fill no tile of a product.
_ROWS = 16
# Keys at which `growth` is 0.
_KEYS = 1024
# What Python does around the kernels, in parts of `Profile.operator`: it makes a tensor, runs the
# streaming engine's operator, makes a table of biases by distance, clears keys that nothing sees,
# or evaluates a mask a few queries at a time.
_MAKE, _OPERATE, _TABLE, _CLEAR, _EVALUATE = 0.5, 1.0, 1.0, 1.0, 1.5
# Numbers that are read or written to make one of a bias or of a mask, and to evaluate a mask.
_OF_BIAS, _OF_MASK, _OF_RULE = 6, 2, 8


class Work(NamedTuple):
    """The work of an engine in a call.

    Attributes:
        pairs: Pairs of a query and a key, of all heads.
        width: The head_dims of queries and values together.
        keys: The keys of a head.
        whole: Whether each query sees all keys, but for a block at the end.
        numbers: The numbers of queries, keys and values.
        bytes: Additional bytes that are read and written, of masks and biases.
        steps: Additional time in Python, in multiples of a call of an operator.
        returned: Additional bytes that only a backward pass writes.
    """

    pairs: float
    width: int
    keys: int
    whole: bool
    numbers: int = 0
    bytes: float = 0.0
    steps: float = 0.0
    returned: float = 0.0


class Speed(NamedTuple):
    """Speed of an engine in one dtype.

    Attributes:
        call: Microseconds of a call without work.
        pair: Picoseconds of a pair, for its softmax.
        width: Picoseconds of a pair, for each number of the head_dims.
        growth: How much slower a pair is with every doubling of the keys, above 1024.
        whole: The time of a pair where queries see all keys, as a multiple of a causal call's.
        number: Picoseconds of each number of queries, keys and values.
    """

    call: float
    pair: float
    width: float
    growth: float
    whole: float
    number: float

    def seconds(self, work: Work) -> float:
        """Predict the time of some work, without its bytes and steps."""
        pairs = work.pairs * (self.whole if work.whole else 1.0)
        longer = max(1 + self.growth * math.log2(max(work.keys / _KEYS, 1.0)), 0.5)
        products = pairs * (self.pair + self.width * work.width) * longer
        return 1e-6 * self.call + 1e-12 * (self.number * work.numbers + products)


class Profile(NamedTuple):
    """Measured numbers of a processor.

    Attributes:
        name: What `plan()` calls it.
        speeds: By dtype, engine, and "forward" or "both" passes.
        bandwidth: Gigabytes a second that are copied.
        operator: Microseconds that a call takes longer where Python hands blocks to the kernels.

    A backward pass reads masks and biases again, and is as many steps of Python.
    """

    name: str
    speeds: Mapping[str, Mapping[str, Mapping[str, Speed]]]
    bandwidth: float
    operator: float

    def seconds(self, problem: Problem, engine: str, *, plain: bool = True) -> list[float]:
        """Predict the time of a call by an engine, forward and with gradients."""
        work = work_of(problem, engine, plain=plain)
        speeds = self.speeds.get(name_of_dtype(problem)) or self.speeds["float32"]
        added = 1e-9 * work.bytes / self.bandwidth + 1e-6 * self.operator * work.steps
        forward, both = (speeds[engine][way].seconds(work) for way in WAYS)
        returned = 1e-9 * work.returned / self.bandwidth
        return [forward + added, both + 2 * added + returned]

    def ratios(self, problem: Problem, *, plain: bool = True) -> tuple[float, float]:
        """Return streaming's time as a multiple of SDPA's, forward and with gradients."""
        streaming = self.seconds(problem, "streaming", plain=plain)
        fused = self.seconds(problem, "fused")
        return streaming[0] / fused[0], streaming[1] / fused[1]


def is_faster(ratios: tuple[float, float]) -> bool:
    """Return whether streaming is to come first: faster on the whole, and slower in no pass.

    One pass may take a tenth more if the other takes at most half of SDPA's time.
    """
    least, most = sorted(ratios)
    return most <= (_LIMIT_FOR_HALF if least <= _HALF else LIMIT) and least * most < 1


def name_of_dtype(problem: Problem) -> str:
    """Name a problem's dtype without its module."""
    return str(problem.query.dtype).removeprefix("torch.")


def work_of(problem: Problem, engine: str, *, plain: bool = True) -> Work:
    """Return what an engine computes of a call, whatever the lengths of its `padding` are.

    A remembered call reads them again, and must have the bits of a new one.

    Args:
        problem: The call.
        engine: "fused" or "streaming".
        plain: Whether machine code computes all heads at once, on the streaming engine.
    """
    return _fused(problem) if engine == "fused" else _streaming(problem, plain=plain)


def _fused(problem: Problem) -> Work:
    """Return SDPA's work: it skips what is above a diagonal, or beyond all rows, and no more."""
    *leading, queries, keys = problem.scores_shape
    heads, mask = math.prod(leading), problem.simplified_mask()
    lengths, rest = without_lengths(problem)
    width, size = problem.query.shape[-1] + problem.value.shape[-1], problem.dtype.itemsize
    pairs: float = heads * queries * keys
    work = Work(pairs, width, keys, whole=True, numbers=_numbers(problem))
    if problem.biases:
        # A tensor is made of biases, combined with the mask, and read by each head.
        made = sum(_size_of(bias, problem) for bias in problem.biases)
        cleared = work.numbers if mask is not None or any(map(_hides, problem.biases)) else 0
        return work._replace(bytes=size * (_OF_BIAS * made + pairs + cleared), steps=_MAKE)
    if mask is None or rest.mask is None:
        # Gradients of the keys and values that are cut off by lengths are put in whole tensors.
        cut = [x.numel() * x.itemsize for x in (problem.key, problem.value)] if lengths else []
        return work._replace(returned=sum(cut))
    if mask.is_top_left_causal(problem.tile()):
        block = next(block for least, block in _BLOCKS_OF_SDPA if queries >= least)
        short = min(queries, keys)
        seen = min(short * (short + block) / 2, short * short) + (queries - short) * keys
        return work._replace(pairs=heads * seen, whole=False)
    if mask.of_keys:
        return work._replace(pairs=seen_pairs(problem) or pairs)
    if mask.of_positions and queries == keys and queries * keys <= AddedMask.most_pairs:
        return work._replace(bytes=size * pairs)
    made = (_OF_MASK + (0 if mask.is_dense else _OF_RULE)) * _size_of(mask, problem)
    # Inputs are cleared where nothing sees them.
    return work._replace(bytes=size * (made + pairs + work.numbers), steps=_MAKE)


def _streaming(problem: Problem, *, plain: bool) -> Work:
    """Return the streaming engine's work: each block of queries, with the keys that it sees."""
    from glasshead.engines.streaming.kernels.processor import columns_of

    *leading, queries, keys = problem.scores_shape
    rows, mask = math.prod(leading) * queries, problem.simplified_mask()
    columns, size = columns_of(4), problem.dtype.itemsize
    # Sums over a head_dim are of any length, and rows of a context fill tiles.
    width = problem.query.shape[-1] + columns * math.ceil(problem.value.shape[-1] / columns)
    whole = without_lengths(problem)[1]
    shown = whole.simplified_mask()
    seen, numbers, steps, read = seen_pairs(whole), _numbers(problem), 0.0, 0.0
    pairs = rows * keys if seen is None else min(seen + rows * _BLOCK / 2, rows * keys)
    # No call in float64 is plain, so that the time of a call has this step.
    if not plain and problem.dtype != torch.float64:
        steps += _OPERATE
    if any(_by_distance(bias) and not (plain and type(bias) is ALiBi) for bias in problem.biases):
        steps += _TABLE
    for bias in problem.biases:
        if not _by_distance(bias):
            read += size * (_size_of(bias, problem) + pairs)
            steps += _MAKE
    rest = None if plain else _remaining_mask(whole)
    if rest is not None:
        evaluated = 0 if rest.is_dense else size * _OF_RULE
        read += pairs + evaluated * _size_of(rest, problem)
        steps += 0 if rest.is_dense else _EVALUATE
    elif not (plain or mask is None or mask.of_positions or problem.biases):
        # Keys that no query sees are cleared.
        read += 2 * size * numbers
        steps += _CLEAR
    return Work(
        pairs * max(1.0, _ROWS / max(queries, 1)),
        width,
        keys,
        whole=shown is None or shown.of_keys,
        numbers=numbers,
        bytes=read,
        steps=steps,
    )


def _remaining_mask(problem: Problem) -> Mask | None:
    """Return the mask that hides pairs between others that a query sees, or None."""
    mask = problem.simplified_mask()
    if mask is None or mask.of_positions:
        return None
    return problem.key_ranges(counted=True)[1]


def _hides(bias: Bias | Tensor) -> bool:
    return isinstance(bias, Tensor) or bias.hides


def _by_distance(bias: Bias | Tensor) -> bool:
    return isinstance(bias, Bias) and bias.by_distance


def _numbers(problem: Problem) -> int:
    return problem.query.numel() + problem.key.numel() + problem.value.numel()


def _size_of(part: Bias | Tensor | Mask, problem: Problem) -> int:
    """Estimate how many numbers a bias or a mask has; masks are the same in all heads."""
    if isinstance(part, Tensor):
        return part.numel()
    *batch, heads, queries, keys = problem.scores_shape
    return math.prod(batch) * queries * keys * (heads if isinstance(part, Bias) else 1)
