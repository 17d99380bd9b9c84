"""The page of the heads in a browser: keyboard, texts, languages, widths, and pictures."""

import json
import re
import struct
from xml.etree import ElementTree as ET

import pytest
from playwright.sync_api import expect

from glasshead.studio.strings import words
from studio.conftest import LANGUAGES, WIDTHS, address
from studio.heads.heads_seen import (
    HEADS,
    LAYERS,
    OPEN,
    small,
)
from studio.keyboard import reached_by_tab


def test_all_can_be_done_by_keyboard(looking, place, reading):
    url, view = place
    page = looking(url).open(view)
    page.locator("summary").focus()
    page.keyboard.press("Enter")
    name = "() => document.activeElement.type || document.activeElement.className"
    reached = reached_by_tab(page, name, times=8)
    assert reached[:3] == ["textarea", "submit", "file"]
    assert reached[3:] == ["radio", "checkbox", "scroll", "button", ""]
    page.keyboard.press("Shift+Tab")
    for _ in range(3):
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    expect(small(page, 1, 1)).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator(".one .head h2")).to_contain_text("Layer 1, head 2")
    expect(small(page, 1, 2)).to_have_attribute("aria-current", "true")
    page.keyboard.press("Tab")
    expect(page.locator(".map canvas")).to_be_focused()
    last = reading.length - 1
    here = lambda row: int(page.locator(f'[data-row="{row}"]').get_attribute("data-value"))  # noqa: E731
    assert (here("query"), here("key")) == (last, 0)
    for key, query_and_key in (
        ("End", (last, last)),
        ("PageUp", (last - 10, last)),
        ("ArrowLeft", (last - 10, last - 1)),
        ("ArrowDown", (last - 9, last - 1)),
        ("Home", (last - 9, 0)),
        ("ArrowUp", (last - 10, 0)),
        ("ArrowRight", (last - 10, 1)),
        ("PageDown", (last, 1)),
    ):
        page.keyboard.press(key)
        assert (here("query"), here("key")) == query_and_key
    page.wait_for_url(f"**query={last}&key=1*")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Space")
    expect(page.locator(".one .head h2")).to_contain_text("Layer 0, head 2")
    assert (here("query"), here("key")) == (last, 1)
    assert "layer=0&head=2" in address(page)


def test_another_text_is_read_or_refused_beside_it(looking, place, folder, tmp_path):
    url, view = place
    page = looking(url, expected=("400", "413")).open(view)
    choose = page.get_by_text("Choose a text")
    choose.click()
    page.locator("textarea").fill("a dog")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator(".said")).to_contain_text("Tokens: 5.")
    expect(page.locator("textarea")).not_to_be_visible()
    choose.click()
    page.locator("textarea").fill("   ")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator(".wrong")).to_contain_text("a text takes a word at least")
    (tmp_path / "text.txt").write_text("Tom saw a ball. " * 4)
    page.locator('input[type="file"]').set_input_files(tmp_path / "text.txt")
    expect(page.locator(".said")).to_contain_text(
        "The text is cut: the model read 47 of its 64 tokens."
    )
    expect(page.locator(".wrong")).to_be_empty()
    (tmp_path / "large.txt").write_bytes(b"a" * (2**23 + 1))
    page.locator('input[type="file"]').set_input_files(tmp_path / "large.txt")
    expect(page.locator(".wrong")).to_contain_text(
        "at most 8 388 608 bytes, and this file has 8 388 609"
    )


def test_hostile_tokens_stay_text(looking, place):
    url, view = place
    hostile = [
        '<img src=x onerror="document.title=1">',
        "\\u202eevil",
        "\\x00",
        "</script>",
        "&lt;b&gt;",
    ]
    look = looking(url)

    def answer(route):
        result = json.loads(route.fetch().text().splitlines()[-1])
        for name in ("tokens", "running"):
            result["result"][name][: len(hostile)] = hostile
        route.fulfill(body=json.dumps(result) + "\n", content_type="application/x-ndjson")

    look.page.route("**/api/heads/reading*", answer)
    page = look.open(view + "&layer=1&head=2&query=0&key=1")
    assert page.locator('[data-row="query"] b').inner_text() == hostile[0]
    assert page.locator(".tokens span").nth(0).text_content().strip() == hostile[0]
    assert page.locator(".heads img, .heads script, .heads b b").count() == 0
    assert page.title() != "1"


def test_pictures_show_all_heads_and_the_one_that_is_open(opened, reading):
    page = opened.page
    with page.expect_download() as saved:
        page.get_by_role("button", name="SVG").click()
    svg = ET.parse(saved.value.path()).getroot()
    texts = [one.text for one in svg.iter() if one.tag.endswith("text")]
    small_maps = 1 + LAYERS + LAYERS * HEADS
    assert texts[small_maps] == "Layer 1, head 2"
    assert len(texts) == small_maps + 1 + 2 * reading.length + 3
    assert sum(one.tag.endswith("image") for one in svg.iter()) == LAYERS * HEADS + 1
    with page.expect_download() as saved:
        page.get_by_role("button", name="PNG").click()
    content = saved.value.path().read_bytes()
    width, height = struct.unpack(">2I", content[16:24])
    assert (width, height) == (2 * float(svg.get("width")), 2 * float(svg.get("height")))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_nothing_is_wider_than_the_page_and_all_is_accessible(looking, place, dark):
    url, view = place
    look = looking(url, dark=dark)
    look.open(view + OPEN)
    for width in WIDTHS:
        look.resize(width)
        assert look.overflow() == 0
        box = look.page.locator(".map canvas").bounding_box()
        assert box["x"] + box["width"] <= width
    assert look.violations() == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_its_words(looking, place, language):
    url, view = place
    look = looking(url, language=language, width=390)
    page = look.open(view + OPEN)
    assert page.locator("html").get_attribute("lang") == language
    assert not re.search(r"heads\.[a-z_]", page.locator("main").inner_text())
    assert words(language)["heads.roles"] in page.locator("main").inner_text()
    assert look.overflow() == 0
    seen = page.locator("main").inner_html()
    assert "{" not in seen
