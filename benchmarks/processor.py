"""What attention, its statistics and a watch cost on one processor, for the site and the README.

    python benchmarks/processor.py NAME PROCESSOR    measures, some 15 minutes; results/NAME.json
    make bench-json NAME=zen5 PROCESSOR="AMD EPYC Zen 5 (AVX512-BF16)"        the same
    python benchmarks/processor.py --page            writes the tables of the pages, from results

NAME is the file's name, and PROCESSOR its name in prose, such as "AMD EPYC Zen 5 (AVX512-BF16)".
Causal, batch 1, 8 heads of 64; the watched model has GPT-2's size. With TransformerLens in the same
environment, the model is run by it, too.
"""

import argparse
import datetime as dt
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import watch
import watch_peers
from grid_page import sections
from observe_cases import DIM, HEADS, SIX
from pairs import judged, paired
from torch import Tensor
from torch.nn import functional as F

import glasshead as gh

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).parents[1]
PLACE = re.compile(r"(<!-- costs -->\n).*?(<!-- end of costs -->)", re.DOTALL)
# What the model's own part of the results has: that of `watch_peers`.
FORWARD = f"forward pass, {watch.SHORT} tokens"
LENGTHS = (512, 4096)
TYPES = {"": torch.float32, ", bfloat16": torch.bfloat16}


def observed(inputs: list[Tensor], engine: str) -> Callable[[], object]:
    """The context and six statistics."""
    attention = gh.Attention(mask=gh.causal(), engine=engine)
    return lambda: attention.observe(*inputs, statistics=SIX)


def ratio(ours: Callable[[], object], theirs: Callable[[], object], pairs: int) -> float:
    """The median of the pairs' ratios of time."""
    return round(judged("", paired(ours, theirs, pairs=pairs)).ratio, 2)


def costs() -> list[dict[str, Any]]:
    """Return the costs of a call and its statistics, as multiples of SDPA's time."""
    rows = []
    for note, dtype in TYPES.items():
        for length in LENGTHS:
            inputs = list(torch.randn(3, 1, HEADS, length, DIM, dtype=dtype))
            of = f"{length} tokens{note}"
            auto = gh.Attention(mask=gh.causal())
            works: dict[str, Callable[[], object]] = {
                f"call, {of}": lambda auto=auto, of=inputs: auto(*of),
                f"call and six statistics in one pass, {of}": observed(inputs, "streaming"),
                f"six statistics in addition to the fused kernel, {of}": observed(inputs, "fused"),
            }
            plain = lambda of=inputs: F.scaled_dot_product_attention(*of, is_causal=True)  # noqa: E731
            for work, ours in works.items():
                print(f"{work} …", file=sys.stderr, flush=True)
                with torch.no_grad():
                    found = ratio(ours, plain, pairs=15 if length > 1024 else 81)
                rows.append({"work": work, "ratio": [found], "command": "processor.py"})
    return rows


def model() -> dict[str, Any]:
    """Return the cost of a watched model, and of other ways to see its weights."""
    print("a model of GPT-2's size …", file=sys.stderr, flush=True)
    times, memory = watch_peers.times(), watch_peers.memory()
    return {
        "seconds": round(times[0].theirs, 2),
        "kinds": {
            kind: {"ratio": round(time.ratio, 2), "gib": round(more.value or 0, 2)}
            for kind, time, more in zip(watch_peers.KINDS, times, memory, strict=True)
        },
        "watched": {row.name: round(row.ratio, 2) for row in watch.costs(skip=FORWARD)},
    }


def measure(name: str, processor: str) -> None:
    """Measure this machine, and write what was found."""
    torch.manual_seed(0)
    found = {
        "processor": processor,
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "torch": torch.__version__.partition("+")[0],
        "threads": torch.get_num_threads(),
        "costs": costs(),
        "model": model(),
    }
    file = RESULTS / f"{name}.json"
    if file.exists():
        # What a profiler found, which this does not measure.
        earlier = json.loads(file.read_text(encoding="utf-8"))
        found |= {part: earlier[part] for part in ("kernel",) if part in earlier}
    rows = ",\n  ".join(json.dumps(row) for row in found["costs"])
    text = json.dumps({**found, "costs": ["…"]}, indent=1).replace('"\\u2026"', rows)
    file.write_text(text + "\n", encoding="utf-8")
    print(f"wrote {file}")


def stored() -> list[dict[str, Any]]:
    """Return the results of each processor."""
    files = sorted(RESULTS.glob("*.json"))
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def tables() -> str:
    """The costs of each processor, as a table of the site."""
    lines = []
    for found in stored():
        measured = f"torch {found['torch']}, {found['threads']} threads, {found['date']}"
        lines += [f"{found['processor']}, {measured}:", ""]
        lines += ["| work | × SDPA | command in `benchmarks/` |", "|---|---|---|"]
        for row in found["costs"]:
            ratios = " to ".join(f"{one:.2f}" for one in row["ratio"])
            lines.append(f"| {row['work']} | {ratios} | `{row['command']}` |")
        lines.append("")
    return "\n".join(lines)


def table_of_watching() -> str:
    """The costs of a watched model, with a column for each processor."""
    columns = [found for found in stored() if "model" in found]
    cells: dict[str, list[str]] = {}

    def put(work: str, column: int, text: str) -> None:
        cells.setdefault(work, [""] * len(columns))[column] = text

    for column, found in enumerate(columns):
        kinds = found["model"]["kinds"]
        ratios = {FORWARD: kinds["watched"]["ratio"], **found["model"].get("watched", {})}
        for work, ratio in ratios.items():
            put(f"time, {work}", column, f"{ratio:.2f} ×")
    for kind, work in (("watched", ""), ("eager", ", `eager` with all weights")):
        for column, found in enumerate(columns):
            gib = f"{found['model']['kinds'][kind]['gib']:g} GiB more"
            put(f"memory at the peak, {watch.LONG} tokens{work}", column, gib)
    cells = {"watched, compared with unwatched": [found["processor"] for found in columns]} | cells
    head, *rows = (f"| {' | '.join([work, *texts])} |\n" for work, texts in cells.items())
    return "".join([head, "|---" * (1 + len(columns)) + "|\n", *rows])


# The tables of each page.
PAGES = {
    "docs/concepts/performance.md": tables,
    "docs/concepts/exact.md": table_of_watching,
    "benchmarks/results/grid.md": sections,
}


def write_pages() -> None:
    """Put the tables between the marks of their pages."""
    for name, made in PAGES.items():
        page = ROOT / name
        text = page.read_text(encoding="utf-8")
        table = made().replace("\\", r"\\")
        filled = PLACE.sub(rf"\1\n{table}\n\2", text)
        page.write_text(filled, encoding="utf-8")


def main() -> None:
    """Measure and write, or write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", help="of the file of results")
    parser.add_argument("processor", nargs="?", help="its name in prose")
    parser.add_argument("--page", action="store_true", help="only write the tables of the pages")
    asked = parser.parse_args()
    if asked.processor:
        measure(asked.name, asked.processor)
    elif not asked.page:
        parser.error("NAME and PROCESSOR must be given, or --page.")
    write_pages()


if __name__ == "__main__":
    main()
