"""What exact statistics cost beside attention: against SDPA, eager and FlexAttention, in pairs.

    python benchmarks/observe.py                        all of it, some minutes
    python benchmarks/observe.py --quick                less of it, to see that it runs
    python benchmarks/observe.py --only window memory   some sections; the others keep their results
    python benchmarks/observe.py --page                 only writes the page of results

Causal unless a row says otherwise, batch 1, 8 heads of 64, float32, without gradients.
"""

import argparse
import json
import platform
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import observe_children
import observe_timed
import torch
from observe_cases import EIGHT, SIX, Options
from observe_page import draw, write_page
from pairs import Figure, Pair, show

RESULTS = Path("build/benchmarks/observe.json")
PICTURE = RESULTS.with_suffix(".png")
LENGTHS = (1024, 2048, 4096, 8192)

Section = Callable[[Options], list[Pair | Figure]]
SECTIONS: dict[str, tuple[str, Section]] = {
    "causal": ("Statistics beside the context | SDPA alone", observe_timed.causal),
    "eager": ("Statistics | the same with the matrix, in plain torch", observe_timed.eager),
    "flex": ("FlexAttention, compiled", observe_timed.flex),
    "masks": ("Masks | SDPA with a mask tensor", observe_timed.masks),
    "window": ("SIX of long texts, window(before=1023)", observe_children.window),
    "memory": ("SIX and TopK(8) of a long text", observe_children.memory),
    "peak": ("The limit: products at full speed", observe_timed.peak),
    "first": ("The first call", observe_children.first),
}


def arguments() -> argparse.Namespace:
    """What was asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer pairs and shorter texts")
    parser.add_argument("--lengths", type=int, nargs="+", help="of the causal problems")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="these sections alone")
    parser.add_argument("--page", action="store_true", help="only write the page of results")
    return parser.parse_args()


def machine() -> dict[str, Any]:
    """What it ran on."""
    return {
        "processor": f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def before() -> dict[str, Any]:
    """Earlier results of the same machine."""
    if not RESULTS.exists():
        return {}
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found["sections"] if found["machine"] == machine() else {}


def main() -> None:
    """Measure, print, write, draw."""
    asked = arguments()
    if asked.page:
        write_page(json.loads(RESULTS.read_text(encoding="utf-8")), PICTURE)
        return
    torch.manual_seed(0)
    lengths = asked.lengths or (LENGTHS[:2] if asked.quick else LENGTHS)
    options = Options(sorted(lengths), asked.quick)
    sections = before() if asked.only else {}
    print(", ".join(f"{key} {value}" for key, value in machine().items()))
    for name, statistics in {"SIX": SIX, "EIGHT": EIGHT}.items():
        print(f"{name}: {', '.join(map(repr, statistics))}")
    for name in asked.only or SECTIONS:
        title, section = SECTIONS[name]
        with torch.no_grad():
            rows = section(options)
        show(title, rows)
        # Written after each section, so that one which is cut short loses no other.
        sections[name] = {
            "title": title,
            "quick": asked.quick,
            "rows": [asdict(row) for row in rows],
        }
        kept = {each: sections[each] for each in SECTIONS if each in sections}
        found = {"machine": machine(), "sections": kept}
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        draw(found, PICTURE)


if __name__ == "__main__":
    main()
