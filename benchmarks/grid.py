"""`attention(q, k, v)` against SDPA over a grid of shapes, in pairs, as a heat map.

    python benchmarks/grid.py --plan                how long it would take; measures nothing
    python benchmarks/grid.py --minutes 25          what fits, the most telling cells first
    python benchmarks/grid.py                       all of it, hours; what was measured is kept
    python benchmarks/grid.py --quick               a few cells of each kind, a minute
    python benchmarks/grid.py --dtypes bfloat16 --masks causal     a part
    python benchmarks/grid.py --engine streaming    another engine than "auto"
    python benchmarks/grid.py --processor x86_64-avx2    as if the processor had no AVX-512
    python benchmarks/grid.py --busy                one thread, by its processor time

The order is that of telling most when cut off: first a coarse grid over everything, then the cells
between, and what takes minutes last. The JSON is written after each cell, the picture after each
round and at the end, also after Ctrl-C. Another run goes on where the last one was cut short;
`--again` begins again.

Results stand in build/benchmarks/grid-ENGINE.json, with the share of the processor's peak
(`benchmarks/peak.py`) and the machine's load, and as a picture beside it. Masks: causal; full;
padded, a batch row of which a quarter of the keys is padding; ragged, two batch rows of half of the
heads, of which one is padded by half; windowed, causal and 256 keys before.
SDPA is given `is_causal` or a mask of booleans.
"""

import argparse
import itertools
import json
import math
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pairs import paired, seconds_of
from peak import peak
from torch import Tensor
from torch.nn import functional as F

import glasshead as gh

Clock = Callable[[], float]
FOLDER = Path("build/benchmarks")
LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
DIMS, HEADS = (32, 64, 128), (1, 4, 16, 64)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# SDPA has no fast kernel of float16 on many processors: it is measured where it is named.
DEFAULT_DTYPES = ("float32", "bfloat16")
MASKS = ("causal", "full", "padded", "ragged", "windowed")
PASSES = ("forward", "both")
WINDOW = 256
# A mask tensor of more pairs takes gigabytes in SDPA.
_MOST_PAIRS = 8192**2
LIMIT = 1.03
# In which round a value's cells are measured; those of several late values come in their sum's.
_ROUNDS = {
    "length": {4096: 0, 1024: 0, 2048: 1, 256: 1, 512: 2, 8192: 2, 128: 3, 16384: 3},
    "dim": {64: 0, 128: 1, 32: 1},
    "heads": {4: 0, 16: 1, 1: 2, 64: 3},
}
# The speed of SDPA, as a share of the peak, by which times are estimated.
_SHARE = 0.4


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
        """Operations of its products: the pairs that are seen, a backward pass 2.5 times more."""
        pairs = self.length**2
        if self.mask == "causal":
            pairs = self.length * (self.length + 1) // 2
        elif self.mask in {"padded", "ragged"}:
            pairs = self.length * (self.length * 3 // 4)
        elif self.mask == "windowed":
            short = min(self.length, WINDOW + 1)
            pairs = short * (short + 1) // 2 + (self.length - short) * short
        return int(4 * pairs * self.heads * self.dim * (3.5 if self.way == "both" else 1))

    @property
    def slowest(self) -> int:
        """Operations of SDPA, which computes all pairs of a mask tensor."""
        whole = 4 * self.length**2 * self.heads * self.dim
        whole = whole // 2 if self.mask == "causal" else whole
        return whole * (4 if self.way == "both" else 1)

    @property
    def round(self) -> int:
        """In which round it is measured."""
        return sum(rounds.get(getattr(self, name), 0) for name, rounds in _ROUNDS.items())

    def seconds(self, peak: float, wanted: float) -> float:
        """Estimate how long measuring takes: one pair to warm up, and as many as are wanted."""
        pair = 2 * self.slowest / (_SHARE * peak)
        return pair + max(_least_pairs(pair) * pair, wanted)


def _least_pairs(seconds: float) -> int:
    """Pairs of so many seconds each that are measured at least."""
    return 3 if seconds < 4 else 1


def cells(*, quick: bool) -> list[Cell]:
    """All cells, round by round, those of the least work first."""
    lengths, dims, heads = (LENGTHS, DIMS, HEADS)
    if quick:
        lengths, dims, heads = (128, 512, 2048), (64,), (8,)
    found = [Cell(*one) for one in itertools.product(MASKS, DTYPES, PASSES, dims, heads, lengths)]
    kept = [one for one in found if one.mask in {"causal", "full"} or one.length**2 <= _MOST_PAIRS]
    kept = [one for one in kept if one.mask != "ragged" or one.heads % 2 == 0]
    return sorted(kept, key=lambda one: (one.round, one.slowest))


def calls(cell: Cell, engine: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """Our call and SDPA's, of the same numbers."""
    torch.manual_seed(0)
    rows = 2 if cell.mask == "ragged" else 1
    shape = rows, cell.heads // rows, cell.length, cell.dim
    inputs = [torch.randn(shape).to(DTYPES[cell.dtype]) for _ in range(3)]
    arriving = torch.randn(shape).to(DTYPES[cell.dtype])
    mask: dict[str, Any] = {}
    tensor: Tensor | None = None
    ours: dict[str, Any] = {}
    if cell.mask == "causal":
        mask = {"mask": gh.causal()}
    elif cell.mask in {"padded", "ragged"}:
        whole = cell.length
        seen = torch.tensor([whole * 3 // 4] if cell.mask == "padded" else [whole, whole // 2])
        ours = {"mask": gh.padding(seen)}
        tensor = (torch.arange(whole) < seen[:, None])[:, None, None]
    elif cell.mask == "windowed":
        mask = {"mask": gh.causal() & gh.window(before=WINDOW)}
        near = torch.ones(cell.length, cell.length, dtype=torch.bool)
        tensor = near.tril().triu(-WINDOW)
    attention = gh.Attention(**mask, engine=engine)
    is_causal = cell.mask == "causal"

    def both(function: Callable[[], Tensor]) -> Callable[[], object]:
        if cell.way == "forward":
            return function
        return lambda: torch.autograd.grad(function(), inputs, arriving)

    if cell.way == "both":
        inputs = [x.requires_grad_() for x in inputs]
    return (
        both(lambda: attention(*inputs, **ours)),
        both(
            lambda: F.scaled_dot_product_attention(*inputs, attn_mask=tensor, is_causal=is_causal)
        ),
    )


def measured(cell: Cell, engine: str, seconds: float, clock: Clock) -> dict[str, float]:
    """Medians of as many pairs as fit, at least three, and one of a call of seconds."""
    with torch.set_grad_enabled(cell.way == "both"):
        ours, theirs = calls(cell, engine)
        once = seconds_of(ours, clock=clock) + seconds_of(theirs, clock=clock)
        if once < seconds:
            # Not that of the first call, which may load machine code.
            once = seconds_of(ours, clock=clock) + seconds_of(theirs, clock=clock)
        # Several calls at a time, where one is too short to be timed.
        many = max(1, min(50, int(0.004 / once)))
        pairs = max(_least_pairs(once), min(41, int(seconds / (once * many)))) | 1
        times = paired(ours, theirs, pairs=pairs, calls=many, clock=clock, warm=True)
    return {
        "ours": statistics.median(a for a, _ in times),
        "theirs": statistics.median(b for _, b in times),
        "ratio": statistics.median(a / b for a, b in times),
        # What a busy machine spoils least.
        "best": min(a for a, _ in times) / min(b for _, b in times),
        "pairs": len(times),
        "load": os.getloadavg()[0],
    }


def run(options: argparse.Namespace, file: Path) -> None:
    """Measure what is missing and fits the time; write after each cell, draw after each round."""
    found: dict[str, Any] = {"cells": {}}
    if file.exists() and not options.again:
        found = json.loads(file.read_text(encoding="utf-8"))
    found["peak"] = max(found.get("peak", 0.0), peak())
    found["machine"] = f"torch {torch.__version__}, {torch.get_num_threads()} threads"
    found["date"] = time.strftime("%Y-%m-%d", time.gmtime())
    chosen = [one for one in cells(quick=options.quick) if _wanted(one, options)]
    missing = [one for one in chosen if one.key not in found["cells"]]
    cost = {one: one.seconds(found["peak"], options.seconds) for one in missing}
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
        for number, some in itertools.groupby(missing, key=lambda one: one.round):
            for cell in some:
                if time.monotonic() + cost[cell] > end:
                    continue  # a later one may be shorter
                figures = measured(cell, options.engine, options.seconds, clock)
                figures["share"] = cell.operations / figures["ours"] / found["peak"]
                found["cells"][cell.key] = figures
                _write(found, file)
                print(
                    f"round {number}, {len(found['cells'])} cells: {cell.key:<36} "
                    f"{figures['ratio']:.3f} × SDPA, best {figures['best']:.3f}, "
                    f"{100 * figures['share']:.0f} % of the peak, {figures['pairs']} pairs",
                    file=sys.stderr,
                    flush=True,
                )
            draw(found, file.with_suffix(".png"))
    except KeyboardInterrupt:
        print("interrupted; another run goes on from here", file=sys.stderr)
        draw(found, file.with_suffix(".png"))
    summary(found)


def _write(found: dict[str, Any], file: Path) -> None:
    """Write the results whole, or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    new.write_text(json.dumps(found, indent=1) + "\n")
    new.replace(file)


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


def panels(found: dict[str, Any]) -> Iterator[tuple[str, dict[tuple[str, int], float]]]:
    """The ratios by mask, pass and dtype: rows are dimensions and heads, columns lengths."""
    for mask, way, dtype in itertools.product(MASKS, PASSES, DTYPES):
        ratios = {}
        for key, figures in found["cells"].items():
            cell = Cell(*key.split("/")[:3], *map(int, key.split("/")[3:]))
            if (cell.mask, cell.way, cell.dtype) == (mask, way, dtype):
                ratios[f"{cell.dim} × {cell.heads}", cell.length] = figures["ratio"]
        if ratios:
            yield f"{mask}, {way}, {dtype}", ratios


def draw(found: dict[str, Any], file: Path) -> None:
    """Draw a heat map of each panel: blue where ours is faster, red where SDPA is."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    shown = list(panels(found))
    if not shown:
        return
    across = 4
    down = -(-len(shown) // across)
    figure, axes = plt.subplots(
        down, across, figsize=(4.6 * across, 3.4 * down), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(shown) :]:
        axis.set_visible(False)
    for axis, (title, ratios) in zip(axes.flat, shown, strict=False):
        rows = sorted({row for row, _ in ratios}, key=lambda r: [int(x) for x in r.split(" × ")])
        columns = sorted({column for _, column in ratios})
        numbers = [[ratios.get((r, c), float("nan")) for c in columns] for r in rows]
        axis.imshow(
            [[x if x != x else min(2.0, max(0.0, x)) for x in row] for row in numbers],  # noqa: PLR0124
            cmap="coolwarm",
            vmin=0,
            vmax=2,
            aspect="auto",
        )
        axis.set_title(title, fontsize=10)
        axis.set_xticks(range(len(columns)), map(str, columns), fontsize=7)
        axis.set_yticks(range(len(rows)), rows, fontsize=7)
        axis.set_ylabel("head_dim × heads", fontsize=7)
        for y, row in enumerate(numbers):
            for x, number in enumerate(row):
                if number == number:  # noqa: PLR0124 - not NaN
                    axis.text(x, y, f"{number:.2f}", ha="center", va="center", fontsize=6)
    figure.suptitle("Time of attention(q, k, v) as a multiple of SDPA's, by length")
    figure.savefig(file, dpi=110)


def summary(found: dict[str, Any]) -> None:
    """Print a line of each panel, and the cells above the limit."""
    print(f"peak {found['peak'] / 1e9:.0f} GFLOP/s of float32, {found['machine']}")
    for title, ratios in panels(found):
        numbers = sorted(ratios.values())
        print(
            f"{title:<30} {len(numbers):>3} cells: median {statistics.median(numbers):.2f} ×, "
            f"from {numbers[0]:.2f} to {numbers[-1]:.2f}, {sum(x > LIMIT for x in numbers)} above "
            f"{LIMIT}"
        )


def main() -> None:
    """Measure, print, write, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a few cells of each kind")
    parser.add_argument("--plan", action="store_true", help="tell how long it takes, and end")
    parser.add_argument("--minutes", type=float, help="measure what fits")
    parser.add_argument("--seconds", type=float, default=0.5, help="of the pairs of a cell")
    parser.add_argument("--engine", default="auto", choices=("auto", "streaming", "fused"))
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
    name = options.engine
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
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run(options, FOLDER / f"grid-{name}.json")


if __name__ == "__main__":
    main()
