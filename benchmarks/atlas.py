"""What the atlas of a long text costs: a tile of each level, and the overview of one head.

python benchmarks/atlas.py    all of it, some three minutes
"""

import contextlib
import random
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
from pairs import Figure, figure, report, seconds_of

import glasshead as gh
from glasshead.studio.atlas import Atlas, Cancelled, TileCache

RESULTS = Path("build/benchmarks/atlas.json")
LENGTH, TILES, OVERVIEWS = 65_536, 128, 3
# How wide a head is, and by how much its scores are multiplied: trained heads can be as sharp.
HEADS = {"64 wide": (64, 1), "8 wide": (8, 1), "8 wide, sharp": (8, 50)}
# The levels whose tiles have at most 2048 keys a side are to come within this, in seconds.
NEAR, WITHIN = 3, 0.15
OVERVIEW_WITHIN, CANCELLED_WITHIN = 20, 0.3


def weights(width: int, sharpness: float) -> gh.Weights:
    """One head of a causal attention of random vectors, its logsumexp stored."""
    torch.manual_seed(0)
    query, key = torch.randn(2, LENGTH, width).unbind(0)
    return gh.Attention(mask=gh.causal()).weights(sharpness * query, key)


def places(atlas: Atlas, level: int) -> list[tuple[int, int]]:
    """Random tiles on the diagonal and before it, where there is something to see."""
    rows, _ = atlas.size(level)
    chosen = [random.randrange(rows) for _ in range(TILES)]
    return [(row, random.randrange(row + 1)) for row in chosen]


def of_tiles(name: str, atlas: Atlas) -> list[Figure]:
    """The median and the 95th percentile of each level; nothing is kept between two tiles."""
    rows = []
    for level in range(atlas.levels):
        times = [
            seconds_of(lambda at=(level, row, column): atlas.tile(*at))
            for row, column in places(atlas, level)
        ]
        side = min(LENGTH, 256 * 2**level)
        about = f"{TILES} tiles of {side} keys a side"
        p95 = statistics.quantiles(times, n=20)[-1]
        at_most = WITHIN if level <= NEAR else None
        rows += [
            figure(f"{name}, level {level}, p50", statistics.median(times), "s", about=about),
            figure(f"{name}, level {level}, p95", p95, "s", about=about, at_most=at_most),
        ]
    return rows


def of_overview(name: str, made: gh.Weights) -> list[Figure]:
    """The median of a few overviews, and how soon one ends that is cancelled on its way."""
    taken = [seconds_of(Atlas(made, TileCache(0)).overview) for _ in range(OVERVIEWS)]
    ends = [cancelled(made, 0.2 + 0.1 * turn) for turn in range(5)]
    return [
        figure(
            f"{name}, overview",
            statistics.median(taken),
            "s",
            about=f"median of {OVERVIEWS}, q, k and logsumexp stored",
            at_most=OVERVIEW_WITHIN,
        ),
        figure(
            f"{name}, overview cancelled",
            max(ends),
            "s",
            about="the longest of 5, from the wish to the end",
            at_most=CANCELLED_WITHIN,
        ),
    ]


def cancelled(made: gh.Weights, after: float) -> float:
    """The seconds that an overview goes on after it is not wanted any more."""
    wish = threading.Event()
    asked: list[float] = []

    def ask() -> None:
        asked.append(time.perf_counter())
        wish.set()

    timer = threading.Timer(after, ask)
    timer.start()
    ended = _end_of(lambda: Atlas(made, TileCache(0)).overview(cancelled=wish.is_set))
    timer.join()
    return max(0.0, ended - asked[0])


def _end_of(work: Callable[[], object]) -> float:
    with contextlib.suppress(Cancelled):
        work()
    return time.perf_counter()


def main() -> None:
    """Measure, print, and write JSON."""
    random.seed(0)
    rows = []
    for name, head in HEADS.items():
        made = weights(*head)
        atlas = Atlas(made, TileCache(0))
        atlas.tile(0, 0, 0)  # the threads begin
        rows += of_overview(name, made)
        atlas.overview()
        rows += of_tiles(name, atlas)
    title = (
        f"The atlas of {LENGTH} tokens, one causal head, torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads"
    )
    report(title, rows, RESULTS)


if __name__ == "__main__":
    main()
