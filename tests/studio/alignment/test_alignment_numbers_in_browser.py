"""The view `alignment` in a browser: its words, lines and numbers are the library's."""

from xml.etree import ElementTree as ET

import pytest
from playwright.sync_api import expect

from glasshead.tasks.translate import cross_attention
from studio.alignment.alignment_seen import (
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
from studio.conftest import address


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
    page.get_by_label("Width of the beam").fill("1")
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
    assert f"{weights.max():.4f}" in page.locator(".readout").text_content()


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
    partner = int(weights[1].argmax())
    check_marked(page, "source", partner, weights[:, partner])
    page.keyboard.press("End")
    check_marked(page, "source", len(seen.source) - 1, weights[:, -1])
    page.keyboard.press("Home")
    check_marked(page, "source", 0, weights[:, 0])
    assert "word=s0" in address(page)
    page.keyboard.press("Escape")
    assert page.locator(".words li[aria-selected=true]").count() == 0
    assert "word=" not in address(page)


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


def test_the_saved_picture_has_the_words_and_the_lines(url, looking):
    page = looking(url).open(PLACE)
    with page.expect_download() as saved:
        page.get_by_role("button", name="SVG").click()
    root = ET.parse(saved.value.path()).getroot()
    kinds = [one.tag.rpartition("}")[2] for one in root.iter()]
    assert kinds.count("path") == page.locator(LINES).count() > 0
    told = [one.text for one in root.iter() if one.tag.endswith("text")]
    assert told == ["layer 1, mean of all heads", *texts(page, ".words .word")]
    with page.expect_download() as saved:
        page.get_by_role("button", name="PNG").click()
    assert saved.value.path().read_bytes().startswith(b"\x89PNG")
