"""The head that is open, in a browser: its numbers, its colours, its bars, its text."""

import re

import pytest
import torch

from glasshead.studio.views import heads
from studio.conftest import address
from studio.heads.heads_seen import COLORS, OPEN, TEXT, close, colors, place_of

# Walks with the cross-hair through all cells, and gathers what is read there.
WALK = """(count) => {
  const canvas = document.querySelector(".map canvas");
  const press = (key) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  const read = (row) => Number(document.querySelector(`[data-row="${row}"]`).dataset.value);
  for (let at = 0; at < 2 * count; at += 1) press("PageUp");
  const cells = [];
  for (let query = 0; query < count; query += 1) {
    press("Home");
    for (let key = 0; key < count; key += 1) {
      cells.push(["query", "key", "weight", "rank", "entropy", "distance", "received"].map(read));
      press("ArrowRight");
    }
    press("ArrowDown");
  }
  return cells;
}"""


def test_under_the_cross_hair_stand_the_librarys_numbers_cell_by_cell(opened, reading):
    length = reading.length
    P, (entropy, distance, received) = heads.whole_map(reading, 1, 2), heads.along(reading, 1, 2)
    found = opened.page.evaluate(WALK, length)
    assert len(found) == length**2
    for *place, weight, rank, entropy_, distance_, received_ in found:
        query, key = map(int, place)
        assert weight == P[query, key].item()
        assert rank == (1 + (P[query] > P[query, key]).sum().item() if weight else 0)
        assert entropy_ == entropy[query].item()
        assert distance_ == distance[query].item()
        assert received_ == received[key].item()
    assert {tuple(map(int, cell[:2])) for cell in found} == {
        (query, key) for query in range(length) for key in range(length)
    }
    told = heads.summary(reading)
    for role, scores in told["scores"].items():
        value = opened.page.locator(f'[data-score="{role}"]').get_attribute("data-value")
        assert (float(value) if value else None) == scores[1][2]


@pytest.mark.parametrize(
    ("state", "chosen"),
    [
        ("", {}),
        ("&scale=log", {"logarithmic": True}),
        ("&sink=off", {"skip": 1}),
        ("&scale=log&sink=off", {"logarithmic": True, "skip": 1}),
    ],
)
def test_cells_have_the_colours_of_their_weights(looking, place, reading, state, chosen):
    url, view = place
    page = looking(url).open(view + OPEN + state)
    P, length = heads.whole_map(reading, 1, 2), reading.length
    canvas = page.locator(".map canvas")
    cell = float(canvas.get_attribute("data-cell"))
    skip = chosen.get("skip", 0)
    places = [
        [(key + 0.3) * cell, (query + 0.3) * cell]
        for query in range(length)
        for key in range(skip, length)
    ]
    found = canvas.evaluate(COLORS, places)
    assert all(map(close, found, [color for row in colors(P, **chosen) for color in row]))
    if skip:
        (grey,) = canvas.evaluate(COLORS, [[0.3 * cell, (length - 0.7) * cell]])
        rule = page.evaluate("getComputedStyle(document.body).getPropertyValue('--rule').trim()")
        assert close(grey, rule)
    top_weight = float(page.locator(".one p.key [data-value]").get_attribute("data-value"))
    assert top_weight == P[:, skip:].max().item()


def test_controls_change_colours_and_the_address_and_no_number(opened, reading):
    page = opened.page
    picture = """
      [".map canvas", ".small canvas"].map((one) => document.querySelector(one).toDataURL()).join()
    """
    seen = [page.evaluate(picture)]
    weight = page.locator('[data-row="weight"]').get_attribute("data-value")
    for control, state in (
        ("logarithmic", "scale=log"),
        ("With the first token", "sink=off"),
    ):
        page.get_by_text(control, exact=True).click()
        assert state in address(page)
        seen.append(page.evaluate(picture))
        assert page.locator('[data-row="weight"]').get_attribute("data-value") == weight
    assert len(set(seen)) == 3
    assert float(weight) == heads.whole_map(reading, 1, 2)[5, 3].item()


def test_a_token_that_is_pointed_at_becomes_the_query_and_shades_the_text(opened, reading):
    page = opened.page
    tokens = page.locator(".tokens span")
    assert tokens.count() == reading.length
    tokens.nth(7).hover()
    assert page.locator('[data-row="query"]').get_attribute("data-value") == "7"
    assert page.locator('[data-row="key"]').get_attribute("data-value") == "3"
    row = heads.whole_map(reading, 1, 2)[7]
    for key in range(reading.length):
        expected = f"w{place_of(row[key].item(), row.max().item(), False)}" if row[key] else ""
        names = (tokens.nth(key).get_attribute("class") or "").split()
        assert [name for name in names if name not in ("asks", "asked")] == expected.split()
    assert "asks" in tokens.nth(7).get_attribute("class")
    assert "".join(tokens.all_text_contents()) == TEXT


def test_the_address_opens_the_same_again(opened, looking, place):
    page = opened.page
    page.get_by_text("logarithmic", exact=True).click()
    page.locator(".map canvas").focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_url("**query=6**")
    other = looking(place[0])
    again = other.open("#" + address(page).split("#")[1])
    assert again.locator(".one .head h2").inner_text() == page.locator(".one .head h2").inner_text()
    for row in ("query", "key", "weight", "rank", "entropy", "distance", "received"):
        cell = f'[data-row="{row}"]'
        assert again.locator(cell).inner_text() == page.locator(cell).inner_text()
    assert again.locator("textarea").input_value() == TEXT
    assert again.get_by_label("logarithmic").is_checked()


def test_bars_along_the_axes_are_as_long_as_their_numbers(opened, reading):
    along = heads.along(reading, 1, 2)
    paths = opened.page.locator(".map path").evaluate_all(
        "(paths) => paths.map((path) => path.getAttribute('d'))"
    )
    assert len(paths) == 3
    for path, numbers in zip(paths, along, strict=True):
        long = torch.tensor([float(one) for one in re.findall(r"[hv]([\d.e-]+)", path)])
        torch.testing.assert_close(long / long.max(), numbers / numbers.max(), rtol=1e-5, atol=1e-6)
