"""The sums behind the cells of the view `steps`: each makes its cell, from those framed."""

import math
import re
from typing import Any
from urllib.parse import urlencode

import pytest

from glasshead.studio.studio import Limits
from glasshead.studio.views.steps import steps_data
from glasshead.studio.views.steps_request import STEPS_NORMALIZERS, StepsRequest

SENTENCE = "I do not like rain"
LARGE = (("softmax", "50"), ("softmax-one", "50"))
LINES = """() => [...document.querySelectorAll(".sum .line")].map((line) => {
  const inside = (node) => [...node.childNodes].map(written).join("");
  const written = (node) => node.nodeName === "SUP" ? `**(${inside(node)})`
    : node.nodeName === "DATA" ? `(${node.value})` : node.nodeName === "#text" ? node.data : "";
  return inside(line);
})"""


def check(lines, left, cell):
    """Each side of each equation is the same number, and `left` stands for the cell."""
    known = {}
    for equation in (each for line in lines for each in line.split(",   ")):
        name, *sides = equation.split(" = ")
        for side in sides:
            number = computed(side, known.get("Σ"))
            if number is not None:
                known.setdefault(name, number)
                assert number == pytest.approx(known[name], rel=1e-9, abs=1e-12), equation
    assert known[left] == pytest.approx(cell, rel=1e-9, abs=1e-12)


def computed(side, total):
    """What a side of an equation is as a number; None where it has only names, or compares."""
    for sign, operator in (("·", "*"), ("−", "-"), ("²", "**2"), ("e**", "E**"), ("/ Σ", "/ T")):
        side = side.replace(sign, operator)
    if re.search(r"[a-zΣ<₀-₉]", side.replace("max(", "").replace("e-", "").replace("e+", "")):
        return None
    return eval(side, {"__builtins__": {}}, {"E": math.e, "T": total, "max": max})


def test_each_sum_makes_its_cell(looking, serving):
    look = looking(serving().url)
    # Powers of large scores are written relative to the largest.
    for normalizer, beta in [*((each, "1") for each in STEPS_NORMALIZERS), *LARGE]:
        chosen: dict[str, Any] = {
            "text": SENTENCE,
            "mask": "window",
            "normalizer": normalizer,
            "beta": beta,
        }
        page = look.open(f"#steps?{urlencode(chosen)}")
        matrices = steps_data(StepsRequest(**chosen), Limits())["matrices"]
        asked = [("scores", 1, 3, "s"), ("scaled", 2, 1, "β·s"), ("context", 3, 2, "c₃")]
        asked += [("weights", 2, column, "p") for column in range(5)]
        for name, row, column, left in asked:
            page.locator(f'[data-cell="{name}.{row}.{column}"]').focus()
            cell = matrices[name][row][column]
            assert float(page.locator(".sum .full").get_attribute("data-value")) == cell
            check(page.evaluate(LINES), left, cell)


def test_a_cell_frames_what_it_is_made_of(looking, serving):
    page = looking(serving().url).open("#steps?mask=causal")
    made = "() => [...document.querySelectorAll('td.made')].map((cell) => cell.dataset.cell).sort()"
    expected = {
        "scores.1.2": [
            f"{name}.{word}.{i}" for name, word in (("keys", 2), ("queries", 1)) for i in range(3)
        ],
        "scaled.2.1": ["scores.2.1"],
        "masked.2.1": ["scaled.2.1"],
        "weights.1.0": [f"masked.1.{key}" for key in range(3)],
        "weights.0.2": ["masked.0.2"],
        "context.1.2": ["values.0.2", "values.1.2", "weights.1.0", "weights.1.1"],
        "values.2.0": ["keys.2.0", "queries.2.0"],
    }
    for cell, cells in expected.items():
        page.locator(f'[data-cell="{cell}"]').hover()
        assert page.evaluate(made) == cells, cell
        assert page.locator("td.at").get_attribute("data-cell") == cell
    page.locator('[data-cell="masked.0.2"]').hover()
    assert "“sun” comes after “Hello”" in page.locator(".sum").inner_text()
    # Where the pointer leaves, the cell of before is shown again.
    page.mouse.move(5, 5)
    assert page.locator("td.at").get_attribute("data-cell") == "weights.1.1"
