"""Two prompts compared in a browser: arcs over both, probabilities, and the heads of the change."""

from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from glasshead.studio.background_jobs import Work
from glasshead.studio.studio import Studio
from glasshead.studio.views.prompt import Prompts
from glasshead.studio.views.prompt_compared import ComparedPrompts
from glasshead.tasks.story_model import FOLDER as STORY_MODEL
from studio.conftest import LANGUAGES, address, together
from studio.prompt.test_prompt_in_browser import drawn

BELL = "One rainy day Emma took her blue bell to the kitchen. But soon the"
TEXT, OTHER = "a big red dog saw a ball", "a red dog ran"
PLACE = f"#prompt?text={TEXT}&minus={OTHER}&heads=1.2".replace(" ", "+")


@pytest.fixture(scope="module")
def told(folder):
    return ComparedPrompts(Studio(folder)).compared((TEXT, OTHER), [], 10, 1.0, Work())


def values(page, selector):
    return page.locator(selector).evaluate_all("(all) => all.map((one) => +one.dataset.value)")


def test_two_prompts_have_their_probabilities_and_the_heads_that_changed_them(
    looking, serving, folder, told
):
    page = looking(serving(folder).url).open(PLACE)
    numbers = values(page, ".pair .number")
    expected = [[*one["p"], one["p"][0] - one["p"][1]] for one in told["candidates"]]
    assert numbers == pytest.approx([number for row in expected for number in row], abs=1e-6)
    names = page.locator(".pair tbody th").all_inner_texts()
    assert names == [one["text"] for one in told["candidates"]]
    parts = [one["part"] for one in told["changed"]["parts"]]
    first, second = told["logit"]
    # All heads are shown, and what other components wrote.
    waterfall = [*parts, told["changed"]["beyond"], first - second]
    assert values(page, ".waterfall .part") == pytest.approx(waterfall, abs=1e-6)
    expect(page.locator(".waterfall th").nth(-2)).to_have_text("components that are not heads")
    assert f"{first:.3f}".replace("-", "−") in page.locator(".changed > p").first.inner_text()
    # A head of the list is shown in the text.
    best = told["changed"]["parts"][0]
    name = f"Layer {best['layer']}, head {best['head']}"
    page.locator(".waterfall").get_by_role("button", name=name).click()
    drawn(page)
    assert f"heads={best['layer']}.{best['head']}" in address(page)
    said = page.locator(".why").all_inner_texts()
    assert [one[:13] for one in said] == [f"{name}: In layer {best['layer']}" for name in "AB"]


def test_both_prompts_have_arcs_of_the_same_head_at_the_same_word(looking, serving, folder):
    page = looking(serving(folder).url, width=1440).open(PLACE)
    prompts = Prompts(Studio(folder))
    words = page.locator(".sentence .words")
    for at, text in enumerate((TEXT, OTHER)):
        # The words stand below the field of their prompt.
        left = [one.nth(at).bounding_box()["x"] for one in (words, page.locator("textarea"))]
        assert left[0] == pytest.approx(left[1], abs=1)
        (weights,) = prompts.weights(text, [], [(1, 2)], Work())
        # The last token of both, whose next ones are compared.
        token = words.nth(at).locator("[aria-pressed=true]")
        assert int(token.get_attribute("data-at")) == len(weights) - 1
        why = page.locator(".why").nth(at)
        assert f"{weights[-1].max():.4f}" in why.inner_text()
        href = why.get_by_role("link", name="Full map").get_attribute("href")
        assert f"said={text.replace(' ', '+')}&" in href
    words.first.locator("[data-at='0']").hover()
    assert words.last.locator("[data-at='0']").get_attribute("aria-pressed") == "true"
    field = page.get_by_label("The prompt that it is compared with (B)")
    field.fill("a big red cat saw a ball")
    expect(words.last).to_have_text("a big red cat saw a ball")
    page.get_by_role("button", name="Stop comparing").click()
    expect(words).to_have_count(1)


def test_each_prompt_has_its_maps_and_the_words_that_differ_are_marked(looking, serving, folder):
    page = looking(serving(folder).url).open(PLACE)
    prompts = Prompts(Studio(folder))
    marked = page.locator(".words .differs")
    for name, text in zip("AB", (TEXT, OTHER), strict=True):
        (weights,) = prompts.weights(text, [], [(1, 2)], Work())
        maps = page.locator(f"[data-name={name}] canvas")
        widths = maps.evaluate_all("(all) => all.map((one) => one.width)")
        assert widths == [len(weights)] * 6
    assert "".join(marked.all_text_contents()) == "big red dog saw a ballred dog ran"
    page.get_by_label("The prompt that it is compared with (B)").fill("a big red cat saw a ball")
    expect(marked).to_have_text(list("dogcat"))
    page.locator("[data-name=B] [data-layer='0'][data-head='1']").click()
    drawn(page)
    assert "heads=1.2%2C0.1" in address(page)
    page.get_by_role("button", name="Stop comparing").click()
    expect(page.locator("[data-name=B] canvas")).to_have_count(0)
    expect(marked).to_have_count(0)


def test_the_second_prompt_begins_without_the_word_that_is_looked_at_most(looking, serving):
    page = looking(serving(STORY_MODEL).url).open(f"#prompt?text={BELL.replace(' ', '+')}")
    assert "attention to “bell”" in page.locator(".why").inner_text()
    page.get_by_role("button", name="Compare with another prompt").click()
    field = page.get_by_label("The prompt that it is compared with (B)")
    expect(field).to_have_value(BELL.replace("bell ", ""))
    page.wait_for_selector(".pair")
    assert any(values(page, ".pair .difference"))
    first = page.locator(".prompt-text label").first
    expect(first).to_have_text("Type a text to see what the model does with it (A)")
    page.get_by_role("button", name="Stop comparing").click()
    expect(first).to_have_text("Type a text to see what the model does with it")


@pytest.mark.slow
def test_a_prompt_is_compared_while_it_is_typed(looking, serving, folder, told):
    look = looking(serving(folder).url)
    page = look.open(PLACE.split("&minus")[0])
    page.get_by_role("button", name="Compare with another prompt").click()
    field = page.get_by_label("The prompt that it is compared with (B)")
    # It begins with all words but one, so that there is a change.
    expect(field).to_be_focused()
    begun = field.input_value().split()
    assert len(begun) == len(TEXT.split()) - 1
    assert set(begun) < set(TEXT.split())
    expect(page.locator(".waterfall .sum .part")).not_to_have_text("0.000")
    headings = page.locator(".pair thead th").all_inner_texts()
    assert headings == ["A", "B", "A − B"]
    field.fill(OTHER)
    first = told["candidates"][0]["text"]
    expect(page.locator(".pair tbody th").first).to_have_text(first)
    drawn(page)
    held = parse_qs(urlsplit(address(page)).fragment.partition("?")[2])
    assert held["minus"] == [OTHER]
    field.fill(" ")
    expect(page.locator(".refused")).to_have_text("Type at least one word.")
    field.fill(OTHER)
    expect(page.locator(".refused")).to_have_count(0)
    assert "minus" in address(page)
    page.get_by_role("link", name="Compare the maps of both prompts").click()
    page.wait_for_selector(".heads .thumb[data-side=b]")
    assert page.locator(".compared li").all_inner_texts() == [f"A {TEXT}", f"B {OTHER}"]
    page.go_back()
    page.wait_for_selector(".prompt .waterfall")
    page.get_by_role("button", name="Stop comparing").click()
    expect(page.locator(".waterfall")).to_have_count(0)
    drawn(page)
    assert "minus" not in address(page)
    assert page.get_by_role("button", name="Compare with another prompt").is_visible()


@pytest.mark.slow
def test_ablated_heads_are_so_in_both(looking, serving, folder):
    page = looking(serving(folder).url).open(f"{PLACE}&without=1.2")
    away = ComparedPrompts(Studio(folder)).compared((TEXT, OTHER), [(1, 2)], 10, 1.0, Work())
    parts = [one["part"] for one in away["changed"]["parts"]]
    assert values(page, ".waterfall .part")[: len(parts)] == pytest.approx(parts, abs=1e-6)
    assert "Layers with ablated heads" in page.locator(".changed").inner_text()


@pytest.mark.parametrize("languages", together("en", LANGUAGES))
def test_every_width_and_language(looking, serving, folder, languages):
    look = looking(serving(folder).url, width=390)
    look.open(f"{PLACE}&without=0.1")
    for language in languages:
        look.speak(language)
        for width in (390, 820, 1440, 1920):
            look.resize(width)
            assert look.overflow() == 0, (language, width)
        assert look.violations(contrast=language == "en") == []
        assert "prompt." not in look.page.locator("main").inner_text()
