"""Predicted time of a call by SDPA and by the streaming engine, from a few measured numbers.

The model reads shapes, dtype and mask. It predicts the forward pass and both passes, so that a call
may have the same engine, and the same bits, with gradients, without, and when it is observed.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from glasshead.engines.streaming.engine import seen_pairs
from glasshead.recipe.problem import Problem

ENGINES, WAYS = ("fused", "streaming"), ("forward", "both")
# The most that the engine of "auto" may take in any pass, as a multiple of SDPA's time.
LIMIT = 1.03
# Queries of a block of PyTorch's kernel, from so many queries on, and of the streaming engine.
_BLOCKS_OF_SDPA, _BLOCK = ((768, 256), (192, 64), (0, 32)), 64
# Fewer queries fill no tile of a product.
_ROWS = 16
# Keys at which `growth` is 0.
_KEYS = 1024


class Work(NamedTuple):
    """The work of an engine in a call.

    Attributes:
        pairs: Pairs of a query and a key, of all heads.
        width: The head_dims of queries and values together.
        keys: The keys of a head.
        whole: Whether each query sees all keys, but for a block at the end.
        bytes: What is read and written besides, of masks and biases.
    """

    pairs: float
    width: int
    keys: int
    whole: bool
    bytes: float = 0.0


class Speed(NamedTuple):
    """Speed of an engine in one dtype.

    Attributes:
        call: Microseconds of a call without work.
        pair: Picoseconds of a pair, for its softmax.
        width: Picoseconds of a pair, for each number of the head_dims.
        growth: How much slower a pair is with every doubling of the keys, above 1024.
        whole: The time of a pair where queries see all keys, as a multiple of a causal call's.
    """

    call: float
    pair: float
    width: float
    growth: float
    whole: float

    def seconds(self, work: Work) -> float:
        """Predict the time of some work."""
        pairs = work.pairs * (self.whole if work.whole else 1.0)
        longer = max(1 + self.growth * math.log2(max(work.keys / _KEYS, 1.0)), 0.5)
        return 1e-6 * self.call + 1e-12 * pairs * (self.pair + self.width * work.width) * longer


class Profile(NamedTuple):
    """Measured numbers of a processor.

    Attributes:
        name: What `plan()` calls it.
        speeds: By dtype, engine, and "forward" or "both" passes.
        bandwidth: Gigabytes a second that are copied.
        operator: Microseconds that a call takes longer where Python hands blocks to the kernels.
    """

    name: str
    speeds: Mapping[str, Mapping[str, Mapping[str, Speed]]]
    bandwidth: float
    operator: float

    def seconds(self, problem: Problem, engine: str, way: str, *, plain: bool = True) -> float:
        """Predict the time of a call by an engine."""
        work = work_of(problem, engine)
        speeds = self.speeds.get(name_of_dtype(problem)) or self.speeds["float32"]
        speed = speeds[engine][way]
        around = 0.0 if plain or engine == "fused" else 1e-6 * self.operator
        return speed.seconds(work) + around + 1e-9 * work.bytes / self.bandwidth

    def ratios(self, problem: Problem, *, plain: bool = True) -> tuple[float, float]:
        """Return streaming's time as a multiple of SDPA's, forward and with gradients."""
        forward, both = (
            self.seconds(problem, "streaming", way, plain=plain)
            / self.seconds(problem, "fused", way)
            for way in WAYS
        )
        return forward, both


def is_faster(ratios: tuple[float, float]) -> bool:
    """Return whether streaming is to come first: faster on the whole, and slower in no pass."""
    return max(ratios) <= LIMIT and math.prod(ratios) < 1


def name_of_dtype(problem: Problem) -> str:
    """Name a problem's dtype without its module."""
    return str(problem.query.dtype).removeprefix("torch.")


def work_of(problem: Problem, engine: str) -> Work:
    """Return what an engine computes of a call."""
    return _fused(problem) if engine == "fused" else _streaming(problem)


def _fused(problem: Problem) -> Work:
    """Return SDPA's work: it skips what is above a diagonal, or beyond all rows, and no more."""
    *leading, queries, keys = problem.scores_shape
    heads, mask = math.prod(leading), problem.simplified_mask()
    width, size = problem.query.shape[-1] + problem.value.shape[-1], problem.query.element_size()
    pairs: float = heads * queries * keys
    if problem.biases:
        # A tensor is made of positions, combined with the mask, and read by each head.
        return Work(pairs, width, keys, whole=True, bytes=4 * size * pairs)
    if mask is None:
        return Work(pairs, width, keys, whole=True)
    if mask.is_top_left_causal(problem.tile()):
        block = next(block for least, block in _BLOCKS_OF_SDPA if queries >= least)
        short = min(queries, keys)
        seen = min(short * (short + block) / 2, short * short) + (queries - short) * keys
        return Work(heads * seen, width, keys, whole=False)
    if mask.of_keys:
        return Work(seen_pairs(problem) or pairs, width, keys, whole=True)
    return Work(pairs, width, keys, whole=True, bytes=size * pairs)


def _streaming(problem: Problem) -> Work:
    """Return the streaming engine's work: each block of queries, with the keys that it sees."""
    from glasshead.engines.streaming.kernels.processor import columns_of

    *leading, queries, keys = problem.scores_shape
    rows, mask = math.prod(leading) * queries, problem.simplified_mask()
    columns = columns_of(4)
    # Sums over a head_dim are of any length, and rows of a context fill tiles.
    width = problem.query.shape[-1] + columns * math.ceil(problem.value.shape[-1] / columns)
    seen = seen_pairs(problem)
    pairs = rows * keys if seen is None else min(seen + rows * _BLOCK / 2, rows * keys)
    pairs *= max(1.0, _ROWS / max(queries, 1))
    return Work(pairs, width, keys, whole=mask is None or mask.of_keys)
