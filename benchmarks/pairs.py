"""Measuring two things in turn, so that a machine whose speed drifts drifts for both."""

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich import box
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


def show(title: str, rows: Sequence[Pair | Figure], width: int | None = None) -> None:
    """Print the rows, the pairs as one table and the numbers by themselves as another.

    Args:
        title: Of the first table.
        rows: What was measured.
        width: In columns; that of the terminal if not given, and 100 at most.
    """
    console = Console(width=width)
    console.width = min(console.width, 100)
    pairs = [row for row in rows if isinstance(row, Pair)]
    figures = [row for row in rows if isinstance(row, Figure)]
    if pairs:
        cells = [
            (row.name, seconds(row.ours), seconds(row.theirs), ratio_text(row), judgement(row))
            for row in pairs
        ]
        console.print(_table(("", "ours", "theirs", "ratio", "limit"), cells, title))
    if figures:
        cells = [(row.name, value_text(row), row.about, judgement(row)) for row in figures]
        console.print(_table(("", "value", "about", "limit"), cells, "" if pairs else title))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> Table:
    """A table whose words are broken into lines, and whose numbers never are."""
    table = Table(title=title, box=box.SIMPLE_HEAD)
    for head in heads:
        is_number = head in ("ours", "theirs", "ratio", "value")
        justify = "right" if is_number else "left"
        table.add_column(head, no_wrap=is_number, justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def judgement(row: Pair | Figure) -> str:
    """The limit, and whether it was reached."""
    return f"{row.limit}: {verdict(row)}" if row.limit else ""


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
