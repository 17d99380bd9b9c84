"""The page of `alignment` in a browser: keyboard, languages, widths, and refusals."""

import json
from xml.etree import ElementTree as ET

from playwright.sync_api import expect

from glasshead.studio.strings import words
from studio.alignment.alignment_seen import (
    GERMAN,
    PLACE,
    drawn,
    texts,
)
from studio.conftest import LANGUAGES, WIDTHS
from studio.keyboard import reached_by_tab


def test_tab_reaches_every_control(url, looking):
    page = looking(url).open(PLACE)
    page.locator("h1").click()
    name = """() => {
      const one = document.activeElement;
      if (one.closest(".words")) return one.closest(".words").className;
      if (one.closest(".candidates")) return "candidates";
      return one.closest(".scroll") ? "table" : one.id || one.textContent;
    }"""
    reached = set(reached_by_tab(page, name))
    controls = page.locator(".view input[type=text], .view input[type=range]").all()
    assert len(controls) == 2
    assert {each.get_attribute("id") for each in controls} <= reached
    assert {"words source", "words target", "candidates", "table", "Translate"} <= reached
    assert {each.get_attribute("id") for each in page.locator(".choice input:checked").all()} <= (
        reached
    )


def test_it_is_right_at_every_width(url, looking):
    layouts = set()
    for dark in (False, True):
        look = looking(url, dark=dark)
        page = look.open(f"{PLACE}&word=t1")
        for width in WIDTHS:
            look.resize(width)
            assert look.overflow() == 0
            layouts.add((width, page.locator(".stage.columns").count()))
            boxes = page.evaluate(
                "[...document.querySelectorAll('.words li .word')].map((word) => "
                "[word.getBoundingClientRect().left, word.getBoundingClientRect().right])"
            )
            assert all(begin >= 0 and end <= width for begin, end in boxes)
            if width in (390, 1280):
                assert look.violations() == []
    # Words stand in columns where there is no room for them side by side.
    assert layouts == {(390, 1), (768, 1), (1280, 0), (1920, 0)}


def test_it_speaks_every_language(url, looking):
    for language in LANGUAGES:
        look = looking(url, language=language)
        page = look.open(f"{PLACE}&word=s1")
        said = page.locator(".view").inner_text()
        assert words(language)["alignment.candidates"] in said
        assert "alignment." not in said
        assert "{" not in said


HOSTILE = ["<img src=x onerror=alert(1)>", "\\u202eabc", "</script><b>", "\\x00"]


def test_hostile_words_are_words(url, looking):
    look = looking(url)

    def hostile(route):
        told = route.fetch().json()
        told["source"] = [HOSTILE[at % 4] for at, _ in enumerate(told["source"])]
        for each in told["candidates"]:
            each["text"] = " ".join(HOSTILE)
            each["target"] = [HOSTILE[at % 4] for at, _ in enumerate(each["target"])]
        route.fulfill(body=json.dumps(told), content_type="application/json")

    look.page.route("**/api/alignment?*", hostile)
    page = look.open(f"{PLACE}&word=t0")
    assert texts(page, ".words.target .word")[:4] == HOSTILE
    assert texts(page, "label.row .text")[0].startswith(" ".join(HOSTILE))
    assert page.locator(".view img, .view script").count() == 0
    assert look.overflow() == 0
    with page.expect_download() as saved:
        page.get_by_role("button", name="SVG").click()
    root = ET.parse(saved.value.path()).getroot()
    assert not any(one.tag.endswith(("img", "script")) for one in root.iter())


def test_what_is_refused_is_told_and_can_be_mended(url, looking):
    look = looking(url, expected=("413",))
    page = look.open(f"#alignment?sentence={'ja+' * 30}")
    assert "a sentence has at most 24 words here" in page.locator(".refused").text_content()
    assert not page.locator(".saving").is_visible()
    assert look.violations() == []
    page.get_by_label("A sentence to translate").fill(GERMAN)
    page.keyboard.press("Enter")
    expect(page.locator("label.row")).to_have_count(5)
    drawn(page)
    assert page.locator(".refused").count() == 0
    assert page.locator(".saving").is_visible()
