"""Measuring the processor at hand: the few numbers by which `engine="auto"` predicts times."""

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor

from glasshead.attention import load
from glasshead.attention.attention import Attention
from glasshead.attention.cost import ENGINES, WAYS, Speed, Work, work_of
from glasshead.attention.load import Stretch, mean_taken
from glasshead.attention.profiles import DTYPES, machine, parsed, write
from glasshead.recipe.masks import causal, dense
from glasshead.recipe.problem import Problem

if TYPE_CHECKING:
    from glasshead.drawing import Document

SECONDS = 18.0
# Seconds of a sample, so that a clock can tell it, and the most calls in it.
_SAMPLE, _MANY = 1.5e-2, 100
_COPIED = 2**25
# Rounds, so that no time rests on a first call.
_ROUNDS = 2
# Seconds after which the load is read: the system counts processor time in hundredths.
_STRETCH = 0.3
# Turns after which the numbers of a fit no longer change.
_TURNS = 9
# Processors that other programs may take, besides those that the threads leave free.
_TAKEN = 0.25
# Disturbed stretches that are repeated, even if that takes longer than measuring.
_TRIES = 5

# How a profile came about if the system does not report its load.
UNCHECKED = "glasshead tune, without a check of the machine's load"

Progress = Callable[[float], object]
# The dtype, engine, pass and shape of a call.
Key = tuple[str, ...]
_COPY, _OPERATOR = ("copy",), ("operator",)
Times = dict[Key, float]


class Shape(NamedTuple):
    """A call that is measured.

    Attributes:
        name: What it tells.
        heads: The least number of heads; many threads get one for each four.
        queries, keys, dim: Its other sizes.
        causal: Whether it has a causal mask.
    """

    name: str
    heads: int
    queries: int
    keys: int
    dim: int
    causal: bool = False

    @property
    def about(self) -> str:
        """Describe the call in a few words."""
        mask, sizes = "causal" if self.causal else "full", f"{self.queries} × {self.dim}"
        if self.queries == self.keys:
            return f"{mask} {sizes}"
        return f"{sizes}, {self.keys} keys"


# Each tells one number of `Speed`: the call, what a number of the inputs takes, a pair, a number
# of the head_dims, more keys, and a call whose queries see all keys.
SHAPES = (
    Shape("call", 2, 16, 16, 64, causal=True),
    Shape("single", 4, 1, 4096, 64),
    Shape("narrow", 2, 1024, 1024, 32, causal=True),
    Shape("wide", 2, 1024, 1024, 128, causal=True),
    Shape("long", 1, 1024, 4096, 64),
    Shape("whole", 2, 1024, 1024, 64),
)


class Tuned(NamedTuple):
    """The result of `tune`, which shows its ratios as a table.

    Attributes:
        file: The file that holds the profile.
        profile: The profile, as JSON has it.
        ratios: Streaming's time as a multiple of SDPA's, by dtype, pass and shape.
    """

    file: str
    profile: dict[str, Any]
    ratios: dict[str, dict[str, dict[str, float]]]

    def __str__(self) -> str:
        return self.document().text()

    def _repr_html_(self) -> str:
        return self.document()._repr_html_()

    def document(self) -> "Document":
        """Draw the ratios, and the machine that they hold for."""
        from glasshead.drawing import Document, Paragraph, Table

        rows = [
            [shape.about, "with gradients" if way == "both" else way]
            + [f"{ways[way][shape.name]:.2f}" for ways in self.ratios.values()]
            for shape in SHAPES
            for way in WAYS
        ]
        made = self.profile["machine"]
        threads = f"{made['threads']} thread{'s' * (made['threads'] > 1)}"
        about = f"{made['processor']}, {threads}, torch {made['torch']}"
        table = Table(["call", "passes", *self.ratios], rows)
        title = "Streaming's time as a multiple of SDPA's"
        return Document([table, Paragraph(about)], title=title)


class LoadedError(RuntimeError):
    """Other programs took so much processor time that no times could be measured.

    Attributes:
        taken: The processors that they kept busy.
        processors: How many there are.
    """

    def __init__(self, taken: float, processors: int) -> None:
        super().__init__(
            f"The machine must be quiet to be measured, but {_busy(taken, processors)}; close them "
            "and try again, or pass loaded=True to measure all the same."
        )
        self.taken, self.processors = taken, processors


def tune(
    seconds: float = SECONDS,
    progress: Progress | None = None,
    *,
    loaded: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> Tuned:
    """Measure this processor, and keep a profile of it for `engine="auto"`.

    The profile holds for this processor, number of threads, and versions of PyTorch and glasshead.
    It takes effect in the next process, as a process keeps its engines.

    What is measured while other programs take more than a quarter of a processor from the threads
    is measured again, for at most as long again.

    Args:
        seconds: How long to measure, 1 to 600; two rounds over all calls take longer than few
            seconds. Kernels that are not installed are compiled first.
        progress: Called with the share that is done, 0 to 1.
        loaded: Whether to measure while other programs run, too; the profile's `how` states it.
        clock: The clock to measure by.

    Errors: a `LoadedError` if the machine stays busy; the earlier profile stays as it is.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"seconds must be a number, got {type(seconds).__name__}.")
    if not 1 <= seconds <= 600:
        raise ValueError(f"seconds must be between 1 and 600, got {seconds}.")
    times, how = _measured(measurements(clock), seconds, progress, loaded=loaded)
    given = {
        "name": "measured here",
        "machine": machine()._asdict(),
        "how": how,
        **fitted(times),
    }
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


def _busy(taken: float, processors: int) -> str:
    return f"other programs kept {taken:.1f} of {processors} processors busy"


def measurements(clock: Callable[[], float]) -> dict[Key, Callable[[], float]]:
    """Return what measures each call, in seconds; the engines of a call are next to each other."""
    made: dict[Key, Callable[[], float]] = {
        (dtype, engine, way, shape.name): partial(_sample, _call(shape, dtype, engine, way), clock)
        for dtype in DTYPES
        for way in WAYS
        for shape in SHAPES
        for engine in ENGINES
    }
    return {**made, _COPY: partial(_copied, clock), _OPERATOR: partial(_operator, clock)}


def _measured(
    calls: Mapping[Key, Callable[[], float]],
    seconds: float,
    progress: Progress | None,
    *,
    loaded: bool,
) -> tuple[Times, str]:
    """Measure rounds until the time is up, and measure again what others disturbed.

    Returns: the shortest time of each, which other programs and first calls spoil least, and how it
    came about.
    """
    processors, every = load.reading().processors, list(calls.items())
    # Processors beyond two for each thread: cores that run no thread have them.
    limit = _TAKEN + max(processors - 2 * torch.get_num_threads(), 0)
    times: Times = {}
    kept: list[Stretch] = []
    lost: list[Stretch] = []
    rounds, left = 0, every
    while True:
        found, stretch = _stretch(left)
        if not loaded and stretch.disturbed(limit):
            lost.append(stretch)
            if len(lost) > _TRIES and sum(one.wall for one in lost) > seconds:
                raise LoadedError(mean_taken(lost), processors)
            continue
        kept.append(stretch)
        times |= {key: min(one, times.get(key, one)) for key, one in found.items()}
        left = left[len(found) :]
        passed = sum(one.wall for one in kept)
        done = rounds + 1 - len(left) / len(every)
        if progress is not None:
            progress(min(passed / seconds, done / _ROUNDS, 1.0))
        if not left:
            rounds, left = rounds + 1, every
            if rounds >= _ROUNDS and passed + passed / rounds > seconds:
                break
    if any(stretch.taken is None for stretch in kept):
        return times, UNCHECKED
    if not any(stretch.disturbed(limit) for stretch in kept):
        return times, "glasshead tune"
    return times, f"glasshead tune --loaded, while {_busy(mean_taken(kept), processors)}"


def _stretch(calls: Sequence[tuple[Key, Callable[[], float]]]) -> tuple[Times, Stretch]:
    """Measure the next calls, until the load is known; the last ones of a round several times."""
    found: Times = {}
    before = after = load.reading()
    for key, call in itertools.cycle(calls):
        found[key] = min(call(), found.get(key, math.inf))
        after = load.reading()
        if after.wall - before.wall >= _STRETCH:
            break
    return found, load.between(before, after)


def fitted(times: Times) -> dict[str, Any]:
    """Fit the numbers of a profile to times."""
    own = times["float32", "streaming", "forward", "call"]
    return {
        "bandwidth": _rounded(1e-9 * 2 * 4 * _COPIED / times[_COPY]),
        "operator": _rounded(max(1e6 * (times[_OPERATOR] - own), 0.0)),
        "speeds": {
            dtype: {
                engine: {way: _fitted(times, dtype, engine, way) for way in WAYS}
                for engine in ENGINES
            }
            for dtype in DTYPES
        },
    }


def _fitted(times: Times, dtype: str, engine: str, way: str) -> list[float]:
    """Fit the numbers of `Speed` to the times of the shapes."""
    call, single, narrow, wide, long, whole = (
        (times[dtype, engine, way, shape.name], work_of(_problem(shape, dtype), engine))
        for shape in SHAPES
    )
    least, number, speed = 1e6 * call[0], 0.0, None

    def per_pair(cell: tuple[float, Work]) -> float:
        """Return picoseconds of a pair, without the call and the numbers of its inputs."""
        seconds, work = cell
        rest = 1e12 * (seconds - call[0]) - number * work.numbers
        return max(rest, 0.05e12 * seconds) / work.pairs

    # The inputs of all calls but the single query take little: a few turns find all numbers.
    for _ in range(_TURNS):
        wider = wide[1].width - narrow[1].width
        width = max((per_pair(wide) - per_pair(narrow)) / wider, 0.0)
        pair = max(per_pair(narrow) - width * narrow[1].width, 0.0)
        full = per_pair(whole) / (pair + width * whole[1].width)
        longer = per_pair(long) / (full * (pair + width * long[1].width))
        growth = (longer - 1) / math.log2(long[1].keys / whole[1].keys)
        speed = Speed(least, pair, width, growth, full, 0.0)
        number = 1e12 * max(single[0] - speed.seconds(single[1]), 0.0) / single[1].numbers
        speed = speed._replace(number=number)
    return [_rounded(x) for x in cast("Speed", speed)]


def _rounded(number: float) -> float:
    """Round to four digits, which are more than a measurement has."""
    return float(f"{number:.4g}")


def _sizes(shape: Shape) -> list[tuple[int, ...]]:
    """Return the shapes of query, key and value, whose blocks of queries occupy all threads."""
    heads = max(shape.heads, torch.get_num_threads() // 4)
    return [(1, heads, tokens, shape.dim) for tokens in (shape.queries, shape.keys, shape.keys)]


def _inputs(shape: Shape, dtype: str) -> list[Tensor]:
    return [torch.randn(sizes).to(getattr(torch, dtype)) for sizes in _sizes(shape)]


def _problem(shape: Shape, dtype: str) -> Problem:
    made = (
        torch.empty(sizes, dtype=getattr(torch, dtype), device="meta") for sizes in _sizes(shape)
    )
    return _attention(shape, "fused").problem(*made)


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


def _sample(call: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return the shortest of as many calls as a sample needs: the first one finds cold caches."""
    times: list[float] = []
    while len(times) < _MANY and sum(times) < _SAMPLE:
        times.append(_timed(call, 1, clock))
    return min(times)


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
    mask = torch.ones(shape.queries, shape.keys, dtype=torch.bool).tril()
    attention = Attention(mask=dense(mask), engine="streaming")
    with torch.no_grad():
        attention(*inputs)
        return _timed(lambda: attention(*inputs), 20, clock)
