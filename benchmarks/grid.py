"""`attention(q, k, v)` against SDPA over a grid of shapes, in pairs, as a heat map.

    python benchmarks/grid.py                       all of it, hours; what was measured is kept
    python benchmarks/grid.py --quick               a few cells of each kind, a minute
    python benchmarks/grid.py --budget 600          as many cells as fit, the small ones first
    python benchmarks/grid.py --engine streaming    another engine than "auto"
    python benchmarks/grid.py --processor x86_64-avx2    as if the processor had no AVX-512
    python benchmarks/grid.py --busy                one thread, by its processor time

Results stand in build/benchmarks/grid-ENGINE.json, with the share of the processor's peak
(`benchmarks/peak.py`), and as a picture beside it. A run that was cut short goes on where it was;
`--again` begins anew. Masks: causal; full; padded, a batch row of which a quarter of the keys is
padding; windowed, causal and 256 keys before. SDPA is given `is_causal` or a mask of booleans.
"""

import argparse
import itertools
import json
import os
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
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
MASKS = ("causal", "full", "padded", "windowed")
PASSES = ("forward", "both")
WINDOW = 256
# A mask tensor of more pairs takes gigabytes in SDPA.
_MOST_PAIRS = 8192**2
LIMIT = 1.03


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
        elif self.mask == "padded":
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


def cells(*, quick: bool) -> list[Cell]:
    """All cells, those of the least work first."""
    lengths, dims, heads = (LENGTHS, DIMS, HEADS)
    if quick:
        lengths, dims, heads = (128, 512, 2048), (64,), (8,)
    found = [Cell(*one) for one in itertools.product(MASKS, DTYPES, PASSES, dims, heads, lengths)]
    kept = [one for one in found if one.mask in {"causal", "full"} or one.length**2 <= _MOST_PAIRS]
    return sorted(kept, key=lambda one: one.slowest)


def calls(cell: Cell, engine: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """Our call and SDPA's, of the same numbers."""
    torch.manual_seed(0)
    shape = 1, cell.heads, cell.length, cell.dim
    inputs = [torch.randn(shape).to(DTYPES[cell.dtype]) for _ in range(3)]
    arriving = torch.randn(shape).to(DTYPES[cell.dtype])
    mask: dict[str, Any] = {}
    tensor: Tensor | None = None
    ours: dict[str, Any] = {}
    if cell.mask == "causal":
        mask = {"mask": gh.causal()}
    elif cell.mask == "padded":
        seen = max(1, cell.length * 3 // 4)
        ours = {"mask": gh.padding(torch.tensor([seen]))}
        tensor = (torch.arange(cell.length) < seen)[None, None, None]
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
    """Medians of as many pairs as fit, at least three."""
    ours, theirs = calls(cell, engine)
    ours()
    theirs()
    with torch.set_grad_enabled(cell.way == "both"):
        once = seconds_of(ours, clock=clock) + seconds_of(theirs, clock=clock)
        # Several calls at a time, where one is too short to be timed.
        many = max(1, min(50, int(0.004 / once)))
        pairs = max(3, min(41, int(seconds / (once * many)))) | 1
        times = paired(ours, theirs, pairs=pairs, calls=many, clock=clock)
    return {
        "ours": statistics.median(a for a, _ in times),
        "theirs": statistics.median(b for _, b in times),
        "ratio": statistics.median(a / b for a, b in times),
        # What a busy machine spoils least.
        "best": min(a for a, _ in times) / min(b for _, b in times),
        "pairs": len(times),
    }


def run(options: argparse.Namespace, file: Path) -> dict[str, Any]:
    """Measure what is missing, and write after each cell."""
    found: dict[str, Any] = {"cells": {}}
    if file.exists() and not options.again:
        found = json.loads(file.read_text())
    found["peak"] = max(found.get("peak", 0.0), peak())
    found["machine"] = f"torch {torch.__version__}, {torch.get_num_threads()} threads"
    started = time.monotonic()
    chosen = [one for one in cells(quick=options.quick) if _wanted(one, options)]
    for place, cell in enumerate(chosen):
        if cell.key in found["cells"]:
            continue
        spent = time.monotonic() - started
        if options.budget and spent > options.budget:
            print(f"{len(chosen) - place} cells are left for another run.", file=sys.stderr)
            break
        figures = measured(
            cell,
            options.engine,
            options.seconds,
            time.process_time if options.busy else time.perf_counter,
        )
        figures["share"] = cell.operations / figures["ours"] / found["peak"]
        found["cells"][cell.key] = figures
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(found, indent=1) + "\n")
        print(
            f"{place + 1}/{len(chosen)} {cell.key:<40} {figures['ratio']:.3f} × SDPA, best "
            f"{figures['best']:.3f}, {100 * figures['share']:.0f} % of the peak",
            file=sys.stderr,
            flush=True,
        )
    return found


def _wanted(cell: Cell, options: argparse.Namespace) -> bool:
    chosen = {
        "mask": options.masks,
        "dtype": options.dtypes,
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
    parser.add_argument("--budget", type=float, help="seconds after which no cell is begun")
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
            # Read when PyTorch is loaded, so that this program starts anew.
            os.environ["ATEN_CPU_CAPABILITY"] = "avx2"
            os.environ["MKL_ENABLE_INSTRUCTIONS"] = "AVX2"
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
    file = FOLDER / f"grid-{name}.json"
    found = run(options, file)
    summary(found)
    draw(found, file.with_suffix(".png"))


if __name__ == "__main__":
    main()
