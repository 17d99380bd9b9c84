"""The cells of the atlas in a browser: their numbers, their colours, their words."""

import json
import math
import xml.etree.ElementTree as ET
from collections import Counter

import pytest
import torch
from playwright.sync_api import expect

import glasshead as gh
from glasshead.drawing.page import hexadecimal, paint
from glasshead.studio.views import atlas as module
from glasshead.tasks.write import Writer
from studio.atlas.atlas_seen import (
    BOTTOM,
    LEFT,
    drawn,
    heading,
    level_of,
    marked,
    said,
    value,
)
from studio.atlas.conftest import CONTEXT, KEYS
from studio.atlas.small_atlases import of_blocks
from studio.conftest import address

SVG = "{http://www.w3.org/2000/svg}"
STORY = "Once upon a time tom saw a big red ball and a dog. " * 9
written_as = module._written


@pytest.mark.parametrize("level", range(3))
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
    ("at", "zoom"), [((1012, 1012), -1.9), ((1012, 0), -0.9), ((0, 0), 3), ((1012, 1011), 6)]
)
def test_the_last_block_is_as_large_as_what_is_left(looking, stored, square, at, zoom):
    page = looking(stored, height=480).open(
        f"#atlas?y={at[0]}&x={at[1]}&zoom={zoom}&i={at[0]}&j={at[1]}"
    )
    level = max(0, math.ceil(-zoom))
    expected = of_blocks(square[0, 0], level)[at[0] >> level, at[1] >> level]
    assert level_of(page) == level
    assert value(page) == pytest.approx(expected.item(), rel=1e-5)


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
        place = min(64, math.floor(P[row, column].item() / 0.1 * 64 + 0.5))
        near = {
            hexadecimal(paint(each, dark=False))
            for each in (max(place - 1, 0), place, min(place + 1, 64))
        }
        assert "#{:02x}{:02x}{:02x}".format(*color) in near
    assert len({tuple(color) for color in found}) > 12


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


def test_every_token_that_is_seen_is_named_beside_its_cell(looking, serving, run, tmp_path):
    page = looking(serving(run).url).open("#atlas")
    page.get_by_text("Choose a text").click()
    page.get_by_label("Text, of any length").fill("a dog saw tom")
    page.get_by_role("button", name="Read").click()
    expect(page.locator(".atlas section.keys")).to_contain_text("dog saw tom")
    drawn(page)
    with page.expect_download() as saved:
        page.get_by_role("button", name="SVG").click()
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
    assert "and has broken JSON: mend or remove it" in page.inner_text(".atlas .part")
    assert (heading(page, "queries"), heading(page, "keys")) == ("Query 600", "Key 560")
    assert value(page) == pytest.approx(square[0, 0, 600, 560].item(), rel=1e-5)
