"""The view `atlas` in a browser: each number is the library's, whatever moves the map."""

import json
import math
import re
from xml.etree import ElementTree as ET

import pytest
import torch

import glasshead as gh
from glasshead.drawing.colors import hexadecimal, paint
from glasshead.studio.views import atlas as module
from glasshead.studio.words.atlas import WORDS
from glasshead.tasks.write import Writer
from written import written

from .conftest import LANGUAGES, WIDTHS

LENGTH, HEADS = 1013, 2
LEFT, BOTTOM = 92, 54
STORY = "Once upon a time tom saw a big red ball and a dog. " * 9
CONTEXT = 149
written_as = module._written


@pytest.fixture(scope="module")
def weights():
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, HEADS, LENGTH, 7).unbind()
    return gh.Attention(mask=gh.causal()).weights(query, key)


@pytest.fixture(scope="module")
def stored(weights, tmp_path_factory, serving):
    file = tmp_path_factory.mktemp("stored") / "weights.safetensors"
    weights.save(file)
    return serving(file).url


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return written(tmp_path_factory.mktemp("runs") / "run", f"context_length={CONTEXT}").path


def by_blocks(P, level):
    """What a map of blocks of 2^level is by definition."""
    keys = torch.stack([part.double().sum(-1) for part in P.split(2**level, -1)], -1)
    return torch.stack([part.mean(-2) for part in keys.split(2**level, -2)], -2)


def drawn(page):
    page.wait_for_timeout(30)
    page.wait_for_selector(".atlas .body[data-drawn]", timeout=20_000)


def value(page):
    return float(page.locator(".atlas output[data-value]").get_attribute("data-value"))


def level_of(page):
    return int(page.locator(".atlas output[data-value]").get_attribute("data-level"))


def state(page):
    """What the address holds, once it was written there."""
    page.wait_for_timeout(400)
    return dict(re.findall(r"(\w+)=([^&]*)", page.evaluate("location.hash")))


def heading(page, side):
    return page.locator(f".atlas section.{side} h2").text_content().replace("\u2009", "")


def said(name, start, length):
    """How a range of keys, or of queries, is headed."""
    one, more = {"Key": ("Key", "Keys"), "Query": ("Query", "Queries")}[name]
    return f"{one} {start}" if length == 1 else f"{more} {start} to {start + length - 1}"


def marked(page, side):
    return page.locator(f".atlas section.{side} mark").text_content()


@pytest.mark.parametrize("level", range(3))
def test_each_number_under_the_cross_hair_is_the_librarys(looking, stored, weights, level):
    expected, block = by_blocks(weights[0, 1], level), 2**level
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
    ("at", "zoom"), [((1012, 1012), -1.9), ((1012, 0), -0.9), ((0, 0), 3), ((1012, 1011), 6)]
)
def test_the_last_block_is_as_large_as_what_is_left(looking, stored, weights, at, zoom):
    page = looking(stored, height=480).open(
        f"#atlas?y={at[0]}&x={at[1]}&zoom={zoom}&i={at[0]}&j={at[1]}"
    )
    level = max(0, math.ceil(-zoom))
    expected = by_blocks(weights[0, 0], level)[at[0] >> level, at[1] >> level]
    assert level_of(page) == level
    assert value(page) == pytest.approx(expected.item(), rel=1e-5)


def test_each_cell_has_the_colour_of_its_number(looking, stored, weights):
    page = looking(stored).open("#atlas?scale=linear&top=0.1&y=300&x=290&zoom=3.5&i=1012&j=0")
    width, height = page.locator(".atlas canvas").evaluate("c => [c.clientWidth, c.clientHeight]")
    wide, high, zoom = width - LEFT, height - BOTTOM, 2**3.5
    P = weights[0, 0]
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
        place = min(64, math.floor(P[row, column].item() / 0.1 * 64 + 0.5))
        near = {
            hexadecimal(paint(each, dark=False))
            for each in (max(place - 1, 0), place, min(place + 1, 64))
        }
        assert "#{:02x}{:02x}{:02x}".format(*color) in near
    assert len({tuple(color) for color in found}) > 12


def test_keys_and_buttons_move_the_map(looking, stored):
    page = looking(stored).open("#atlas")
    canvas = page.locator(".atlas canvas")
    assert "zoom" not in state(page)
    page.get_by_role("button", name="Closer").click()
    drawn(page)
    first = state(page)
    canvas.focus()
    for key in ("+", "+", "+"):
        canvas.press(key)
    closer = state(page)
    assert float(closer["zoom"]) == pytest.approx(float(first["zoom"]) + 1.5, abs=1e-3)
    canvas.press("ArrowRight")
    canvas.press("ArrowDown")
    moved = state(page)
    step = 80 / 2 ** float(closer["zoom"])
    assert float(moved["x"]) == pytest.approx(float(closer["x"]) + step, abs=0.1)
    assert float(moved["y"]) == pytest.approx(float(closer["y"]) + step, abs=0.1)
    canvas.press("-")
    page.get_by_role("button", name="Further away").click()
    assert float(state(page)["zoom"]) == pytest.approx(float(closer["zoom"]) - 1.5, abs=1e-3)
    canvas.press("Home")
    assert "zoom" not in state(page)


def test_pointer_and_wheel_move_the_map(looking, stored, weights):
    page = looking(stored).open("#atlas?y=500&x=500&zoom=0.5&i=3&j=2")
    box = page.locator(".atlas canvas").bounding_box()
    middle = box["x"] + LEFT + (box["width"] - LEFT) / 2, box["y"] + (box["height"] - BOTTOM) / 2
    page.mouse.move(middle[0] - 40.5, middle[1] + 60.5)
    drawn(page)
    query, key = (500 + math.floor(60.5 / 2**0.5), 500 + math.floor(-40.5 / 2**0.5))
    assert value(page) == pytest.approx(weights[0, 0, query, key].item(), rel=1e-5)
    page.mouse.down()
    page.mouse.move(middle[0], middle[1] + 60.5, steps=4)
    page.mouse.up()
    panned = state(page)
    assert float(panned["x"]) == pytest.approx(500 - 40.5 / 2**0.5, abs=0.05)
    assert (panned["i"], panned["j"]) == (str(query), str(key))
    page.mouse.wheel(0, -250)
    zoomed = state(page)
    assert float(zoomed["zoom"]) == pytest.approx(1.5, abs=1e-3)
    # What was under the pointer is still there.
    at = float(zoomed["y"]) + 60.5 / 2**1.5
    assert at == pytest.approx(500 + 60.5 / 2**0.5, abs=0.5)


def test_each_control_changes_what_is_seen(looking, stored, weights):
    page = looking(stored).open("#atlas?i=700&j=20&y=700&x=100&zoom=1")
    assert value(page) == pytest.approx(weights[0, 0, 700, 20].item(), rel=1e-5)
    page.get_by_label("Head").select_option("1")
    drawn(page)
    assert value(page) == pytest.approx(weights[0, 1, 700, 20].item(), rel=1e-5)
    assert state(page)["head"] == "1"
    legend = page.locator(".atlas .legend .ends")
    assert legend.inner_text().split() == ["1.0·10⁻⁵", "0.0032", "1.0000"]
    page.get_by_text("linear").click()
    drawn(page)
    # Its top is next above the largest mean weight of the coarsest tile.
    most = by_blocks(weights[0, 1], 2).max().item() / 4
    top = next(one for one in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1) if one >= most)
    assert legend.inner_text().split()[2] == f"{top:.4f}"
    slider = page.get_by_label("Darkest from")
    slider.focus()
    slider.press("Home")
    drawn(page)
    assert legend.inner_text().split() == ["0", "0.5000", "1.0000"]
    assert state(page)["scale"] == "linear"
    assert value(page) == pytest.approx(weights[0, 1, 700, 20].item(), rel=1e-5)


def test_the_address_opens_the_same_again(looking, stored):
    place = "#atlas?head=1&y=700&x=300&zoom=2.25&i=690&j=311&scale=linear&top=0.2"
    page = looking(stored).open(place)
    first = state(page), value(page), page.locator(".atlas .legend").inner_text()
    again = looking(stored).open(page.evaluate("location.hash"))
    assert (state(again), value(again), again.locator(".atlas .legend").inner_text()) == first
    assert first[0]["zoom"] == "2.25"


def test_what_leaves_the_view_is_no_longer_asked_for(looking, stored):
    look = looking(stored)
    page, left = look.page, []
    held = []

    def hold(route):
        held.append(route)

    def gone(asked):
        if "level=0" in asked.url:
            left.append((asked.url, asked.failure))

    page.on("requestfailed", gone)

    look.open("#atlas")
    page.route(re.compile("level=0"), hold)
    page.locator(".atlas canvas").focus()
    for _ in range(4):
        page.keyboard.press("+")
    page.wait_for_timeout(400)
    assert held
    assert not left
    page.keyboard.press("Home")
    page.wait_for_timeout(400)
    assert len(left) == len(held) <= 5
    assert all("ABORTED" in why for _, why in left)
    drawn(page)
    for route in held:
        route.abort()


def test_a_text_is_shown_along_both_axes(looking, serving, run):
    look = looking(serving(run).url)
    page = look.open("#atlas")
    page.get_by_text("Choose a text").click()
    page.get_by_label("Text, of any length").fill(STORY)
    page.get_by_role("button", name="Read").click()
    page.wait_for_timeout(200)
    drawn(page)
    writer = Writer.load(run)
    numbers = writer.tokenizer.encode(STORY)
    assert f"{CONTEXT} of the text's {len(numbers)} tokens" in page.inner_text(".atlas")
    where = page.evaluate("location.hash") + "&layer=1&head=2&y=40&x=30&zoom=4&i=41&j=22"
    page = looking(serving(run).url).open(where)
    with torch.inference_mode(), gh.watch(writer.model, keep="weights") as seen:
        writer.model(torch.tensor([numbers[:CONTEXT]]))
    P = [*seen.values()][1].weights[0, 2]
    assert value(page) == pytest.approx(P[41, 22].item(), rel=1e-5)
    tokens = [writer.tokenizer.token(number) for number in numbers]
    assert (marked(page, "queries"), marked(page, "keys")) == (tokens[41], tokens[22])


def test_hostile_tokens_are_text(looking, serving, run, monkeypatch):
    hostile = "<img src=x onerror=alert(1)>"
    monkeypatch.setattr(module, "_written", lambda word: hostile + written_as(word + "\u202e\x00"))
    page = looking(serving(run).url).open("#atlas?y=9&x=9&zoom=4&i=9&j=8")
    assert marked(page, "keys").startswith(hostile)
    assert marked(page, "queries").endswith("\\u202e\\x00")
    assert page.locator(".atlas img").count() == 0


def test_a_picture_has_what_is_seen(looking, stored, weights, tmp_path):
    page = looking(stored).open("#atlas?y=700&x=300&zoom=4&i=690&j=311")
    with page.expect_download() as saved:
        page.get_by_role("button", name="SVG").click()
    saved.value.save_as(tmp_path / "atlas.svg")
    root = ET.parse(tmp_path / "atlas.svg").getroot()
    said = " ".join(text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text"))
    assert f"{weights[0, 0, 690, 311].item():.4f}" in said
    assert "700" in said.split()
    (image,) = root.iter("{http://www.w3.org/2000/svg}image")
    assert image.get("href", "").startswith("data:image/png")
    with page.expect_download() as saved:
        page.get_by_role("button", name="PNG").click()
    saved.value.save_as(tmp_path / "atlas.png")
    assert (tmp_path / "atlas.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("dark", "width"), [*zip([False, True] * 2, WIDTHS, strict=True), (True, 390)]
)
def test_the_page_fits_and_is_accessible(looking, serving, run, dark, width):
    look = looking(serving(run).url, width=width, dark=dark)
    page = look.open("#atlas")
    page.get_by_text("Choose a text").click()
    assert look.overflow() == 0
    assert look.violations() == []


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (1440, 900)])
def test_all_of_it_is_seen_at_once(looking, serving, run, width, height):
    page = looking(serving(run).url, width=width, height=height).open("#atlas")
    page.wait_for_timeout(100)
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
    canvas, help_ = (page.locator(f".atlas {each}").bounding_box() for each in ("canvas", "p.help"))
    assert help_["y"] + help_["height"] <= height
    assert help_["height"] < 30
    assert canvas["width"] * canvas["height"] > 0.45 * width * height


def test_what_stands_beside_stored_weights_is_shown(looking, serving, weights, tmp_path):
    weights.head(0, 0).save(tmp_path / "w.safetensors")
    words = [f" w{place}" for place in range(LENGTH)]
    words[560] = "<img src=x onerror=alert(1)>\u202e"
    (tmp_path / "w.tokens.json").write_text(json.dumps(words))
    url = serving(tmp_path / "w.safetensors").url
    page = looking(url).open("#atlas?y=600&x=560&zoom=5&i=600&j=560")
    assert marked(page, "queries") == " w600"
    assert marked(page, "keys") == "<img src=x onerror=alert(1)>\\u202e"
    assert page.locator(".atlas img").count() == 0
    (tmp_path / "w.tokens.json").write_text("[")
    page = looking(url).open("#atlas?y=600&x=560&zoom=5&i=600&j=560")
    assert "and has broken JSON: mend or remove it" in page.inner_text(".atlas .part")
    assert (heading(page, "queries"), heading(page, "keys")) == ("Query 600", "Key 560")
    assert value(page) == pytest.approx(weights[0, 0, 600, 560].item(), rel=1e-5)


def without_overviews(page):
    """Let the page think that no overview was made yet, whatever other pages have asked for."""

    def told(route):
        route.fulfill(json={**route.fetch().json(), "ready": False})

    page.route(re.compile("atlas/map"), told)


@pytest.mark.parametrize("what", ["overview", "tile"])
def test_what_is_refused_for_now_is_asked_for_again(looking, stored, weights, what):
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
    assert value(page) == pytest.approx(weights[0, 0, 700, 20].item(), rel=1e-5)
    assert page.locator(".refused").count() == 0


def test_one_overview_is_made_at_a_time(looking, stored):
    look = looking(stored)
    page, held, left = look.page, [], []
    page.on("requestfailed", lambda asked: left.append(asked.url))

    def hold(route):
        held.append(route)

    page.route(re.compile("atlas/overview.*head=0"), hold)
    without_overviews(page)
    page.goto(f"{stored}#atlas")
    page.wait_for_selector(".atlas .surveying progress")
    page.get_by_label("Head").select_option("1")
    drawn(page)
    assert len(held) == 1
    assert held[0].request.url in left
    held[0].abort()


@pytest.mark.parametrize("language", LANGUAGES)
def test_all_is_said_in_each_language(looking, stored, language):
    look = looking(stored, language=language)
    page = look.open("#atlas")
    assert not re.findall(r"\b(?:atlas|shell)\.\w+", page.inner_text("body"))
    assert not re.findall(r"\{\w+\}", page.inner_text("body"))
    assert look.overflow() == 0
    assert WORDS.keys() >= set(re.findall(r"atlas\.\w+", page.inner_text("body")))


def test_every_control_is_reached_by_tab(looking, serving, run):
    page = looking(serving(run).url).open("#atlas")
    page.get_by_text("Choose a text").click()
    page.locator("main").focus()
    reached = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "document.activeElement.tagName + ' ' + (document.activeElement.type ?? '')"
            )
        )
    assert reached >= {
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
