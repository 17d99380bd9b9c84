"""Measuring two things in turn, so that a machine whose speed drifts drifts for both."""

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table


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


@dataclass(frozen=True)
class Figure:
    """One number by itself; None where it could not be had, for a reason that `about` gives."""

    name: str
    value: float | None
    unit: str
    about: str
    limit: str
    reached: bool


def paired(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    *,
    pairs: int,
    calls: int = 1,
    clock: Callable[[], float] = time.perf_counter,
    warm: bool = False,
) -> list[tuple[float, float]]:
    """The seconds that a call of each takes, pair by pair; who goes first alternates.

    The first pair is for warming up, and left out, unless that is said to be done.
    """
    times = []
    for turn in range(pairs + (not warm)):
        order = (ours, theirs) if turn % 2 else (theirs, ours)
        taken = {id(function): seconds_of(function, calls, clock) for function in order}
        times.append((taken[id(ours)], taken[id(theirs)]))
    return times if warm else times[1:]


def seconds_of(
    function: Callable[[], object],
    calls: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """The seconds that a call takes, as the mean of so many."""
    start = clock()
    for _ in range(calls):
        function()
    return (clock() - start) / calls


def judged(
    name: str,
    times: list[tuple[float, float]],
    *,
    ratio: float | None = None,
    difference: float | None = None,
    speedup: float | None = None,
) -> Pair:
    """The medians of `times`, held against the limit that is given.

    Args:
        name: What is compared with what.
        times: Pairs of seconds, ours and theirs.
        ratio: How many times as long ours may take.
        difference: How many seconds more it may take.
        speedup: How many times as fast it is to be.
    """
    ours, theirs = (statistics.median(column) for column in zip(*times, strict=True))
    ratios = statistics.median(a / b for a, b in times)
    differences = statistics.median(a - b for a, b in times)
    if ratio is not None:
        limit, reached = f"at most {ratio} ×", ratios <= ratio
    elif difference is not None:
        limit, reached = f"at most +{seconds(difference)}", differences <= difference
    elif speedup is not None:
        limit, reached = f"at least {speedup:g} × as fast", ratios <= 1 / speedup
    else:
        limit, reached = "", True
    return Pair(name, ours, theirs, ratios, differences, len(times), limit, reached)


def figure(
    name: str, value: float | None, unit: str, *, about: str = "", at_most: float | None = None
) -> Figure:
    """A number, held against the limit if one is given; one that is missing does not reach it."""
    if at_most is None:
        return Figure(name, value, unit, about, "", True)
    reached = value is not None and value <= at_most
    return Figure(name, value, unit, about, f"at most {at_most:g} {unit}".rstrip(), reached)


def report(title: str, rows: Sequence[Pair | Figure], file: Path) -> None:
    """Print the rows as a table, and write them as JSON."""
    show(title, rows)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")


def show(title: str, rows: Sequence[Pair | Figure]) -> None:
    """Print the rows, the pairs as one table and the numbers by themselves as another.

    In a narrow terminal names and limits wrap, and numbers do not.
    """
    console = Console()
    console.width = max(80, min(console.width, 100))
    pairs = [row for row in rows if isinstance(row, Pair)]
    figures = [row for row in rows if isinstance(row, Figure)]
    if pairs:
        table = Table(title=title)
        for head in ("", "ours", "theirs", "ratio", "difference", "limit", ""):
            table.add_column(head, no_wrap=head not in ("", "limit"), overflow="fold")
        for row in pairs:
            times = seconds(row.ours), seconds(row.theirs), ratio_text(row), seconds(row.difference)
            table.add_row(row.name, *times, row.limit, verdict(row))
        console.print(table)
    if figures:
        table = Table("", Column(no_wrap=True), "", "limit", "", title="" if pairs else title)
        for row in figures:
            table.add_row(row.name, value_text(row), row.about, row.limit, verdict(row))
        console.print(table)


def verdict(row: Pair | Figure) -> str:
    """Whether the limit was reached, where there is one."""
    return "" if not row.limit else "reached" if row.reached else "NOT REACHED"


def ratio_text(row: Pair) -> str:
    """The ratio, as a fraction where ours takes less than half as long."""
    return f"{row.ratio:.3f}" if row.ratio > 0.5 else f"1/{1 / row.ratio:.2f}"


def value_text(row: Figure) -> str:
    """The number with its unit."""
    if row.value is None:
        return "-"
    return seconds(row.value) if row.unit == "s" else f"{row.value:.4g} {row.unit}".rstrip()


def seconds(number: float) -> str:
    """Seconds, in the unit that suits them."""
    if abs(number) < 1e-3:
        return f"{number * 1e6:.1f} µs"
    return f"{number * 1e3:.2f} ms" if abs(number) < 1 else f"{number:.2f} s"
