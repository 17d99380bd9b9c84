"""Measuring the processor at hand: the few numbers by which `engine="auto"` predicts times."""

import math
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glasshead.attention.attention import Attention
from glasshead.attention.cost import ENGINES, WAYS, Speed, work_of
from glasshead.attention.profiles import DTYPES, machine, parsed, write
from glasshead.recipe.masks import causal, dense
from glasshead.recipe.problem import Problem

SECONDS = 18.0
# Seconds of a sample, so that a clock can tell it.
_SAMPLE = 1e-3
_COPIED = 2**25

Progress = Callable[[float], object]


class Shape(NamedTuple):
    """A call that is measured.

    Attributes:
        name: What it tells.
        heads, tokens, dim: Its sizes.
        causal: Whether it has a causal mask.
    """

    name: str
    heads: int
    tokens: int
    dim: int
    causal: bool = True

    @property
    def about(self) -> str:
        """Describe the call in a few words."""
        mask = "causal" if self.causal else "full"
        return f"{mask} {self.tokens} × {self.dim}"


# Each tells one number of `Speed`, in order: the call, and what it lacks of the next.
SHAPES = (
    Shape("call", 4, 16, 64),
    Shape("narrow", 4, 1024, 32),
    Shape("wide", 4, 1024, 128),
    Shape("long", 1, 4096, 64),
    Shape("whole", 4, 1024, 64, causal=False),
)


class Tuned(NamedTuple):
    """The result of `tune`.

    Attributes:
        file: The file that holds the profile.
        profile: The profile, as JSON has it.
        ratios: Streaming's time as a multiple of SDPA's, by dtype, pass and shape.
    """

    file: str
    profile: dict[str, Any]
    ratios: dict[str, dict[str, dict[str, float]]]


def tune(
    seconds: float = SECONDS,
    progress: Progress | None = None,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> Tuned:
    """Measure this processor, and keep a profile of it for `engine="auto"`.

    The profile holds for this processor, number of threads, and versions of PyTorch and glasshead.
    It takes effect in the next process, as a process keeps its engines.

    Args:
        seconds: About how long to measure, 1 to 600. Kernels that are not installed are compiled
            first.
        progress: Called with the share that is done, 0 to 1.
        clock: The clock to measure by; `time.process_time` where other programs run.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"seconds must be a number, got {type(seconds).__name__}.")
    if not 1 <= seconds <= 600:
        raise ValueError(f"seconds must be between 1 and 600, got {seconds}.")
    given, times = measured(seconds, progress, clock)
    parsed(given)
    ratios = {
        dtype: {
            way: {
                shape.name: times[dtype, "streaming", way, shape.name]
                / times[dtype, "fused", way, shape.name]
                for shape in SHAPES
            }
            for way in WAYS
        }
        for dtype in DTYPES
    }
    return Tuned(str(write(given)), given, ratios)


Times = dict[tuple[str, str, str, str], float]


def measured(
    seconds: float, progress: Progress | None, clock: Callable[[], float]
) -> tuple[dict[str, Any], Times]:
    """Measure rounds over all calls until the time is up, and fit a profile to their medians."""
    cells = {
        (dtype, engine, way, shape.name): _call(shape, dtype, engine, way)
        for dtype in DTYPES
        for way in WAYS
        for shape in SHAPES
        for engine in ENGINES
    }
    start, rounds = time.perf_counter(), 0
    many = {}
    for key, call in cells.items():
        call()
        many[key] = max(1, min(100, int(_SAMPLE / max(_timed(call, 1, clock), 1e-9))))
    samples: dict[tuple[str, str, str, str], list[float]] = {key: [] for key in cells}
    copies, operators = [], []
    begun = time.perf_counter()
    while True:
        for key, call in cells.items():
            samples[key].append(_timed(call, many[key], clock))
        copies.append(_copied(clock))
        operators.append(_operator(clock))
        rounds += 1
        taken = time.perf_counter() - start
        if progress is not None:
            progress(min(taken / seconds, 1.0))
        if taken + (time.perf_counter() - begun) / rounds > seconds:
            break
    times = {key: statistics.median(each) for key, each in samples.items()}
    speeds = {
        dtype: {
            engine: {way: _fitted(times, dtype, engine, way) for way in WAYS} for engine in ENGINES
        }
        for dtype in DTYPES
    }
    own = times["float32", "streaming", "forward", "call"]
    given = {
        "name": "measured here",
        "machine": machine()._asdict(),
        "how": "glasshead tune",
        "bandwidth": _rounded(1e-9 * 2 * 4 * _COPIED / statistics.median(copies)),
        "operator": _rounded(max(1e6 * (statistics.median(operators) - own), 0.0)),
        "speeds": speeds,
    }
    return given, times


def _fitted(times: Times, dtype: str, engine: str, way: str) -> list[float]:
    """Fit the numbers of `Speed` to the times of the shapes."""
    call, narrow, wide, long, whole = (
        (times[dtype, engine, way, shape.name], work_of(_problem(shape, dtype), engine))
        for shape in SHAPES
    )

    def per_pair(cell: Any) -> float:
        seconds, work = cell
        return max(seconds - call[0], 0.05 * seconds) / work.pairs

    wider = wide[1].width - narrow[1].width
    width = max((per_pair(wide) - per_pair(narrow)) / wider, 0.0)
    pair = max(per_pair(narrow) - width * narrow[1].width, 0.0)

    def expected(cell: Any) -> float:
        return pair + width * cell[1].width

    growth = (per_pair(long) / expected(long) - 1) / math.log2(long[1].keys / 1024)
    fitted = Speed(
        1e6 * call[0], 1e12 * pair, 1e12 * width, growth, per_pair(whole) / expected(whole)
    )
    return [_rounded(x) for x in fitted]


def _rounded(number: float) -> float:
    """Round to four digits, which are more than a measurement has."""
    return float(f"{number:.4g}")


def _inputs(shape: Shape, dtype: str) -> list[Tensor]:
    sizes = 1, shape.heads, shape.tokens, shape.dim
    return [torch.randn(sizes).to(getattr(torch, dtype)) for _ in range(3)]


def _problem(shape: Shape, dtype: str) -> Problem:
    sizes = 1, shape.heads, shape.tokens, shape.dim
    tensor = torch.empty(sizes, dtype=getattr(torch, dtype), device="meta")
    return _attention(shape, "fused").problem(tensor, tensor, tensor)


def _attention(shape: Shape, engine: str) -> Attention:
    return Attention(mask=causal() if shape.causal else None, engine=engine)


def _call(shape: Shape, dtype: str, engine: str, way: str) -> Callable[[], object]:
    attention, inputs = _attention(shape, engine), _inputs(shape, dtype)
    if way == "forward":

        def forward() -> object:
            with torch.no_grad():
                return attention(*inputs)

        return forward
    leaves = [x.requires_grad_() for x in inputs]
    arriving = torch.randn_like(leaves[0])

    def both() -> object:
        with torch.enable_grad():
            return torch.autograd.grad(attention(*leaves), leaves, arriving)

    return both


def _timed(call: Callable[[], object], many: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(many):
        call()
    return (clock() - start) / many


def _copied(clock: Callable[[], float]) -> float:
    """Copy numbers that fit no cache near the core."""
    numbers = torch.ones(_COPIED)
    return _timed(numbers.clone, 1, clock)


def _operator(clock: Callable[[], float]) -> float:
    """Time a call of a few tokens that Python hands to the kernels."""
    shape = SHAPES[0]
    inputs = _inputs(shape, "float32")
    mask = torch.ones(shape.tokens, shape.tokens, dtype=torch.bool).tril()
    attention = Attention(mask=dense(mask), engine="streaming")
    with torch.no_grad():
        attention(*inputs)
        return _timed(lambda: attention(*inputs), 20, clock)
