"""Measuring two things in turn, so that a machine whose speed drifts drifts for both."""

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Pair:
    """Medians over paired runs, in seconds; `ratio` and `difference` are medians of the pairs'."""

    name: str
    ours: float
    theirs: float
    ratio: float
    difference: float
    pairs: int
    limit: str
    reached: bool


def paired(
    ours: Callable[[], object], theirs: Callable[[], object], *, pairs: int, calls: int = 1
) -> list[tuple[float, float]]:
    """The seconds that a call of each takes, pair by pair; who goes first alternates."""
    times = []
    for turn in range(pairs + 1):
        order = (ours, theirs) if turn % 2 else (theirs, ours)
        taken = {id(function): _seconds(function, calls) for function in order}
        times.append((taken[id(ours)], taken[id(theirs)]))
    return times[1:]  # the first pair warms up


def _seconds(function: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls


def judged(
    name: str,
    times: list[tuple[float, float]],
    *,
    ratio: float | None = None,
    difference: float | None = None,
) -> Pair:
    """The medians of `times`, held against the limit that is given."""
    ours, theirs = (statistics.median(column) for column in zip(*times, strict=True))
    ratios = statistics.median(a / b for a, b in times)
    differences = statistics.median(a - b for a, b in times)
    if ratio is not None:
        limit, reached = f"at most {ratio} ×", ratios <= ratio
    elif difference is not None:
        limit, reached = f"at most +{_unit(difference)}", differences <= difference
    else:
        limit, reached = "", True
    return Pair(name, ours, theirs, ratios, differences, len(times), limit, reached)


def report(title: str, rows: list[Pair], file: Path) -> None:
    """Print the rows as a table, and write them as JSON."""
    table = Table("", "ours", "theirs", "ratio", "difference", "limit", "", title=title)
    for row in rows:
        table.add_row(
            row.name,
            _unit(row.ours),
            _unit(row.theirs),
            f"{row.ratio:.3f}",
            _unit(row.difference),
            row.limit,
            "reached" if row.reached else "NOT REACHED",
        )
    Console(width=110).print(table)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


def _unit(seconds: float) -> str:
    if abs(seconds) < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    return f"{seconds * 1e3:.2f} ms" if abs(seconds) < 1 else f"{seconds:.2f} s"
