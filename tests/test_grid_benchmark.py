"""The grid of shapes: what it measures, what it stores, and the page that it makes."""

import argparse
import json
import sys

import pytest
import torch

from scripts import ROOT, script


@pytest.fixture
def grid(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = script("benchmarks/grid.py")
    # Its dataclass looks itself up.
    monkeypatch.setitem(sys.modules, "grid", module)
    return module


@pytest.fixture
def page(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return script("benchmarks/grid_page.py")


CELLS = {
    "full/float32/both/64/4/131": {"seconds": 0.01, "auto": 1.03, "streaming": 0.98},
    "full/float32/both/64/1/131": {"seconds": 0.02, "auto": 1.031, "streaming": 0.97},
    "full/float32/both/64/4/67": {"seconds": 0.001, "auto": 1.06, "streaming": 1.4},
    "causal/bfloat16/forward/32/4/131": {"seconds": 0.003, "auto": 0.5, "streaming": 0.47},
    "causal/bfloat16/forward/64/4/131": {"seconds": 0.004, "auto": 0.714, "streaming": 0.72},
}


def test_the_claims_are_counted(page):
    # Over 1.03: 1.031, 1.06. Of the best speed: 0.951, 0.941, 1 / 1.06 = 0.943, 0.94, 1.
    assert page.claims(CELLS, "auto") == (
        "In the median of 5 cells, `auto` takes 1.03 × SDPA's time. It takes more than 1.03 × in 2 "
        "of them, and gives less than 95 % of the best speed in 3."
    )
    # 0.47, 0.72, 0.97, 0.98, 1.4: the last one is slower than SDPA.
    assert page.claims(CELLS, "streaming") == (
        "In the median of 5 cells, `streaming` takes 0.97 × SDPA's time. It takes more than 1.03 × "
        "in 1 of them, and gives less than 95 % of the best speed in 1."
    )
    assert page.claims(CELLS, "fused") == "No cell of `fused` is measured."
    assert [page.misses(cell, "auto") for cell in CELLS.values()] == [0, 1, 1, 1, 0]


def test_the_table_has_a_row_for_each_mask_pass_and_dtype(page):
    assert page.table(CELLS, "auto").splitlines() == [
        "| `auto` | 67 | 131 | more than 1.03 × | less than 95 % |",
        "| --- | --- | --- | --- | --- |",
        "| causal, forward, bfloat16 |  | 0.50 to 0.71 | 0 | 1 |",
        "| full, with the backward pass, float32 | 1.06 | 1.03 | 2 | 2 |",
    ]


def test_the_page_has_a_section_of_each_stored_processor(page, grid, monkeypatch, tmp_path):
    monkeypatch.setattr(page, "GRIDS", tmp_path)
    assert page.sections() == ""
    heading = {"torch": "2.13.0", "threads": 3, "engines": ["auto"], "date": "2026-11-28"}
    for name in ("b", "a"):
        found = {"processor": f"Processor {name}", **heading, "cells": CELLS}
        grid.write(found, tmp_path / f"{name}.json")
    text = page.sections()
    first, second = text.split("\n\n## Processor b, ")
    title, claims, table = first.split("\n\n")
    assert title == "## Processor a, torch 2.13.0, 3 threads, 2026-11-28"
    assert claims == page.claims(CELLS, "auto")
    assert f"{table}\n" == page.table(CELLS, "auto")
    assert second.endswith(table + "\n")


def test_a_figure_is_the_median_of_the_turns(grid):
    turns = [
        {"sdpa": 0.0020, "auto": 0.0010, "streaming": 0.0030},
        {"sdpa": 0.0100001, "auto": 0.0200, "streaming": 0.0030},
        {"streaming": 0.0031, "auto": 0.0021, "sdpa": 0.0030},
    ]
    # auto: 0.5, 2, 0.7; streaming: 1.5, 0.3, 1.0333.
    assert grid.figures(turns) == {"seconds": 0.003, "auto": 0.7, "streaming": 1.033}


@pytest.mark.parametrize("way", ["forward", "both"])
@pytest.mark.parametrize("mask", ["causal", "full", "padded", "ragged", "windowed"])
def test_engines_compute_what_sdpa_does(grid, mask, way, monkeypatch):
    monkeypatch.setattr(grid, "WINDOW", 7)
    cell = grid.Cell(mask, "float32", way, 32, 2, 37)
    calls = grid.calls(cell, ["auto", "streaming", "fused"])
    assert [*calls] == ["sdpa", "auto", "streaming", "fused"]
    expected, *found = (call() for call in calls.values())
    for one in found:
        torch.testing.assert_close(one, expected, rtol=1e-4, atol=1e-5)


def test_a_cell_is_measured_by_all_engines_in_turn(grid):
    cell = grid.Cell("causal", "float32", "forward", 32, 2, 37)
    ticks = iter(range(10_000))
    found = grid.measured(cell, ["auto", "streaming"], grid.Care(1e-9), lambda: float(next(ticks)))
    # Each call takes one tick of this clock.
    assert found == {"seconds": 1.0, "auto": 1.0, "streaming": 1.0}
    # Two turns to warm up, and three that count: of three calls, each between two readings.
    assert next(ticks) == 2 * 3 * (2 + 3)


def test_what_misses_a_goal_is_measured_again_and_nothing_else(grid, monkeypatch, tmp_path):
    cells = [grid.Cell("full", "float32", "both", 64, heads, 131) for heads in (4, 1)]
    stored = {cell.key: CELLS[cell.key] for cell in cells}
    found = {"cells": dict(stored)}
    monkeypatch.setattr(grid, "cells", lambda quick: [*cells, grid.Cell(*["full"] * 3, 1, 1, 7)])
    monkeypatch.setattr(grid, "peak", lambda: 1e12)
    exact = {"seconds": 0.02, "auto": 1.01, "streaming": 0.99}
    asked = []

    def measured(cell, engines, care, clock):
        asked.append((cell, care))
        return exact

    monkeypatch.setattr(grid, "measured", measured)
    plain = dict.fromkeys(("masks", "dtypes", "passes", "dims", "heads", "lengths", "minutes"))
    flags = {"plan": False, "busy": False, "quick": False, "missed": True, "seconds": 0.5}
    grid.run(options(grid, **plain, **flags), found, tmp_path / "made.json")
    # Of the three, the first reaches its goals, and the last one is not stored.
    assert asked == [(cells[1], grid.EXACT)]
    assert found["cells"] == {**stored, cells[1].key: exact}
    assert json.loads((tmp_path / "made.json").read_text("utf-8"))["cells"] == found["cells"]


@pytest.mark.parametrize(
    ("turn", "turns"),
    [(0.001, 39), (0.05, 10), (1.0, 3), (5.0, 1)],
    ids=["short", "as many as fit", "the least", "a long one"],
)
def test_a_cell_is_measured_for_a_time_and_for_some_turns(grid, turn, turns):
    assert grid.Care(seconds=0.5, turns=3).chosen(turn) == turns
    assert grid.Care(seconds=2, turns=12).chosen(turn) == 4 * turns


def options(grid, **others):
    given = {"store": ["made", "A processor"], "engines": grid.ENGINES, "again": False}
    return argparse.Namespace(**{"processor": None, **given, **others})


def test_a_run_resumes_what_is_stored(grid, tmp_path):
    file = tmp_path / "grids" / "made.json"
    found = grid.begun(file, options(grid))
    assert found["cells"] == {}
    assert (found["processor"], found["engines"]) == ("A processor", ["auto", "streaming"])
    found["cells"] = CELLS
    grid.write(found, file)
    assert grid.begun(file, options(grid)) == found == json.loads(file.read_text("utf-8"))
    lines = file.read_text("utf-8").splitlines()
    assert sum(": {" in line for line in lines) == len(CELLS) + 1
    assert (
        '  "full/float32/both/64/4/131": {"seconds": 0.01, "auto": 1.03, "streaming": 0.98},'
        in lines
    )
    with pytest.raises(ValueError, match="engines must be .* got .*'auto'].* --again"):
        grid.begun(file, options(grid, engines=["auto"]))
    with pytest.raises(ValueError, match="processor must be 'A processor' .* got 'Another'"):
        grid.begun(file, options(grid, store=["made", "Another"]))
    assert grid.begun(file, options(grid, engines=["auto"], again=True))["cells"] == {}


def test_the_most_telling_cells_come_first(grid):
    every = grid.cells(quick=False)
    assert len({one.key for one in every}) == len(every)
    first = every[0]
    assert (first.dim, first.heads, first.length) == (64, 4, 1024)
    assert [one.round for one in every] == sorted(one.round for one in every)
    # Half of the heads of a row.
    assert all(one.heads % 2 == 0 for one in every if one.mask == "ragged")
