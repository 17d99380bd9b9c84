"""`attention(q, k, v)` against SDPA over a grid of shapes, in turn, stored as JSON.

    python benchmarks/grid.py --plan                how long it would take; measures nothing
    python benchmarks/grid.py --minutes 25          what fits, the most informative cells first
    python benchmarks/grid.py                       all of it, hours; what was measured is kept
    python benchmarks/grid.py --quick               a few cells of each kind, a minute
    python benchmarks/grid.py --missed              the stored cells that miss a goal, more exactly
    python benchmarks/grid.py --dtypes bfloat16 --masks causal     a part
    python benchmarks/grid.py --engines streaming   other engines than "auto" and "streaming"
    python benchmarks/grid.py --processor x86_64-avx2    as if the processor had no AVX-512
    python benchmarks/grid.py --busy                one thread, by its processor time
    python benchmarks/grid.py --store zen5 "AMD EPYC Zen 5 (AVX512-BF16)"    for results/grid.md

Each cell measures SDPA and the engines in turn, in one process. The order is that of telling most
when cut off: first a coarse grid over everything, then the cells between, and what takes minutes
last. The JSON is written after each cell. Another run resumes where the last one was interrupted;
`--again` begins again. In three turns, noise alone can miss a goal: `--missed` measures the stored
cells that miss one in more turns, and replaces their figures.

Results stand in build/benchmarks/grid-ENGINES.json, or, with `--store NAME PROCESSOR`, in
benchmarks/results/grids/NAME.json, from which `make bench-page` makes the tables of
benchmarks/results/grid.md.

Masks: causal; full; padded, a batch row of which a quarter of the keys is padding; ragged, two
batch rows of half of the heads, of which one is padded by half; windowed, causal and 256 keys
before. SDPA is given `is_causal` or a mask of booleans.
"""

import argparse
import datetime as dt
import itertools
import json
import math
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from grid_page import GRIDS, claims, misses
from pairs import seconds_of
from peak import peak
from torch import Tensor
from torch.nn import functional as F

import glasshead as gh
from glasshead.files import whole_file

Clock = Callable[[], float]
Call = Callable[[], object]
FOLDER = Path("build/benchmarks")
LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
DIMS, HEADS = (32, 64, 128), (1, 4, 16, 64)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# SDPA has no fast kernel of float16 on many processors: it is measured where it is named.
DEFAULT_DTYPES = ("float32", "bfloat16")
MASKS = ("causal", "full", "padded", "ragged", "windowed")
PASSES = ("forward", "both")
ENGINES = ("auto", "streaming")
WINDOW = 256
# A mask tensor of more pairs takes gigabytes in SDPA.
_MOST_PAIRS = 8192**2
# In which round a value's cells are measured; those of several late values come in their sum's.
_ROUNDS = {
    "length": {4096: 0, 1024: 0, 2048: 1, 256: 1, 512: 2, 8192: 2, 128: 3, 16384: 3},
    "dim": {64: 0, 128: 1, 32: 1},
    "heads": {4: 0, 16: 1, 1: 2, 64: 3},
}
# The speed of SDPA, as a share of the peak, by which times are estimated.
_SHARE = 0.4
# Turns before the first that counts: some load machine code, and remember the call.
_WARM = 2


@dataclass(frozen=True)
class Cell:
    """One problem of the grid."""

    mask: str
    dtype: str
    way: str
    dim: int
    heads: int
    length: int

    @property
    def key(self) -> str:
        """Its name in the results."""
        return "/".join(map(str, vars(self).values()))

    @property
    def operations(self) -> int:
        """Operations of SDPA, which computes all pairs of a mask tensor."""
        whole = 4 * self.length**2 * self.heads * self.dim
        whole = whole // 2 if self.mask == "causal" else whole
        return whole * (4 if self.way == "both" else 1)

    @property
    def round(self) -> int:
        """In which round it is measured."""
        return sum(rounds.get(getattr(self, name), 0) for name, rounds in _ROUNDS.items())

    def seconds(self, turn: float, care: "Care") -> float:
        """Return how long it takes, if a turn takes so long."""
        return _WARM * turn + max(care.least(turn) * turn, care.seconds)


@dataclass(frozen=True)
class Care:
    """How long a cell is measured: a time, in at least so many turns and at most 13 × as many."""

    seconds: float = 0.5
    turns: int = 3

    def least(self, turn: float) -> int:
        """Return the turns that are measured at least, if a turn takes so many seconds."""
        return self.turns if turn < 4 else max(1, self.turns // 3)

    def chosen(self, turn: float) -> int:
        """Return the turns that are measured, if a turn takes so many seconds."""
        return max(self.least(turn), min(13 * self.turns, int(self.seconds / turn)))


# How long cells that miss a goal are measured again.
EXACT = Care(seconds=2, turns=12)


def cells(*, quick: bool) -> list[Cell]:
    """All cells, round by round, those of the least work first."""
    lengths, dims, heads = (LENGTHS, DIMS, HEADS)
    if quick:
        lengths, dims, heads = (128, 512, 2048), (64,), (8,)
    found = [Cell(*one) for one in itertools.product(MASKS, DTYPES, PASSES, dims, heads, lengths)]
    kept = [one for one in found if one.mask in {"causal", "full"} or one.length**2 <= _MOST_PAIRS]
    kept = [one for one in kept if one.mask != "ragged" or one.heads % 2 == 0]
    return sorted(kept, key=lambda one: (one.round, one.operations))


def calls(cell: Cell, engines: Sequence[str]) -> dict[str, Call]:
    """SDPA's call, and that of each engine, of the same numbers."""
    torch.manual_seed(0)
    rows = 2 if cell.mask == "ragged" else 1
    shape = rows, cell.heads // rows, cell.length, cell.dim
    inputs = [torch.randn(shape).to(DTYPES[cell.dtype]) for _ in range(3)]
    arriving = torch.randn(shape).to(DTYPES[cell.dtype])
    mask: gh.Mask | None = None
    tensor: Tensor | None = None
    ours: dict[str, Any] = {}
    if cell.mask == "causal":
        mask = gh.causal()
    elif cell.mask in {"padded", "ragged"}:
        whole = cell.length
        seen = torch.tensor([whole * 3 // 4] if cell.mask == "padded" else [whole, whole // 2])
        ours = {"mask": gh.padding(seen)}
        tensor = (torch.arange(whole) < seen[:, None])[:, None, None]
    elif cell.mask == "windowed":
        mask = gh.causal() & gh.window(before=WINDOW)
        near = torch.ones(cell.length, cell.length, dtype=torch.bool)
        tensor = near.tril().triu(-WINDOW)
    is_causal = cell.mask == "causal"

    def whole_pass(function: Callable[[], Tensor]) -> Call:
        if cell.way == "forward":
            return function
        return lambda: torch.autograd.grad(function(), inputs, arriving)

    if cell.way == "both":
        inputs = [x.requires_grad_() for x in inputs]
    made = {
        engine: whole_pass(partial(gh.Attention(mask=mask, engine=engine), *inputs, **ours))
        for engine in engines
    }
    sdpa = partial(F.scaled_dot_product_attention, *inputs, attn_mask=tensor, is_causal=is_causal)
    return {"sdpa": whole_pass(sdpa), **made}


def measured(cell: Cell, engines: Sequence[str], care: Care, clock: Clock) -> dict[str, float]:
    """Return SDPA's seconds and each engine's multiple, as medians of the turns."""
    with torch.set_grad_enabled(cell.way == "both"):
        every = calls(cell, engines)
        warm = [[seconds_of(call, clock=clock) for call in every.values()] for _ in range(_WARM)]
        # Several calls at a time, where one is too short to be timed.
        many = max(1, min(50, int(0.004 / min(warm[-1]))))
        turns = care.chosen(many * sum(warm[-1]))
        # A call finds the caches as the one before it left them, so each follows each other.
        orders = itertools.cycle(itertools.permutations(every.items()))
        times = [
            {name: seconds_of(call, many, clock) for name, call in order}
            for order in itertools.islice(orders, turns)
        ]
    return figures(times)


def figures(times: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of SDPA's seconds, and of each engine's multiple of them in a turn."""
    ratios = {
        name: _rounded(statistics.median(turn[name] / turn["sdpa"] for turn in times))
        for name in times[0]
        if name != "sdpa"
    }
    return {"seconds": _rounded(statistics.median(turn["sdpa"] for turn in times)), **ratios}


def _rounded(figure: float) -> float:
    return float(f"{figure:.4g}")


def begun(file: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Return what a file has, under the heading of this run.

    Errors: a ValueError if its cells are of another processor, PyTorch, and so on.
    """
    heading = {
        "processor": options.store[1] if options.store else "this one",
        "torch": torch.__version__.partition("+")[0],
        "threads": torch.get_num_threads(),
        "engines": [*options.engines],
        "kernels": options.processor or "those of the processor",
    }
    found: dict[str, Any] = {}
    if file.exists() and not options.again:
        found = json.loads(file.read_text(encoding="utf-8"))
        for name, value in heading.items():
            if (earlier := found.get(name)) != value:
                raise ValueError(
                    f"{name} must be {earlier!r} as in {file}, got {value!r}. Pass --again to "
                    "begin again."
                )
    date = dt.datetime.now(tz=dt.UTC).date().isoformat()
    return {**heading, "date": date, "cells": found.get("cells", {})}


def text_of(found: Mapping[str, Any]) -> str:
    """Return JSON with a cell on each line."""
    rows = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in found["cells"].items())
    return json.dumps({**found, "cells": "…"}, indent=1).replace('"\\u2026"', f"{{\n{rows}\n }}")


def write(found: Mapping[str, Any], file: Path) -> None:
    """Write the results whole, or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(file) as temporary:
        temporary.write_text(text_of(found) + "\n", encoding="utf-8")


def run(options: argparse.Namespace, found: dict[str, Any], file: Path) -> None:
    """Measure what is missing, or misses a goal, and fits the time; write after each cell."""
    chosen = [one for one in cells(quick=options.quick) if _wanted(one, options)]
    missing = [one for one in chosen if one.key not in found["cells"]]
    care = Care(options.seconds)
    if options.missed:
        stored = [one for one in chosen if one.key in found["cells"]]
        missing = [one for one in stored if misses(found["cells"][one.key], "auto")]
        care = EXACT
    speed = _SHARE * peak() / (1 + len(options.engines))
    cost = {one: one.seconds(one.operations / speed, care) for one in missing}
    print(
        f"{len(missing)} of {len(chosen)} cells, {sum(cost.values()) / 60:.0f} minutes", flush=True
    )
    if options.plan:
        for number, some in itertools.groupby(missing, key=lambda one: one.round):
            costs = [cost[one] for one in some]
            print(f"round {number}: {len(costs)} cells, {sum(costs) / 60:.1f} minutes")
        return
    clock = time.process_time if options.busy else time.perf_counter
    end = time.monotonic() + 60 * options.minutes if options.minutes else math.inf
    try:
        for cell in missing:
            if time.monotonic() + cost[cell] > end:
                continue  # a later one may be shorter
            found["cells"][cell.key] = measured(cell, options.engines, care, clock)
            write(found, file)
            ratios = found["cells"][cell.key].items()
            print(
                f"round {cell.round}, {cell.key:<36} "
                + ", ".join(f"{name} {figure:g}" for name, figure in ratios),
                file=sys.stderr,
                flush=True,
            )
    except KeyboardInterrupt:
        print("interrupted; another run resumes here", file=sys.stderr)
    for engine in options.engines:
        print(claims(found["cells"], engine))


def _wanted(cell: Cell, options: argparse.Namespace) -> bool:
    chosen = {
        "mask": options.masks,
        "dtype": options.dtypes or DEFAULT_DTYPES,
        "way": options.passes,
        "dim": options.dims,
        "heads": options.heads,
        "length": options.lengths,
    }
    return all(not some or getattr(cell, name) in some for name, some in chosen.items())


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a few cells of each kind")
    parser.add_argument("--plan", action="store_true", help="print how long it takes, and exit")
    parser.add_argument("--missed", action="store_true", help="the cells that miss a goal")
    parser.add_argument("--minutes", type=float, help="measure what fits")
    parser.add_argument("--seconds", type=float, default=0.5, help="of the turns of a cell")
    parser.add_argument("--engines", nargs="+", default=ENGINES, choices=(*ENGINES, "fused"))
    parser.add_argument("--store", nargs=2, metavar=("NAME", "PROCESSOR"), help="for the page")
    parser.add_argument("--processor", help="kernels of this processor, SDPA's alike")
    parser.add_argument("--masks", nargs="+", choices=MASKS)
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES)
    parser.add_argument("--passes", nargs="+", choices=PASSES)
    parser.add_argument("--dims", nargs="+", type=int)
    parser.add_argument("--heads", nargs="+", type=int)
    parser.add_argument("--lengths", nargs="+", type=int)
    parser.add_argument("--busy", action="store_true", help="one thread, by its processor time")
    parser.add_argument("--again", action="store_true", help="forget what was measured")
    options = parser.parse_args()
    name = "-".join(["grid", *options.engines])
    if options.processor:
        from glasshead.engines.streaming.kernels import processor

        if options.processor == "x86_64-avx2" and "ATEN_CPU_CAPABILITY" not in os.environ:
            # Read when PyTorch is loaded, so that this program starts again.
            os.environ["ATEN_CPU_CAPABILITY"] = "avx2"
            os.environ["MKL_ENABLE_INSTRUCTIONS"] = "AVX2"
            os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"
            os.execv(sys.executable, [sys.executable, *sys.argv])
        wanted = next(one for one in processor.SHIPPED if one.name == options.processor)
        processor.at_hand.cache_clear()
        processor.SHIPPED = (wanted,)
        name += f"-{options.processor}"
    if options.busy:
        torch.set_num_threads(1)
        name += "-busy"
    if options.quick:
        name += "-quick"
    if options.missed and "auto" not in options.engines:
        parser.error("--missed needs the goals of auto; add auto to --engines.")
    if options.store and options.busy:
        parser.error("--store needs a quiet machine; omit --busy.")
    if options.store and options.quick:
        parser.error("--store needs the cells of the grid; omit --quick.")
    file = GRIDS / f"{options.store[0]}.json" if options.store else FOLDER / f"{name}.json"
    try:
        found = begun(file, options)
    except ValueError as error:
        parser.error(str(error))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run(options, found, file)


if __name__ == "__main__":
    main()
