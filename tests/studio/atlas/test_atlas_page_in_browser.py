"""The page of the atlas in a browser: keyboard, languages, widths, and pictures."""

import re
from xml.etree import ElementTree as ET

import pytest

from glasshead.studio.strings import words
from studio.conftest import LANGUAGES, WIDTHS
from studio.keyboard import reached_by_tab


def test_a_picture_has_what_is_seen(looking, stored, square, tmp_path):
    page = looking(stored).open("#atlas?y=700&x=300&zoom=4&i=690&j=311")
    with page.expect_download() as saved:
        page.get_by_role("button", name="SVG").click()
    saved.value.save_as(tmp_path / "atlas.svg")
    root = ET.parse(tmp_path / "atlas.svg").getroot()
    said = " ".join(text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text"))
    assert f"{square[0, 0, 690, 311].item():.4f}" in said
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
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
    canvas, help_ = (page.locator(f".atlas {each}").bounding_box() for each in ("canvas", "p.help"))
    assert help_["y"] + help_["height"] <= height
    assert help_["height"] < 30
    assert canvas["width"] * canvas["height"] > 0.45 * width * height


@pytest.mark.parametrize("language", LANGUAGES)
def test_all_is_said_in_each_language(looking, stored, language):
    look = looking(stored, language=language)
    text = look.open("#atlas").inner_text("body")
    assert words(language)["atlas.legend"] in text
    assert not re.findall(r"\b(?:atlas|shell)\.\w+", text)
    assert not re.findall(r"\{\w+\}", text)
    assert look.overflow() == 0


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
