"""The page of the grids: tables and claims about the cells that `grid.py` stored."""

import json
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from glasshead.attention.cost import LIMIT

GRIDS = Path(__file__).parent / "results" / "grids"
# The least that an engine is to give of the best speed.
SHARE = 0.95
WAYS = {"forward": "forward", "both": "with the backward pass"}
# The seconds of SDPA, and the time of each engine as a multiple of them.
Figures = Mapping[str, float]
Cells = Mapping[str, Figures]


def panels(cells: Cells, engine: str) -> dict[str, dict[int, list[Figures]]]:
    """Return the cells in which an engine was measured, by mask, pass and dtype, and by length."""
    found: dict[str, dict[int, list[Figures]]] = {}
    for key, figures in cells.items():
        mask, dtype, way, _, _, length = key.split("/")
        if engine in figures:
            panel = found.setdefault(f"{mask}, {WAYS[way]}, {dtype}", {})
            panel.setdefault(int(length), []).append(figures)
    return dict(sorted(found.items()))


def slow(cells: Iterable[Figures], engine: str) -> int:
    """Count the cells in which an engine takes longer than it is to."""
    return sum(one[engine] > LIMIT for one in cells)


def misses(one: Figures, engine: str) -> bool:
    """Return whether an engine misses a goal in a cell."""
    return bool(slow([one], engine) or missed([one], engine))


def missed(cells: Iterable[Figures], engine: str) -> int:
    """Count the cells in which an engine gives too little of the best speed."""
    return sum(
        min(1.0, *(ratio for name, ratio in one.items() if name != "seconds")) < SHARE * one[engine]
        for one in cells
    )


def claims(cells: Cells, engine: str) -> str:
    """State the median, and how many cells miss each goal."""
    chosen = [one for one in cells.values() if engine in one]
    if not chosen:
        return f"No cell of `{engine}` is measured."
    return (
        f"In the median of {len(chosen)} cells, `{engine}` takes "
        f"{statistics.median(one[engine] for one in chosen):.2f} × SDPA's time. It takes more than "
        f"{LIMIT} × in {slow(chosen, engine)} of them, and gives less than {100 * SHARE:.0f} % of "
        f"the best speed in {missed(chosen, engine)}."
    )


def table(cells: Cells, engine: str) -> str:
    """Return a row for each panel: the range at each length, and how many cells miss each goal."""
    rows = panels(cells, engine)
    lengths = sorted({length for panel in rows.values() for length in panel})
    goals = f"more than {LIMIT} ×", f"less than {100 * SHARE:.0f} %"
    lines = [[f"`{engine}`", *map(str, lengths), *goals], ["---"] * (len(lengths) + 3)]
    for title, panel in rows.items():
        every = [one for some in panel.values() for one in some]
        ranges = [_range([one[engine] for one in panel.get(length, ())]) for length in lengths]
        lines.append([title, *ranges, str(slow(every, engine)), str(missed(every, engine))])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _range(ratios: list[float]) -> str:
    """Return the least and the largest ratio."""
    ends = dict.fromkeys(f"{end(ratios):.2f}" for end in (min, max)) if ratios else ()
    return " to ".join(ends)


def section(grid: Mapping[str, Any]) -> str:
    """Return the section of a processor."""
    about = f"torch {grid['torch']}, {grid['threads']} threads, {grid['date']}"
    text = claims(grid["cells"], "auto")
    return f"## {grid['processor']}, {about}\n\n{text}\n\n{table(grid['cells'], 'auto')}"


def sections() -> str:
    """Return the section of each processor whose grid is stored."""
    files = sorted(GRIDS.glob("*.json"))
    return "\n".join(section(json.loads(file.read_text(encoding="utf-8"))) for file in files)
