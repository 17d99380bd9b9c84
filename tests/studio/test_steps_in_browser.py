"""The view `steps` in a browser: its numbers, its sums, its controls, by mouse and by keyboard.

The sums behind the cells of the view `steps`: each makes its cell, from those framed.
The walk through the views that docs/reference/studio.md takes, and its pictures.

Models that nobody trained are walked through, and the pictures are thrown away. With the variables
`GLASSHEAD_SHOWN`, a folder with what `SHOWN` names, and `GLASSHEAD_PICTURES`, those are shown, and
the pictures kept: `make pictures` does it.
"""

import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit
from xml.etree import ElementTree as ET

import pytest
import torch
from playwright.sync_api import expect

import glasshead as gh
from glasshead.ladder import JOURNEY
from glasshead.studio.studio import Limits, SentTexts
from glasshead.studio.views.steps import steps_data, steps_words
from glasshead.studio.views.steps_request import STEPS_NORMALIZERS, StepsRequest
from studio.conftest import LANGUAGES, WIDTHS, address, share, widths_of
from studio.keyboard import reached_by_tab
from studio.pictures.vision_folders import vit_folder
from studio.small_runs import SmallRun
from translated import translated
from written import written

SENTENCE = "I do not like rain"


STEPS = ("queries", "keys", "values", "scores", "scaled", "masked", "weights", "context")


HOSTILE = "<img src=x onerror=alert(1)> \u202eabc\u0000 &amp; <script>"

READ = """() => Object.fromEntries([...document.querySelectorAll("[data-matrix]")].map((table) => [
  table.dataset.matrix,
  [...table.querySelectorAll("td[data-cell]")].map(({ dataset }) => [dataset.cell, dataset.value]),
]))"""


def shown(page):
    """Each matrix on the page: the numbers by word and place."""
    found = {}
    for name, cells in page.evaluate(READ).items():
        rows = {}
        for cell, value in cells:
            _, row, column = cell.split(".")
            number = float(value.replace("Infinity", "inf"))
            rows.setdefault(int(row), {})[int(column)] = None if number == -math.inf else number
        found[name] = [[row[place] for place in sorted(row)] for _, row in sorted(rows.items())]
    return found


def settled(page):
    page.wait_for_selector(".view .body[data-drawn]")


def assert_shows(page, **given):
    settled(page)
    assert shown(page) == steps_data(StepsRequest(**given), Limits())["matrices"]


def told(page):
    return page.locator(".words section h3, .words section > p:not(.note)").all_inner_texts()


def assert_tells(page, lang="en", **given):
    settled(page)
    expected = steps_words(StepsRequest(**given), lang, Limits())
    assert page.locator(".words h2").inner_text() == expected["title"]
    assert [text for step in expected["steps"] for text in step["text"]] == [
        text for text in told(page) if not re.match(r"\d+\. ", text)
    ]


def test_every_cell_is_the_librarys_and_every_control_works(looking, serving):
    look = looking(serving().url)
    page = look.open("#steps")
    assert_shows(page)
    assert_tells(page)

    page.get_by_label("Inverse temperature β").press("ArrowRight")
    assert_shows(page, beta="1.5")
    page.get_by_label("Inverse temperature β").press("End")
    assert_shows(page, beta="inf")
    page.get_by_text("causal", exact=True).click()
    assert_shows(page, beta="inf", mask="causal")
    page.get_by_label("Normalizer").select_option("sigmoid")
    assert_shows(page, beta="50", mask="causal", normalizer="sigmoid")
    page.get_by_label("Inverse temperature β").press("Home")
    assert_shows(page, beta="0.05", mask="causal", normalizer="sigmoid")
    page.get_by_label("3", exact=True).focus()
    page.keyboard.press("Space")
    assert_shows(page, beta="0.05", mask="causal", normalizer="sigmoid", heads=3)
    page.get_by_role("group", name="Head shown").get_by_text("2", exact=True).click()
    given = {"beta": "0.05", "mask": "causal", "normalizer": "sigmoid", "heads": 3, "head": 2}
    assert_shows(page, **given)
    page.get_by_label("Explained word").select_option("2")
    assert_tells(page, **given, query=2)
    # The address opens the same again.
    look.open(address(page).split("/")[-1])
    assert_shows(page, **given)
    assert_tells(page, **given, query=2)
    assert look.violations() == []


@pytest.mark.slow
def test_decimals_are_chosen_on_the_page_and_in_the_address(looking, serving):
    exact = steps_data(StepsRequest(), Limits())["matrices"]["context"][1][0]
    page = looking(serving().url).open("#steps?decimals=7&at=context.1.0")

    def assert_written(decimals):
        settled(page)
        for place in (".sum .line", ".words [data-step=context] pre + pre"):
            assert f"= {exact:.{decimals}f}" in page.locator(place).inner_text()
        cell = page.locator("td[data-cell='context.1.0']").inner_text()
        assert cell == f"{exact:.{min(decimals, 4)}f}"

    assert_written(7)
    for decimals in (1, 5):
        page.get_by_label("Decimals").select_option(str(decimals))
        assert_written(decimals)
        assert f"decimals={decimals}" in address(page)
    page.get_by_label("Decimals").select_option("4")
    settled(page)
    assert "decimals" not in address(page)


@pytest.mark.slow
def test_a_sentence_of_ones_own(looking, serving):
    look = looking(serving().url, expected=("413",))
    page = look.open("#steps?mask=window")
    page.get_by_label("A sentence of your own").fill(SENTENCE)
    page.keyboard.press("Enter")
    page.wait_for_selector("table[data-matrix=queries] tbody tr:nth-child(5)")
    assert_shows(page, text=SENTENCE, mask="window")
    assert_tells(page, text=SENTENCE, mask="window")
    page.locator('[data-cell="scores.1.3"]').click()
    page.locator(".words h2", has_text="“do”").wait_for()
    assert_tells(page, text=SENTENCE, mask="window", query=1)
    assert "at=scores.1.3" in address(page)
    page.get_by_label("A sentence of your own").fill("a " * 30)
    page.get_by_role("button", name="Show").click()
    alert = page.locator(".refused")
    alert.wait_for()
    assert "A sentence must have at most 24 words and marks, got 30" in alert.inner_text()
    assert_shows(page, text=SENTENCE, mask="window")
    page.get_by_role("button", name="Hello shiny sun!").click()
    page.wait_for_selector("table[data-matrix=queries] tbody tr:nth-child(4)", state="detached")
    assert_shows(page, mask="window")
    assert page.locator(".refused").count() == 0


@pytest.mark.slow
def test_a_link_to_a_sentence_that_is_too_long_keeps_all_else(looking, serving):
    look = looking(serving().url, expected=("413",))
    long = "a " * 29 + "a"
    link = f"#steps?beta=5&mask=causal&normalizer=sparsemax&heads=3&query=2&text={quote(long)}"
    page = look.open(link)
    assert "words and marks, got 30" in page.locator(".refused").inner_text()
    assert_shows(page, beta="5", mask="causal", normalizer="sparsemax", heads=3)
    assert page.get_by_label("A sentence of your own").input_value() == long
    assert page.get_by_label("Normalizer").input_value() == "sparsemax"
    held = parse_qs(urlsplit(address(page)).fragment.partition("?")[2])
    assert held["text"] == [long]
    kept = {name: value for name, (value,) in held.items() if name != "text"}
    assert kept.items() >= {"beta": "5", "mask": "causal", "heads": "3", "query": "2"}.items()
    # Shortened, it is shown with the same settings.
    page.get_by_label("A sentence of your own").fill("one two three")
    page.keyboard.press("Enter")
    page.wait_for_selector(".refused", state="detached")
    given = {"beta": "5", "mask": "causal", "normalizer": "sparsemax"}
    assert_shows(page, text="one two three", **given)


@pytest.mark.slow
def test_both_worked_examples_as_each_text_works_them(looking, serving):
    look = looking(serving().url)
    page = look.open("#steps")
    examples = page.get_by_role("group", name="The worked examples")
    texts = page.get_by_label("Tutorial")
    assert examples.get_by_role("button").all_inner_texts() == [JOURNEY.text]
    assert texts.locator("option").evaluate_all("(all) => all.map((one) => one.value)") == [*"ABD"]
    texts.select_option("D")
    page.locator(".words h3", has_text="H = XA").wait_for()
    assert_shows(page, source="D")
    examples.get_by_role("button", name=JOURNEY.text).click()
    page.wait_for_selector("table[data-matrix=queries] tbody tr:nth-child(6)")
    assert_shows(page, text=JOURNEY.text)
    for text in "ABCDE":
        texts.select_option(text)
        settled(page)
        assert_shows(page, text=JOURNEY.text, source=text)
        assert_tells(page, text=JOURNEY.text, source=text)
    assert "source=" not in address(page)
    rows = page.locator(".words .printed tr").all_inner_texts()
    assert "query_2\t[0.3558, 0.5643]\t[0.3558, 0.5643]" in rows
    assert "context_2\t[0.5084, 0.3508]\t[0.5084, 0.3508]" in rows
    assert look.violations() == []
    assert look.overflow() == 0
    assert examples.get_by_role("button").all_inner_texts() == ["Hello shiny sun!"]
    page.get_by_label("A sentence of your own").fill(SENTENCE)
    page.keyboard.press("Enter")
    page.wait_for_selector("table[data-matrix=queries] tbody tr:nth-child(6)", state="detached")
    assert_shows(page, text=SENTENCE)
    assert texts.count() == 0


@pytest.mark.slow
def test_a_projected_number_is_the_embedding_times_a_column(looking, serving):
    look = looking(serving().url)
    look.open("#steps")
    for heads in (1, 2):
        chosen = {"text": JOURNEY.text, "source": "C", "heads": str(heads), "head": str(heads - 1)}
        page = look.go(f"#steps?{urlencode(chosen)}")
        request = StepsRequest(**{**chosen, "heads": heads, "head": heads - 1})
        matrices = steps_data(request, Limits())["matrices"]
        for name, row, column in (("queries", 1, 2 - heads), ("keys", 4, 0), ("values", 5, 0)):
            ((_, (line,)),) = page.evaluate(SUMS, [f"{name}.{row}.{column}"])
            left = f"{name[0]}{'₁₂'[column]}({JOURNEY.tokens[row]})"
            check([line], left, matrices[name][row][column])
            assert line.count("·") == 3
            assert f"column {column + heads} of the matrix" in page.locator(".sum").inner_text()


@pytest.mark.slow
def test_the_keyboard_alone_can_do_all(looking, serving):
    look = looking(serving().url)
    page = look.open("#steps?mask=causal&heads=3&idle=1")
    page.keyboard.press("Tab")
    name = """() => {
      const { dataset, labels, textContent } = document.activeElement;
      return dataset.cell ?? labels?.[0]?.textContent ?? textContent.slice(0, 20);
    }"""
    met = set(reached_by_tab(page, name))
    for control in (
        "Inverse temperature β",
        "causal",
        "Normalizer",
        "A sentence",
        "Explained word",
        "Show",
    ):
        assert any(control in each for each in met), control
    cells = {each.split(".")[0] for each in met if re.fullmatch(r"\w+\.\d\.\d", each)}
    assert cells == set(STEPS)

    focused = "() => document.activeElement.dataset.cell"
    page.locator('[data-cell="weights.1.1"]').focus()
    walked = []
    for key in (
        "ArrowUp",
        "ArrowUp",
        "ArrowRight",
        "ArrowRight",
        "ArrowDown",
        "Home",
        "PageDown",
        "End",
    ):
        page.keyboard.press(key)
        walked.append(page.evaluate(focused).removeprefix("weights."))
    assert walked == ["0.1", "0.1", "0.2", "0.2", "1.2", "1.0", "2.0", "2.2"]
    page.keyboard.press("Enter")
    page.locator(".words h2", has_text="“sun”").wait_for()
    assert_tells(page, mask="causal", heads=3, query=2)
    assert page.evaluate(focused) == "weights.2.2"
    # Keys are drawn a word a column: down is the next number of the same word.
    page.locator('[data-cell="keys.1.0"]').focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate(focused) == "keys.2.0"


@pytest.mark.slow
def test_a_moving_slider_keeps_cells_and_focus(looking, serving):
    page = looking(serving().url).open("#steps")
    page.evaluate("() => { window.kept = document.querySelector('[data-cell=\"weights.1.1\"]'); }")
    slider = page.get_by_label("Inverse temperature β")
    for _ in range(9):
        slider.press("ArrowRight")
    assert_shows(page, beta="inf")
    assert page.evaluate("() => window.kept.isConnected && window.kept.dataset.value === '1'")
    assert page.evaluate("() => document.activeElement.type") == "range"


@pytest.mark.slow
def test_what_is_out_of_sight_is_drawn_when_a_slider_is_released(looking, serving):
    text = " ".join(f"word{place}" for place in range(19))
    page = looking(serving().url, height=701).open(f"#steps?text={quote(text)}")
    slider = page.get_by_label("Inverse temperature β")
    slider.scroll_into_view_if_needed()
    cell = page.locator("[data-cell='weights.1.1']")
    before = cell.get_attribute("data-value")
    box = slider.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 2, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] + 7, middle, steps=3)
    page.wait_for_url("**beta=inf**")
    page.wait_for_selector(".body[data-drawn]")
    expect(cell).not_to_be_in_viewport()
    assert cell.get_attribute("data-value") == before
    page.mouse.up()
    assert_shows(page, text=text, beta="inf")
    assert_tells(page, text=text, beta="inf")


@pytest.mark.slow
def test_a_dragged_slider_asks_for_one_thing_at_a_time(looking, serving):
    page = looking(serving().url).open("#steps")
    # Counted where the page itself asks: what the browser reports arrives in no such order.
    page.evaluate(
        """() => {
          const ask = window.fetch;
          let under = 0;
          window.atOnce = [];
          window.fetch = async (...asked) => {
            window.atOnce.push((under += 1));
            try {
              return await ask(...asked);
            } finally {
              under -= 1;
            }
          };
        }"""
    )
    page.get_by_label("Inverse temperature β").evaluate(
        """async (slider) => {
          for (let stop = 0; stop <= slider.max; stop += 1) {
            slider.value = stop;
            slider.dispatchEvent(new Event("input", { bubbles: true }));
            await new Promise(requestAnimationFrame);
          }
        }"""
    )
    assert_shows(page, beta="inf")
    assert_tells(page, beta="inf")
    page.wait_for_url("**beta=inf**")
    assert set(page.evaluate("() => window.atOnce")) == {1}


@pytest.mark.slow
def test_all_matrices_have_one_answer_where_the_studio_is_lost_in_a_drag(looking, serving):
    text = " ".join(f"word{place}" for place in range(24))
    look = looking(serving().url, height=700, expected=("Failed to load resource",))
    page = look.open(f"#steps?text={quote(text)}")
    # The first answer comes while another one is wanted, and no other comes.
    page.get_by_label("Inverse temperature β").evaluate(
        """async (slider) => {
          const ask = window.fetch;
          const move = () => {
            slider.value = Number(slider.value) + 1;
            slider.dispatchEvent(new Event("input", { bubbles: true }));
          };
          window.fetch = (...asked) => {
            window.fetch = () => Promise.reject(new TypeError("Failed to fetch"));
            move();
            return ask(...asked);
          };
          move();
        }"""
    )
    expect(page.locator(".notice p")).to_be_visible()
    assert_shows(page, text=text, beta="0.7")


@pytest.mark.slow
def test_it_is_told_and_accessible_in_each_language(looking, serving):
    look = looking(serving().url)
    page = look.open(f"#steps?{urlencode({'text': SENTENCE, 'mask': 'causal', 'frame': 5})}")
    for language in LANGUAGES:
        look.speak(language)
        # Light in English, and dark in Turkish.
        if language == "tr":
            look.paper(dark=True)
        for width in widths_of(language):
            look.resize(width)
            assert look.overflow() == 0, (language, width)
        assert look.violations(contrast=language in ("en", "tr")) == []
        assert_tells(page, language, text=SENTENCE, mask="causal")
        assert not re.search(r"\bsteps\.[a-z]", page.locator("body").inner_text())


@pytest.mark.slow
def test_no_number_is_cut_off_at_any_width(looking, serving):
    look = looking(serving().url)
    look.open("#steps")
    for text in ("Hello shiny sun!", SENTENCE):
        page = look.go(f"#steps?{urlencode({'text': text, 'beta': '20'})}")
        for width in (*WIDTHS, 1024):
            look.resize(width)
            cut = page.locator("td[data-cell] > span").evaluate_all(
                "(all) => all.filter((one) => one.scrollWidth > one.clientWidth)"
                ".map((one) => one.textContent)"
            )
            assert cut == [], width


def test_hostile_words_never_become_markup(looking, serving):
    page = looking(serving().url).open("#steps")
    field = page.get_by_label("A sentence of your own")
    field.fill(HOSTILE)
    page.keyboard.press("Enter")
    page.wait_for_selector("table[data-matrix=queries] tbody tr:nth-child(9)")
    assert_shows(page, text=field.input_value())
    assert page.locator(".view img, .view script").count() == 0
    names = page.locator("table[data-matrix=queries] tbody th").all_inner_texts()
    assert not any(mark in name for name in names for mark in "\u202e\u0000")


@pytest.mark.slow
def test_an_address_that_is_not_to_be_had_is_told_and_left(looking, serving):
    look = looking(serving().url, expected=("400", "422"))
    page = look.open("#steps?heads=2&mask=causal")
    assert (
        "Heads must be a divisor of the vectors' dimension 3 (1, 3), got 2."
        in page.locator(".refused").inner_text()
    )
    assert_shows(page)
    look.open("#steps?at=nothing.9.x&mask=causal")
    assert_shows(page, mask="causal")


@pytest.mark.slow
def test_the_picture_has_every_number(looking, serving, tmp_path):
    page = looking(serving().url).open("#steps?mask=causal&idle=1")
    saved = {}
    for kind in ("SVG", "PNG"):
        with page.expect_download() as download:
            share(page, kind)
        saved[kind] = tmp_path / kind
        download.value.save_as(saved[kind])
    assert saved["PNG"].read_bytes().startswith(b"\x89PNG")
    texts = [each.text or "" for each in ET.parse(saved["SVG"]).iter()]
    cells = page.locator("td[data-cell]").all_inner_texts()
    assert "−∞" in cells
    assert sorted(text for text in texts if text in set(cells)) == sorted(cells)
    # The signs between the matrices, and the legend, are there as well.
    assert [texts.count(sign) for sign in "·=→"] == [2, 2, 3]
    # The bars have the ends of those of the page, below 0 too but for weights.
    begins = [at for at, text in enumerate(texts) if re.search(r": (0|−[0-9.]+)$", text)]
    bars = [texts[at] + next(filter(None, texts[at + 1 :])) for at in begins]
    said = page.locator(".legend .key", has=page.locator(".ramp")).all_inner_texts()
    assert bars == [re.sub(r"\s*\n\s*", "", one) for one in said]
    assert [": −" in one for one in bars] == [True, True, False]
    assert any("hatched: hidden" in text for text in texts)


LARGE = (("softmax", "50"), ("softmax-one", "50"))


# Of each cell that is gone to: its number and the lines of its sum.
SUMS = """(cells) => cells.map((cell) => {
  const inside = (node) => [...node.childNodes].map(written).join("");
  const written = (node) => node.nodeName === "SUP" ? `**(${inside(node)})`
    : node.nodeName === "DATA" ? `(${node.value})` : node.nodeName === "#text" ? node.data : "";
  document.querySelector(`[data-cell="${cell}"]`).focus();
  const number = Number(document.querySelector(".sum .full").dataset.value);
  return [number, [...document.querySelectorAll(".sum .line")].map(inside)];
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


@pytest.mark.slow
def test_each_sum_makes_its_cell(looking, serving):
    look = looking(serving().url)
    look.open("#steps")
    # Powers of large scores are written relative to the largest.
    for normalizer, beta in [*((each, "1") for each in STEPS_NORMALIZERS), *LARGE]:
        chosen: dict[str, Any] = {
            "text": SENTENCE,
            "mask": "window",
            "normalizer": normalizer,
            "beta": beta,
        }
        page = look.go(f"#steps?{urlencode({**chosen, 'idle': 1})}")
        matrices = steps_data(StepsRequest(**chosen), Limits())["matrices"]
        asked = [("scores", 1, 3, "s"), ("scaled", 2, 1, "β·s"), ("context", 3, 2, "c₃")]
        asked += [("weights", 2, column, "p") for column in range(5)]
        sums = page.evaluate(SUMS, [f"{name}.{row}.{column}" for name, row, column, _ in asked])
        for (name, row, column, left), (number, lines) in zip(asked, sums, strict=True):
            assert number == matrices[name][row][column]
            check(lines, left, number)


def test_a_cell_frames_what_it_is_made_of(looking, serving):
    page = looking(serving().url).open("#steps?mask=causal&idle=1")
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


@pytest.mark.parametrize("size", [(1440, 900), (820, 1180), (390, 844)])
@pytest.mark.parametrize("words", [3, 7, 11])
def test_a_sum_covers_none_of_the_first_matrix(looking, serving, size, words):
    text = "+".join(f"w{at}" for at in range(words))
    page = looking(serving().url, width=size[0], height=size[1]).open(f"#steps?text={text}")
    covered = """(scrolled) => {
      scrollTo(0, scrolled);
      const [matrix, sum] = [".way table", ".sum"].map((name) => document.querySelector(name));
      return matrix.getBoundingClientRect().bottom - sum.getBoundingClientRect().top;
    }"""
    # However far the page is scrolled.
    assert max(page.evaluate(covered, scrolled) for scrolled in range(0, 3000, 150)) <= 0


def test_matrices_without_effect_are_folded_with_their_steps(looking, serving):
    page = looking(serving().url).open("#steps")
    names = """[...document.querySelectorAll("[data-matrix]")]
      .filter((table) => table.checkVisibility()).map((table) => table.dataset.matrix)"""
    assert set(page.evaluate(names)) == {*STEPS} - {"scaled", "masked"}
    # What a cell is made of is framed where it is in sight.
    made = "() => [...document.querySelectorAll('td.made')].map((cell) => cell.dataset.cell).sort()"
    page.locator('[data-cell="weights.1.0"]').hover()
    assert page.evaluate(made) == [f"scores.1.{key}" for key in range(3)]
    page.locator(".fold summary").press("Enter")
    page.wait_for_function(f"() => ({names}).length === 8")
    assert "idle=1" in address(page)
    page.locator('[data-cell="weights.1.0"]').hover()
    assert page.evaluate(made) == [f"masked.1.{key}" for key in range(3)]
    # No cell that is folded is the one that is shown.
    page.locator('[data-cell="masked.0.0"]').focus()
    page.locator(".fold summary").click()
    page.wait_for_function(f"() => ({names}).length === 6")
    assert page.locator("td.at").get_attribute("data-cell") == "weights.1.1"
    # An address that names such a cell unfolds it, and a setting that has an effect does too.
    page = looking(serving().url).open("#steps?at=scaled.1.0")
    assert page.locator('[data-cell="scaled.1.0"]').is_visible()
    page = looking(serving().url).open("#steps?mask=causal&beta=2")
    assert set(page.evaluate(names)) == {*STEPS}


STORY = (
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. "
    "One day, she saw a big, red ball. She wanted to play with it, but it was too high."
)


SHOWN = ("translator", "model", "vision", "watched", "book.safetensors")


PROMPT = "text=Once+upon+a+time+Tom+saw+a+big+red+ball.+Tom+saw+the&heads=1.3,0.1&query=12"
HEAD = "layer=4&head=7&query=26"
# The last frame of a walk, which has few enough.
LAST = "frame=99"
# As many heads as the real model has.
HEADS = ("num_layers=5", "num_heads=8")
TOM = "text=Once+upon+a+time+Tom+saw+a+big+red+ball.+Tom+wanted+to+play+with+the"
DARK = {"width": 1440, "dark": True}
# A head with the arcs of another, and the same story of another child.
KEPT = "layer=1&head=3&arcs=4.1"
TIM = STORY.replace("girl named Lily", "boy named Tim").replace("She", "He").replace("she", "he")
MINUS = urlencode({"minus": SentTexts(Limits()).add(TIM), "minussaid": TIM})
COMPARED = f"layer=4&head=1&side=d&{MINUS}"


@dataclass(frozen=True)
class Scene:
    """One picture of the walk.

    Attributes:
        name: Of the picture.
        of: What is shown, one of `SHOWN`.
        view: Which view of it.
        state: What the address says of the view.
        text: What is read, where the view reads something.
        look: Of the browser: width, height, dark, language.
    """

    name: str
    of: str
    view: str
    state: str = ""
    text: str | None = None
    look: dict[str, object] = field(default_factory=dict)


SCENES = (
    Scene("studio_prompt", "model", "prompt", PROMPT, look={"width": 1440}),
    Scene("studio_prompt_dark", "model", "prompt", f"{PROMPT}&without=0.0,1.2", look=DARK),
    Scene("studio_steps", "translator", "steps", LAST, look={"width": 1440}),
    Scene("studio_steps_head", "model", "steps", f"{HEAD}&{LAST}", STORY, {**DARK, "height": 930}),
    Scene("studio_steps_chinese", "translator", "steps", LAST, look={"language": "zh-Hant"}),
    Scene("studio_heads", "model", "heads", KEPT, STORY, {"height": 700}),
    Scene("studio_heads_dark", "model", "heads", COMPARED, STORY, {"dark": True}),
    Scene("studio_alignment", "translator", "alignment", look={"height": 960}),
    Scene("studio_atlas", "book.safetensors", "atlas"),
    Scene("studio_atlas_near", "book.safetensors", "atlas", "zoom=5.6&y=30&x=30&i=30&j=29"),
    Scene("studio_model", "model", "model", f"{TOM}&layer=4&head=3&query=17", look={"width": 1440}),
    Scene("studio_picture", "vision", "picture", "layer=1&head=2&query=150", look={"width": 1440}),
    Scene("studio_training", "watched", "training", "over=steady&log=y", look={"height": 1640}),
)


@pytest.fixture(scope="module")
def shown_in_the_walk(tmp_path_factory) -> Path:
    """The folder with all that is shown."""
    if kept := os.environ.get("GLASSHEAD_SHOWN"):
        return Path(kept)
    folder = tmp_path_factory.mktemp("shown")
    translated(folder / "translator")
    written(folder / "model", "context_length=61", "d_model=24", *HEADS)
    SmallRun(folder / "watched").watch().go(53)
    vit_folder(folder / "vision")
    x = torch.randn(1, 2, 131, 5, generator=torch.Generator().manual_seed(3))
    gh.Attention(mask=gh.causal()).weights(3 * x, x).save(folder / "book.safetensors")
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """Where pictures are put."""
    kept = os.environ.get("GLASSHEAD_PICTURES")
    return Path(kept) if kept else tmp_path_factory.mktemp("pictures")


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_a_picture_is_taken_of_each_view(scene, shown_in_the_walk, pictures, serving, looking):
    served = serving(shown_in_the_walk / scene.of)
    asked = [scene.state] if scene.state else []
    if scene.text is not None:
        asked.append(f"text={served.studio.texts.add(scene.text)}")
    look = looking(served.url, **{"height": 800, **scene.look})
    page = look.open(f"#{scene.view}?{'&'.join(asked)}")
    # Whatever follows the first drawing, such as tiles that are on their way, has come.
    page.wait_for_load_state("networkidle")
    file = pictures / f"{scene.name}.png"
    page.screenshot(path=file)
    assert page.locator(f".view.{scene.view} .refused").count() == 0
    assert file.stat().st_size > 10_000


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_the_stage_is_seen_without_scrolling_and_begins_at_its_first_frame(
    looking, serving, width, height
):
    look = looking(serving().url, width=width)
    look.page.set_viewport_size({"width": width, "height": height})
    page = look.open("#steps")
    stage = page.locator(".walk").bounding_box()
    assert 0 < stage["y"] < stage["y"] + stage["height"] <= height
    assert page.locator(".walk .player output").inner_text().startswith("Frame 1 / ")
    assert page.locator(".controls").first.bounding_box()["y"] >= stage["y"] + stage["height"]
