"""The picture and the page of `benchmarks/observe.py`, of the results that it wrote."""

import re
import shutil
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FixedLocator, NullLocator
from pairs import Figure, Pair, ratio_text, seconds, value_text, verdict

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "benchmarks" / "results" / "observe.md"
COPY = ROOT / "docs" / "pictures" / "observe.png"
PLACE = re.compile(r"(<!-- figures -->\n).*?(<!-- end of figures -->)", re.DOTALL)

# The variant in the results, its label, colour and line.
LINES = {
    "eager + SIX": ("eager with six statistics", "#9a9a9a", "--"),
    "eager alone": ("eager, no statistics", "#c0c0c0", "--"),
    "observe EIGHT, fused": ("eight statistics, fused", "#e08214", ":"),
    "observe SIX, fused": ("six statistics, fused", "#1b6ca8", ":"),
    "observe EIGHT, streaming": ("eight statistics, streaming", "#e08214", "-"),
    "observe SIX, streaming": ("six statistics, streaming", "#1b6ca8", "-"),
    "call, streaming": ("no statistics, streaming", "#2e8b57", "-"),
}
TICKS = (0.75, 1, 1.25, 1.5, 2, 3, 4, 6, 8, 12, 16)


def rows_of(section: dict[str, Any]) -> list[Pair | Figure]:
    """The rows of a section, as they were before they were written."""
    return [Pair(**row) if "pairs" in row else Figure(**row) for row in section["rows"]]


def ratios(found: dict[str, Any]) -> dict[str, dict[int, Pair]]:
    """What is compared with SDPA alone, by variant and length."""
    result: dict[str, dict[int, Pair]] = {}
    for name in ("causal", "eager"):
        for row in rows_of(found["sections"].get(name, {"rows": []})):
            variant, _, length = row.name.rpartition(", T=")
            if name == "eager":
                variant, _, against = variant.partition(" | ")
                if against != "SDPA":
                    continue
            if isinstance(row, Pair):
                result.setdefault(variant, {})[int(length)] = row
    return result


def draw(found: dict[str, Any], file: Path) -> None:
    """Times as multiples of SDPA's, by length, each line named where it ends."""
    lines = ratios(found)
    if not lines:
        return
    picture = Drawing(figsize=(9.2, 5.4), layout="constrained")
    axes = picture.subplots()
    lengths = sorted({length for line in lines.values() for length in line})
    axes.plot([lengths[0], lengths[-1]], [1, 1], color="#333333", linewidth=1.2)
    axes.annotate("SDPA alone", (lengths[0], 0.985), color="#333333", fontsize=9, va="top")
    ends: list[tuple[float, int, str, str]] = []
    for variant, (label, color, style) in LINES.items():
        line = sorted(lines.get(variant, {}).items())
        if not line:
            continue
        at = [length for length, _ in line]
        heights = [row.ratio for _, row in line]
        axes.plot(at, heights, color=color, linestyle=style, marker="o", markersize=4)
        ends.append((heights[-1], at[-1], f"{label}  {heights[-1]:.2f} ×", color))
    _label(axes, ends, lengths)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(lengths))
    axes.set_xticklabels([str(length) for length in lengths])
    axes.set_ylim(bottom=min(0.85, axes.get_ylim()[0]))
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(FixedLocator([t for t in TICKS if low <= t <= high]))
    axes.set_yticklabels([f"{t:g} ×" for t in TICKS if low <= t <= high])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("tokens")
    machine = found["machine"]
    axes.set_title(
        "Attention with exact statistics: time, as a multiple of SDPA alone\n",
        loc="left",
        fontsize=12,
    )
    about = "causal, batch 1, 8 heads of 64, float32"
    axes.text(
        0,
        1.02,
        f"{about}; {machine['threads']} threads, {machine['processor']}, torch {machine['torch']}",
        transform=axes.transAxes,
        fontsize=9,
        color="#666666",
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(file, dpi=130)


def _label(axes: Axes, ends: list[tuple[float, int, str, str]], lengths: list[int]) -> None:
    """Names at the right of the lines, moved apart where they would touch."""
    last, below = lengths[-1], 0.0
    for height, at, label, color in sorted(ends):
        place = max(height, below * 1.09)
        below = place
        axes.annotate(
            label,
            (at, height),
            (last * 1.12, place) if at == last else (at * 1.06, height),
            color=color if color != "#c0c0c0" else "#9a9a9a",
            fontsize=9,
            va="center",
        )
    axes.set_xlim(lengths[0] * 0.93, last * 2.6 * (last / lengths[0]) ** 0.1)


def write_page(found: dict[str, Any], picture: Path) -> None:
    """Put the tables between the marks of the page, and the picture beside it."""
    text = PAGE.read_text(encoding="utf-8")
    tables = _tables(found)
    PAGE.write_text(PLACE.sub(lambda m: f"{m[1]}\n{tables}\n{m[2]}", text), encoding="utf-8")
    shutil.copyfile(picture, COPY)
    print(f"wrote {PAGE.relative_to(ROOT)} and {COPY.relative_to(ROOT)}")


def _tables(found: dict[str, Any]) -> str:
    lines = [
        *_headline(found),
        *_by_length(found),
        "",
        "| | ours, or the figure | theirs, or what it is | ratio | limit | |",
        "|---|---|---|---|---|---|",
    ]
    for name, section in found["sections"].items():
        if name == "causal":
            continue
        lines.append(f"| **{_cell(section['title'])}** | | | | | |")
        for row in rows_of(section):
            if isinstance(row, Pair):
                cells = seconds(row.ours), seconds(row.theirs), ratio_text(row)
            else:
                cells = value_text(row), row.about, ""
            lines.append(f"| {' | '.join([_cell(row.name), *cells, row.limit, verdict(row)])} |")
    return "\n".join([*lines, ""])


def _headline(found: dict[str, Any]) -> list[str]:
    """The long text in a sentence."""
    rows = rows_of(found["sections"].get("memory", {"rows": []}))
    parts = [row for row in rows if isinstance(row, Figure)]
    if not parts:
        return []
    length = parts[0].name.partition(",")[0].removeprefix("T=")
    time, extra, matrix = (value_text(part) for part in (parts[0], parts[1], parts[-1]))
    return [
        f"**SIX and TopK(8), exact, of {length} queries and as many keys, causal, 8 heads:",
        f"{time}, and {extra} beyond inputs and results.**",
        f"The matrix of weights alone would be {matrix}.",
        "",
    ]


def _by_length(found: dict[str, Any]) -> list[str]:
    """Each variant as a line, each length as a column."""
    lines = {name: line for name, line in ratios(found).items() if not name.startswith("eager")}
    if not lines:
        return []
    lengths = sorted(next(iter(lines.values())))
    result = [
        f"| | {' | '.join(f'{length} tokens' for length in lengths)} | limit | |",
        f"|---|{'---|' * len(lengths)}---|---|",
    ]
    alone = [seconds(median(line[length].theirs for line in lines.values())) for length in lengths]
    result.append(f"| SDPA alone | {' | '.join(alone)} | | |")
    for name, line in lines.items():
        cells = [f"{line[length].ratio:.2f} ×" for length in lengths]
        limit = next((row.limit for row in line.values() if row.limit), "")
        missed = [str(length) for length, row in line.items() if not row.reached]
        said = f"NOT REACHED at {', '.join(missed)}" if missed else "reached" if limit else ""
        since = f"{limit} from 2048 on" if limit else ""
        result.append(f"| {_cell(name)} | {' | '.join(cells)} | {since} | {said} |")
    return result


def _cell(text: str) -> str:
    return text.replace("|", "against")
