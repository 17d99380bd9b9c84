"""The page of the atlas in a browser: keyboard, languages, widths, and pictures.

The cells of the atlas in a browser: their numbers, their colours, their words.
The map of the atlas in a browser: what moves it, and what it asks for as it moves.
"""

import json
import math
import re
from collections import Counter
from xml.etree import ElementTree as ET

import pytest
import torch
from playwright.sync_api import expect

import glasshead as gh
from glasshead.drawing.page import hexadecimal, paint
from glasshead.studio.shell import words
from glasshead.studio.views import atlas as module
from glasshead.tasks.write import Writer
from studio.atlas.atlas_seen import (
    BOTTOM,
    LEFT,
    drawn,
    eventually,
    heading,
    level_of,
    marked,
    remembered,
    said,
    state,
    value,
)
from studio.atlas.conftest import KEYS
from studio.atlas.small_atlases import of_blocks
from studio.conftest import CONTEXT, LANGUAGES, address, quickly, share, together
from studio.keyboard import reached_by_tab


def test_it_opens_at_the_key_that_its_query_gives_most(looking, serving, run):
    page = looking(serving(run).url).open("#atlas")
    drawn(page)
    query, key = (int(state(page)[name]) for name in "ij")
    assert key <= query
    # No other can have more: the visible keys share 1.
    assert value(page) >= 1 / (query + 1)


@pytest.mark.slow
def test_a_picture_has_what_is_seen(looking, stored, square, tmp_path):
    page = looking(stored).open("#atlas?y=700&x=300&zoom=4&i=690&j=311")
    with page.expect_download() as saved:
        share(page, "SVG")
    saved.value.save_as(tmp_path / "atlas.svg")
    root = ET.parse(tmp_path / "atlas.svg").getroot()
    said = " ".join(text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text"))
    assert f"{square[0, 0, 690, 311].item():.4f}" in said
    assert "700" in said.split()
    (image,) = root.iter("{http://www.w3.org/2000/svg}image")
    assert image.get("href", "").startswith("data:image/png")
    with page.expect_download() as saved:
        share(page, "PNG")
    saved.value.save_as(tmp_path / "atlas.png")
    assert (tmp_path / "atlas.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    "looks",
    together((False, 390), [(False, 390), (False, 1280), (True, 390), (True, 768), (True, 1920)]),
)
def test_the_page_fits_and_is_accessible(looking, serving, run, looks):
    look = looking(serving(run).url, dark=looks[0][0])
    page = look.open("#atlas")
    for dark, width in looks:
        if dark != page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches"):
            look.paper(dark=dark)
        look.resize(width)
        if not page.locator("textarea").is_visible():
            page.get_by_text("Choose a text").click()
        assert look.overflow() == 0
        assert look.violations(contrast=width == 390) == []


@pytest.mark.slow
def test_all_of_it_is_seen_at_once(looking, serving, run):
    look = looking(serving(run).url)
    page = look.open("#atlas")
    for width, height in ((1280, 800), (1440, 900)):
        look.resize(width, height)
        drawn(page)
        assert look.overflow_below() == 0
        canvas, help_ = (
            page.locator(f".atlas {each}").bounding_box() for each in ("canvas", "p.help")
        )
        assert help_["y"] + help_["height"] <= height
        assert help_["height"] < 30
        # A whole map is a square of this side.
        assert min(canvas["width"], canvas["height"]) > 0.62 * height
        assert canvas["width"] > 0.5 * width


@pytest.mark.parametrize("languages", together("tr", LANGUAGES))
def test_all_is_said_in_each_language(looking, stored, languages):
    look = looking(stored)
    look.open("#atlas")
    for language in languages:
        look.speak(language)
        text = look.page.inner_text("body")
        assert words(language)["atlas.legend"] in text
        assert not re.findall(r"\b(?:atlas|shell)\.\w+", text)
        assert not re.findall(r"\{\w+\}", text)
        assert look.overflow() == 0


@pytest.mark.slow
def test_every_control_is_reached_by_tab(looking, serving, run):
    page = looking(serving(run).url).open("#atlas")
    page.get_by_text("Choose a text").click()
    page.locator("main").focus()
    name = "() => `${document.activeElement.tagName} ${document.activeElement.type ?? ''}`"
    assert set(reached_by_tab(page, name)) >= {
        "SUMMARY ",
        "TEXTAREA textarea",
        "INPUT file",
        "BUTTON submit",
        "SELECT select-one",
        "INPUT radio",
        "INPUT range",
        "BUTTON button",
        "CANVAS ",
    }


SVG = "{http://www.w3.org/2000/svg}"


STORY = "Once upon a time tom saw a big red ball and a dog. " * 9


written_as = module._written


@pytest.mark.parametrize("level", quickly(1, range(3)))
def test_each_number_under_the_cross_hair_is_the_librarys(looking, stored, square, level):
    expected, block = of_blocks(square[0, 1], level), 2**level
    place = f"y=600&x=600&zoom={-level + 0.1}"
    page = looking(stored, height=480).open(f"#atlas?head=1&{place}&i=600&j=560")
    assert level_of(page) == level
    row, column = 600 // block, 560 // block
    canvas = page.locator(".atlas canvas")
    canvas.focus()
    for key in ("", "Right", "Right", "Down", "Left", "Up", "Up"):
        if key:
            canvas.press(f"Shift+Arrow{key}")
        row += {"Down": 1, "Up": -1}.get(key, 0)
        column += {"Right": 1, "Left": -1}.get(key, 0)
        drawn(page)
        assert value(page) == pytest.approx(expected[row, column].item(), rel=1e-5)
        assert heading(page, "keys") == said("Key", column * block, block)
        assert heading(page, "queries") == said("Query", row * block, block)


@pytest.mark.parametrize(
    ("at", "zoom"),
    quickly(
        ((1012, 1012), -1.9),
        [((1012, 1012), -1.9), ((1012, 0), -0.9), ((0, 0), 3), ((1012, 1011), 6)],
    ),
)
def test_the_last_block_is_as_large_as_what_is_left(looking, stored, square, at, zoom):
    page = looking(stored, height=480).open(
        f"#atlas?y={at[0]}&x={at[1]}&zoom={zoom}&i={at[0]}&j={at[1]}"
    )
    level = max(0, math.ceil(-zoom))
    expected = of_blocks(square[0, 0], level)[at[0] >> level, at[1] >> level]
    assert level_of(page) == level
    assert value(page) == pytest.approx(expected.item(), rel=1e-5)


SUNK = """() => getComputedStyle(document.body).getPropertyValue("--sunk").trim()"""


def test_each_cell_has_the_colour_of_its_number(looking, stored, square):
    page = looking(stored).open("#atlas?scale=linear&top=0.1&y=300&x=290&zoom=3.5&i=1012&j=0")
    width, height = page.locator(".atlas canvas").evaluate("c => [c.clientWidth, c.clientHeight]")
    wide, high, zoom = width - LEFT, height - BOTTOM, 2**3.5
    P = square[0, 0]
    # Where an axis or the small map stands over them, cells are passed over.
    cells = [(row, column) for row in range(290, 312) for column in range(270, 305)]
    points = [
        [LEFT + wide / 2 + (column + 0.5 - 290) * zoom, high / 2 + (row + 0.5 - 300) * zoom]
        for row, column in cells
    ]
    found = page.locator(".atlas canvas").evaluate(
        "(c, points) => { const whole = c.getContext('2d').getImageData(0, 0, c.width, c.height);"
        "return points.map(([x, y]) => (Math.floor(y) * c.width + Math.floor(x)) * 4)"
        ".map((at) => [...whole.data.slice(at, at + 3)]); }",
        points,
    )
    for (row, column), color in zip(cells, found, strict=True):
        written = "#{:02x}{:02x}{:02x}".format(*color)
        # A weight of 0 has the first colour, and what the mask hides none of them.
        if column > row:
            assert written == page.evaluate(SUNK)
            continue
        place = min(64, math.floor(P[row, column].item() / 0.1 * 64 + 0.5))
        near = {
            hexadecimal(paint(each, dark=False))
            for each in (max(place - 1, 0), place, min(place + 1, 64))
        }
        assert written in near
    assert len({tuple(color) for color in found}) > 12


# The first column of the canvas that is not all paper.
INKED = """(canvas) => {
  const { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  const paper = data.slice(0, 3).join();
  for (let x = 0; x < width; x += 1) {
    for (let y = 0; y < height; y += 1) {
      const at = (y * width + x) * 4;
      if (data.slice(at, at + 3).join() !== paper) return x;
    }
  }
}"""


def test_rows_are_named_beside_a_map_in_the_middle_of_a_wide_window(looking, stored):
    page = looking(stored, width=1920, height=1080).open("#atlas")
    canvas = page.locator(".atlas canvas")
    width, height = canvas.evaluate("(canvas) => [canvas.clientWidth, canvas.clientHeight]")
    left = LEFT + (width - LEFT - (height - BOTTOM)) / 2
    assert left > 200
    # "1 000", and the space behind it.
    assert left - 60 < canvas.evaluate(INKED) < left - 20


@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_what_the_view_shows_and_the_choice_of_a_text_stand_apart(looking, serving, run, width):
    page = looking(serving(run).url, width=width, height=900).open("#atlas")
    said, chosen = (
        page.locator(each).bounding_box() for each in ("p.what", "details.text summary")
    )
    assert said["y"] + said["height"] <= chosen["y"]


@pytest.mark.slow
def test_a_text_is_shown_along_both_axes(looking, serving, run):
    look = looking(serving(run).url)
    page = look.open("#atlas")
    page.get_by_text("Choose a text").click()
    page.get_by_label("Text, of any length").fill(STORY)
    page.get_by_role("button", name="Read").click()
    writer = Writer.load(run)
    numbers = writer.tokenizer.encode(STORY)
    part = page.locator(".atlas .part")
    expect(part).to_contain_text(f"{CONTEXT} of its {len(numbers)} tokens")
    drawn(page)
    where = "#" + address(page).split("#")[1] + "&layer=1&head=2&y=40&x=30&zoom=4&i=41&j=22"
    page = looking(serving(run).url).open(where)
    with torch.inference_mode(), gh.watch(writer.model, keep="weights") as seen:
        writer.model(torch.tensor([numbers[:CONTEXT]]))
    P = [*seen.values()][1].weights[0, 2]
    assert value(page) == pytest.approx(P[41, 22].item(), rel=1e-5)
    tokens = [writer.tokenizer.token(number) for number in numbers]
    assert (marked(page, "queries"), marked(page, "keys")) == (tokens[41], tokens[22])
    # What is marked begins and ends with its token, and covers no letter beside it.
    for mark in page.locator(".atlas section mark").all():
        boxes = """(mark) => {
          const letters = document.createRange();
          letters.selectNodeContents(mark);
          const [box, own] = [mark, letters].map((each) => each.getClientRects()[0]);
          return [box.left, box.right, own.left, own.right];
        }"""
        left, right, *own = mark.evaluate(boxes)
        assert [left, right] == pytest.approx(own, abs=0.1)


@pytest.mark.slow
def test_every_token_that_is_seen_is_named_beside_its_cell(looking, serving, run, tmp_path):
    page = looking(serving(run).url).open("#atlas")
    page.get_by_text("Choose a text").click()
    page.get_by_label("Text, of any length").fill("a dog saw tom")
    page.get_by_role("button", name="Read").click()
    expect(page.locator(".atlas section.keys")).to_contain_text("dog saw tom")
    drawn(page)
    with page.expect_download() as saved:
        share(page, "SVG")
    saved.value.save_as(tmp_path / "atlas.svg")
    texts = [each.text for each in ET.parse(tmp_path / "atlas.svg").iter(f"{SVG}text")]
    tokenizer = Writer.load(run).tokenizer
    tokens = [tokenizer.token(number) for number in tokenizer.encode("a dog saw tom")]
    assert Counter(texts) >= Counter(2 * [token.strip() or "␣" for token in tokens])


def test_hostile_tokens_are_text(looking, serving, run, monkeypatch):
    hostile = "<img src=x onerror=alert(1)>"
    monkeypatch.setattr(module, "_written", lambda word: hostile + written_as(word + "\u202e\x00"))
    page = looking(serving(run).url).open("#atlas?y=9&x=9&zoom=4&i=9&j=8")
    assert marked(page, "keys").startswith(hostile)
    assert marked(page, "queries").endswith("\\u202e\\x00")
    assert page.locator(".atlas img").count() == 0


@pytest.mark.slow
def test_what_stands_beside_stored_weights_is_shown(looking, serving, square, tmp_path):
    square.head(0, 0).save(tmp_path / "w.safetensors")
    words = [f" w{place}" for place in range(KEYS)]
    words[560] = "<img src=x onerror=alert(1)>\u202e"
    (tmp_path / "w.tokens.json").write_text(json.dumps(words))
    url = serving(tmp_path / "w.safetensors").url
    page = looking(url).open("#atlas?y=600&x=560&zoom=5&i=600&j=560")
    assert marked(page, "queries") == " w600"
    assert marked(page, "keys") == "<img src=x onerror=alert(1)>\\u202e"
    assert page.locator(".atlas img").count() == 0
    (tmp_path / "w.tokens.json").write_text("[")
    page = looking(url).open("#atlas?y=600&x=560&zoom=5&i=600&j=560")
    assert "got broken JSON. Fix or remove it" in page.inner_text(".atlas .part")
    assert (heading(page, "queries"), heading(page, "keys")) == ("Query 600", "Key 560")
    assert value(page) == pytest.approx(square[0, 0, 600, 560].item(), rel=1e-5)


@pytest.mark.parametrize("zoom", [5, -1])
def test_both_axes_have_their_names(looking, serving, square, tmp_path, zoom):
    square.head(0, 0).save(tmp_path / "w.safetensors")
    (tmp_path / "w.tokens.json").write_text(json.dumps([f"w{place}" for place in range(KEYS)]))
    url = serving(tmp_path / "w.safetensors").url
    page = looking(url).open(f"#atlas?y=600&x=560&zoom={zoom}&i=600&j=560")
    with page.expect_download() as saved:
        share(page, "SVG")
    texts = {one.text for one in ET.parse(saved.value.path()).iter() if one.tag.endswith("text")}
    assert {"Query ↑", "Key →"} <= texts
    assert ("w600" in texts) == (zoom == 5)


def test_a_text_on_one_line_begins_with_a_whole_word(looking, serving, square, tmp_path):
    square.head(0, 0).save(tmp_path / "w.safetensors")
    words = [f"w{place}" for place in range(KEYS)]
    (tmp_path / "w.tokens.json").write_text(json.dumps(words))
    url = serving(tmp_path / "w.safetensors").url
    page = looking(url, width=1366, height=768).open("?present#atlas?i=690&j=311")
    strip = page.locator("section.keys p")
    expect(strip).to_contain_text(re.compile("^… w2[0-9]{2} "))
    assert strip.evaluate("(one) => one.scrollLeft") == 0
    box, mark = strip.bounding_box(), strip.locator("mark").bounding_box()
    assert box["x"] < mark["x"] < mark["x"] + mark["width"] < box["x"] + box["width"]


@pytest.mark.slow
def test_keys_and_buttons_move_the_map(looking, stored):
    page = looking(stored).open("#atlas")
    canvas = page.locator(".atlas canvas")
    page.wait_for_function("() => location.hash.includes('i=')")
    assert "zoom" not in state(page)
    page.get_by_role("button", name="Zoom in").click()
    page.wait_for_function("() => location.hash.includes('zoom=')")
    first = state(page)
    canvas.focus()
    for key in ("+", "+", "+"):
        canvas.press(key)
    zoom = float(first["zoom"]) + 1.5
    closer = remembered(page, zoom=pytest.approx(zoom, abs=1e-3))
    canvas.press("ArrowRight")
    canvas.press("ArrowDown")
    step = 80 / 2 ** float(closer["zoom"])
    x, y = (pytest.approx(float(closer[side]) + step, abs=0.1) for side in "xy")
    moved = remembered(page, x=x, y=y)
    # These are left to the page.
    for key in ("End", "PageUp", "PageDown"):
        canvas.press(key)
    assert state(page) == moved
    canvas.press("-")
    page.get_by_role("button", name="Zoom out").click()
    remembered(page, zoom=pytest.approx(zoom - 1.5, abs=1e-3))
    canvas.press("Home")
    remembered(page, zoom=None)


@pytest.mark.slow
def test_pointer_and_wheel_move_the_map(looking, stored, square):
    page = looking(stored).open("#atlas?y=500&x=500&zoom=0.5&i=3&j=2")
    box = page.locator(".atlas canvas").bounding_box()
    middle = box["x"] + LEFT + (box["width"] - LEFT) / 2, box["y"] + (box["height"] - BOTTOM) / 2
    page.mouse.move(middle[0] - 40.5, middle[1] + 60.5)
    drawn(page)
    query, key = (500 + math.floor(60.5 / 2**0.5), 500 + math.floor(-40.5 / 2**0.5))
    assert value(page) == pytest.approx(square[0, 0, query, key].item(), rel=1e-5)
    # A cell that is pointed at is shown, and one that is clicked stays.
    remembered(page, i="3", j="2")
    page.mouse.down()
    page.mouse.up()
    page.mouse.down()
    page.mouse.move(middle[0], middle[1] + 60.5, steps=4)
    page.mouse.up()
    x = pytest.approx(500 - 40.5 / 2**0.5, abs=0.05)
    remembered(page, x=x, i=str(query), j=str(key))
    page.mouse.wheel(0, -250)
    zoomed = remembered(page, zoom=pytest.approx(1.5, abs=1e-3))
    # What was under the pointer is still there.
    at = float(zoomed["y"]) + 60.5 / 2**1.5
    assert at == pytest.approx(500 + 60.5 / 2**0.5, abs=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.03, 0.97])
def test_the_wheel_keeps_the_key_under_it_from_the_whole_map_on(looking, stored, square, share):
    page = looking(stored).open("#atlas")
    box = page.locator(".atlas canvas").bounding_box()
    wide, high = box["width"] - LEFT, box["height"] - BOTTOM
    length = square.shape[-1]
    cell = min(wide, high) / length
    left, up = box["x"] + LEFT + wide / 2, box["y"] + high / 2
    # A browser tells the place of a pointer in whole pixels.
    at = [round(middle + (share - 0.5) * length * cell) for middle in (left, up)]
    page.mouse.click(*at)
    drawn(page)
    column, row = ((at[0] - left) / cell + length / 2, (at[1] - up) / cell + length / 2)
    state = remembered(page, zoom=None)
    assert (int(state["j"]), int(state["i"])) == pytest.approx((column, row), abs=2)
    for _ in range(9):
        page.mouse.wheel(0, -120)
    zoomed = remembered(page, zoom=pytest.approx(math.log2(cell) + 9 * 0.48, abs=0.01))
    big = 2 ** float(zoomed["zoom"])
    key = float(zoomed["x"]) + (at[0] - left) / big
    query = float(zoomed["y"]) + (at[1] - up) / big
    assert (key, query) == pytest.approx((column, row), abs=1)


@pytest.mark.slow
def test_the_wheel_scrolls_the_page_where_the_map_is_seen_whole(looking, stored):
    page = looking(stored, width=390, height=500).open("#atlas")
    box = page.locator(".atlas canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 30)
    page.mouse.wheel(0, 120)
    page.wait_for_function("() => scrollY > 50")
    assert remembered(page, zoom=None)


@pytest.mark.slow
def test_each_control_changes_what_is_seen(looking, stored, square):
    page = looking(stored).open("#atlas?i=700&j=20&y=700&x=100&zoom=1")
    assert value(page) == pytest.approx(square[0, 0, 700, 20].item(), rel=1e-5)
    page.get_by_label("Head").select_option("1")
    drawn(page)
    assert value(page) == pytest.approx(square[0, 1, 700, 20].item(), rel=1e-5)
    remembered(page, head="1")
    legend = page.locator(".atlas .legend .ends")
    assert legend.inner_text().split() == ["≤", "1.0·10⁻⁵", "0.0032", "1.0000"]
    page.get_by_text("linear").click()
    drawn(page)
    # Its top is next above the largest mean weight of the coarsest tile.
    most = of_blocks(square[0, 1], 2).max().item() / 4
    top = next(one for one in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1) if one >= most)
    assert legend.inner_text().split()[2:] == ["≥", f"{top:.4f}"]
    slider = page.get_by_label("Top of the color scale")
    slider.focus()
    slider.press("Home")
    drawn(page)
    assert legend.inner_text().split() == ["0", "0.5000", "1.0000"]
    remembered(page, scale="linear")
    assert value(page) == pytest.approx(square[0, 1, 700, 20].item(), rel=1e-5)


@pytest.mark.slow
def test_the_address_opens_the_same_again(looking, stored):
    place = "#atlas?head=1&y=700&x=300&zoom=2.25&i=690&j=311&scale=linear&top=0.2"
    page = looking(stored).open(place)
    first = remembered(page, layer="0"), value(page), page.locator(".atlas .legend").inner_text()
    again = looking(stored).open("#" + address(page).split("#")[1])
    assert (state(again), value(again), again.locator(".atlas .legend").inner_text()) == first
    assert first[0]["zoom"] == "2.25"


@pytest.mark.slow
def test_what_leaves_the_view_is_no_longer_asked_for(looking, stored):
    look = looking(stored)
    page, left = look.page, []
    held = []

    def hold(route):
        held.append(route)

    def gone(asked):
        if "level=0" in asked.url:
            left.append((asked.url, asked.failure))

    look.on("requestfailed", gone)

    look.open("#atlas")
    page.route(re.compile("level=0"), hold)
    page.locator(".atlas canvas").focus()
    for _ in range(4):
        page.keyboard.press("+")
    # A map that rests asks for four at once; all are waited for as long as it rests.
    assert eventually(page, lambda: len(held) >= 4)
    assert not left
    page.keyboard.press("Home")
    assert eventually(page, lambda: len(left) == len(held))
    assert len(held) <= 5
    assert all("ABORTED" in why for _, why in left)
    drawn(page)
    for route in held:
        route.abort()


def without_overviews(page):
    """Let the page think that no overview was made yet, whatever other pages have asked for."""

    def told(route):
        route.fulfill(json={**route.fetch().json(), "ready": False})

    page.route(re.compile("atlas/map"), told)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["overview", "tile"])
def test_what_is_refused_for_now_is_asked_for_again(looking, stored, square, what):
    look = looking(stored, expected=("429",))
    refused = []

    def refuse(route):
        if len(refused) < 2:
            refused.append(route.request.url)
            route.fulfill(status=429, json={"detail": "2 pieces of work are under way."})
        else:
            route.fallback()

    without_overviews(look.page)
    look.page.route(re.compile(f"atlas/{what}"), refuse)
    page = look.open("#atlas?i=700&j=20&y=700&x=100&zoom=1")
    assert len(refused) == 2
    assert value(page) == pytest.approx(square[0, 0, 700, 20].item(), rel=1e-5)
    assert page.locator(".refused").count() == 0


@pytest.mark.slow
def test_one_overview_is_made_at_a_time(looking, stored):
    look = looking(stored)
    page, held, left = look.page, [], []
    look.on("requestfailed", lambda asked: left.append(asked.url))

    def hold(route):
        held.append(route)

    page.route(re.compile("atlas/overview.*head=0"), hold)
    without_overviews(page)
    page.goto(f"{stored}#atlas")
    page.wait_for_selector(".atlas .surveying progress")
    page.get_by_label("Head").select_option("1")
    drawn(page)
    assert eventually(page, lambda: bool(left))
    assert len(held) == 1
    assert held[0].request.url in left
    held[0].abort()
