"""The view `alignment` in a browser: its words, lines and numbers are the library's.

The page of `alignment` in a browser: keyboard, languages, widths, and refusals.
"""

import json
import re
from xml.etree import ElementTree as ET

import pytest
from playwright.sync_api import expect

from glasshead.studio.shell import words
from glasshead.tasks.translate import cross_attention
from studio.alignment.alignment_seen import (
    GERMAN,
    LINES,
    OTHER,
    PLACE,
    SEEN,
    cells,
    check_numbers,
    drawn,
    found_by,
    texts,
    values,
)
from studio.conftest import LANGUAGES, WIDTHS, address, quickly, share, together
from studio.keyboard import reached_by_tab


def test_a_telephone_shows_all_of_each_candidate(url, looking):
    page = looking(url, width=390, height=844).open(PLACE)
    cut = "(all) => all.filter((text) => text.scrollWidth > text.clientWidth).length"
    assert page.locator("label.row .text").count() > 1
    assert page.locator("label.row .text").evaluate_all(cut) == 0


def test_every_control_shows_the_librarys_numbers(url, looking, translator):
    page = looking(url).open(PLACE)
    found = found_by(translator)
    seen = [cross_attention(translator, each.translation) for each in found]
    assert texts(page, "label.row .text") == [
        each.translation.text + ("" if each.ended else " (cut off)") for each in found
    ]
    assert values(page, "label.row .figure:not(.second)") == [each.score for each in found]
    assert values(page, "label.row .second") == [each.log_probability for each in found]
    check_numbers(page, seen[0], seen[0].weights[1].mean(0))
    choices = page.locator(".choices fieldset")
    choices.nth(1).get_by_text("2", exact=True).click()
    check_numbers(page, seen[0], seen[0].weights[1, 2])
    choices.nth(0).get_by_text("0", exact=True).click()
    check_numbers(page, seen[0], seen[0].weights[0, 2])
    choices.nth(0).get_by_text("mean", exact=True).click()
    check_numbers(page, seen[0], seen[0].weights[:, 2].mean(0))
    choices.nth(1).get_by_text("mean", exact=True).click()
    check_numbers(page, seen[0], seen[0].weights.mean((0, 1)))
    page.locator("label.row").nth(2).click()
    drawn(page)
    check_numbers(page, seen[2], seen[2].weights.mean((0, 1)))
    page.get_by_label("Beam width").fill("1")
    expect(page.locator("label.row")).to_have_count(2)
    drawn(page)
    (first, _) = found_by(translator, width=2)
    assert texts(page, "label.row .text")[0].startswith(first.translation.text)
    page.get_by_label("A sentence to translate").fill(OTHER)
    page.get_by_role("button", name="Translate").click()
    (first, _) = found_by(translator, OTHER, width=2)
    expect(page.locator("label.row .text").first).to_contain_text(first.translation.text)
    drawn(page)
    other = cross_attention(translator, first.translation)
    check_numbers(page, other, other.weights.mean((0, 1)))


def check_marked(page, side, at, weights):
    """One word is set apart, and the words of the other side have its weights."""
    other = {"source": "target", "target": "source"}[side]
    selected = page.locator(".words li[aria-selected=true]")
    assert selected.get_attribute("data-word") == f"{side[0]}{at}"
    numbers = f".words.{other} .weight"
    assert values(page, numbers) == pytest.approx(weights.double().tolist(), abs=1e-7)
    assert texts(page, numbers) == [f"{weight:.2f}" for weight in weights.tolist()]
    on = page.evaluate(
        f"[...document.querySelectorAll('{LINES}.on')].map((one) => Number(one.dataset.weight))"
    )
    expected = [weight for weight in weights.double().tolist() if weight >= SEEN]
    assert on == pytest.approx(expected, abs=1e-7)
    said = page.locator(".readout").text_content()
    assert f"{weights.max():.4f}" in said
    # A query gives its attention, and a key receives it; what is not named is added up.
    assert ("The attention of" in said, "receives" in said) == (side == "target", side == "source")
    told = [float(number) for number in re.findall(r"\d\.\d{4}", said)]
    assert len(told) <= 4
    assert sum(told) == pytest.approx(float(weights.sum()), abs=5e-4)


@pytest.mark.slow
def test_a_word_tells_its_weights_to_pointer_and_keyboard(url, looking, translator):
    page = looking(url).open(PLACE)
    seen = cross_attention(translator, found_by(translator)[0].translation)
    weights = seen.weights[1].mean(0)
    assert page.locator(".words li[aria-selected=true]").count() == 0
    page.locator("[data-word=t1]").hover()
    check_marked(page, "target", 1, weights[1])
    page.locator("[data-word=s2]").hover()
    check_marked(page, "source", 2, weights[:, 2])
    page.locator(".weights tbody tr").nth(3).hover()
    check_marked(page, "target", 3, weights[3])
    page.mouse.move(2, 2)
    assert page.locator(".words li[aria-selected=true]").count() == 0
    page.locator("[data-word=t0]").focus()
    columns = page.locator(".stage.columns").count()
    on, back, across = (
        ("ArrowDown", "ArrowUp", "ArrowLeft") if columns else ("ArrowRight", "ArrowLeft", "ArrowUp")
    )
    page.keyboard.press(on)
    page.keyboard.press(on)
    check_marked(page, "target", 2, weights[2])
    page.keyboard.press(back)
    check_marked(page, "target", 1, weights[1])
    page.keyboard.press(across)
    # Of words that take equal weights, whichever rounding makes the largest.
    partner = page.locator(".words li[aria-selected=true]").get_attribute("data-word")
    place = int(partner.removeprefix("s"))
    assert float(weights[1, place]) == pytest.approx(float(weights[1].max()), abs=1e-7)
    check_marked(page, "source", place, weights[:, place])
    page.keyboard.press("End")
    check_marked(page, "source", len(seen.source) - 1, weights[:, -1])
    page.keyboard.press("Home")
    check_marked(page, "source", 0, weights[:, 0])
    assert "word=s0" in address(page)
    page.keyboard.press("Escape")
    assert page.locator(".words li[aria-selected=true]").count() == 0
    assert "word=" not in address(page)


@pytest.mark.slow
def test_the_address_opens_the_same_again(url, looking, translator):
    page = looking(url).open(f"{PLACE}&candidate=2&layer=0&head=1&word=t2")
    seen = cross_attention(translator, found_by(translator)[2].translation)
    check_numbers(page, seen, seen.weights[0, 1])
    assert page.locator("[data-word=t2]").get_attribute("aria-selected") == "true"
    page.locator(".choices fieldset").nth(1).get_by_text("mean", exact=True).click()
    page.locator("[data-word=s1]").click()
    before = cells(page)
    again = looking(url).open(address(page).removeprefix(url))
    assert cells(again) == before
    assert again.locator("[data-word=s1]").get_attribute("aria-selected") == "true"
    strange = "&candidate=x&layer=7&head=-1&word=t999"
    lost = looking(url).open(PLACE + strange)
    assert lost.locator("label.row input:checked").count() == 1
    assert lost.locator(".words li[aria-selected=true]").count() == 0


@pytest.mark.slow
def test_the_saved_picture_has_the_words_and_the_lines(url, looking):
    page = looking(url).open(PLACE)
    with page.expect_download() as saved:
        share(page, "SVG")
    root = ET.parse(saved.value.path()).getroot()
    kinds = [one.tag.rpartition("}")[2] for one in root.iter()]
    assert kinds.count("path") == page.locator(LINES).count() > 0
    told = [one.text for one in root.iter() if one.tag.endswith("text")]
    assert told == ["layer 1, mean of all heads", *texts(page, ".words .word")]
    with page.expect_download() as saved:
        share(page, "PNG")
    assert saved.value.path().read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
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


@pytest.mark.parametrize("dark", quickly(False, [False, True]))
def test_it_is_right_at_every_width(url, looking, dark):
    layouts = set()
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
            assert look.violations(contrast=width == 390) == []
    # Words stand in columns where there is no room for them side by side.
    assert layouts == {(390, 1), (768, 1), (1280, 0), (1920, 0)}


@pytest.mark.parametrize("languages", together("tr", LANGUAGES))
def test_it_speaks_every_language(url, looking, languages):
    look = looking(url)
    page = look.open(f"{PLACE}&word=s1")
    for language in languages:
        look.speak(language)
        said = page.locator(".view").inner_text()
        assert words(language)["alignment.candidates"] in said
        # The power of the length penalty is an exponent.
        assert page.locator(".candidates sup").inner_text() == "1"
        assert "^" not in said
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
        share(page, "SVG")
    root = ET.parse(saved.value.path()).getroot()
    assert not any(one.tag.endswith(("img", "script")) for one in root.iter())


@pytest.mark.slow
def test_what_is_refused_is_told_and_can_be_mended(url, looking):
    look = looking(url, expected=("413",))
    page = look.open(f"#alignment?sentence={'ja+' * 30}")
    assert "A sentence must have at most 24 words" in page.locator(".refused").text_content()
    assert page.locator(".share .row").first.get_attribute("hidden") is not None
    assert look.violations() == []
    page.get_by_label("A sentence to translate").fill(GERMAN)
    page.keyboard.press("Enter")
    expect(page.locator("label.row")).to_have_count(5)
    drawn(page)
    assert page.locator(".refused").count() == 0
    assert page.locator(".share .row").first.get_attribute("hidden") is None
