"""The documentation site in a browser: without errors, for all who read it, in five languages."""

import re

import pytest
from playwright.sync_api import expect

from accessibility import violations
from chromium import beyond_the_window

# The site is built first, which takes minutes.
pytestmark = pytest.mark.slow
LANGUAGES = {
    "en": "English",
    "tr": "Türkçe",
    "es": "Español",
    "zh-Hant": "繁體中文",
    "zh-Hans": "简体中文",
}
# What says "attention" there, and a word of the landing page as it stands in a sentence.
WORDS = {
    "en": ("entropy", "statistics"),
    "tr": ("dikkat", "sınıflandırıcı"),
    "es": ("atención", "clasificador"),
    "zh-Hant": ("注意力", "分類器"),
    "zh-Hans": ("注意力", "分类器"),
}
# What depends on colours takes axe long, and is the same on each page of a kind.
CONTRAST = [
    "docs/index.html",
    "docs/how-to/results.html",
    "docs/reference/api/biases.html",
    "search.html",
    "_modules/glasshead/recipe/biases.html",
]


def landing(language):
    return f"{'' if language == 'en' else f'{language}/'}docs/index.html"


def one_of_a_kind(name, kinds=("_modules/", "docs/reference/api/")):
    """Whether a page is looked at: of code and of entries one is as the next."""
    return not name.startswith(kinds) or name in CONTRAST


@pytest.mark.timeout(600)
def test_no_page_has_a_fault(looking, site, served):
    page = looking()
    found = []
    names = {str(file.relative_to(site)) for file in site.rglob("*.html")}
    # The first page leads on at once. What code refers to was looked for when the site was built.
    for name in sorted(names - {"index.html"}):
        if not one_of_a_kind(name, "_modules/"):
            continue
        page.goto(served + name)
        if one_of_a_kind(name):
            found += [f"{name}: {one}" for one in violations(page, colours=False)]
    assert found == []


def test_all_can_be_read(looking, served):
    page, found = looking(), []
    for name in CONTRAST:
        page.goto(served + name)
        for scheme in ("light", "dark"):
            looking(scheme=scheme)
            broken = violations(page, others=False)
            found += [f"{name}, {scheme}: {one}" for one in broken]
    assert found == []


def test_no_page_is_wider_than_its_window(looking, served):
    page = looking()
    for name in [*CONTRAST, "docs/start/watch.html", *map(landing, LANGUAGES)]:
        page.goto(served + name)
        for width in (390, 820, 1440):
            looking(width)
            assert beyond_the_window(page) == 0, (name, width)


def test_the_landing_page_leads_to_itself_in_each_language(looking, served):
    page = looking()
    page.goto(served)
    page.wait_for_url(f"**/{landing('en')}")
    titles = set()
    for language in [*LANGUAGES, "en"]:
        page.get_by_role("link", name=LANGUAGES[language], exact=True).click()
        page.wait_for_url(f"**/{landing(language)}")
        assert page.locator("html").get_attribute("lang") == language
        current = page.locator(".languages [aria-current]")
        assert current.inner_text() == LANGUAGES[language]
        titles.add(page.locator("h1").inner_text())
    assert len(titles) == len(LANGUAGES)


@pytest.mark.parametrize("language", LANGUAGES)
def test_words_of_each_language_are_found(looking, served, language):
    page = looking()
    for word in WORDS[language]:
        page.goto(served + landing(language))
        box = page.locator("input[name=q]")
        box.fill(word)
        box.press("Enter")
        expect(page.locator("#search-results li").first).to_be_visible(timeout=20_000)
        expect(page.locator(".search-summary")).to_have_text(re.compile(r"\w"), timeout=20_000)
    page.goto(served + landing(language))
    box = page.locator("input[name=q]")
    box.fill({"zh-Hant": "鱷魚", "zh-Hans": "鳄鱼"}.get(language, "crocodile"))
    box.press("Enter")
    expect(page.locator("#search-results > p")).to_be_visible(timeout=20_000)
    assert page.locator("#search-results li").count() == 0


def test_what_scrolls_is_reached_by_the_keyboard(looking, served):
    page = looking(390)
    page.goto(served + "docs/start/watch.html")
    wide = "one => one.scrollWidth > one.clientWidth && !one.matches('[tabindex]')"
    boxes = page.locator("pre")
    assert boxes.evaluate_all(f"all => all.filter({wide}).length") == 0
    reached = boxes.evaluate_all("all => all.filter(one => one.tabIndex === 0).length")
    page.set_viewport_size({"width": 1920, "height": 900})
    page.wait_for_function(
        "before => [...document.querySelectorAll('pre')]"
        ".filter(one => one.tabIndex === 0).length < before",
        arg=reached,
    )
