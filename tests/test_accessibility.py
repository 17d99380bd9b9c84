"""What breaks the rules of accessible pages is found, where a text before it looks alike too."""

import pytest

from accessibility import violations

PAGE = """<!doctype html><html lang=en><title>Colours</title>
<style>
  body {{ background: #fff; color: #000 }}
  .pale {{ color: #ccc }}
  .dark {{ background: #111 }}
  .hidden {{ display: none }}
  .unseen {{ visibility: hidden }}
</style>
<main><h1>Colours</h1>{}</main>"""


@pytest.fixture(scope="module")
def page(browser):
    context = browser.new_context()
    yield context.new_page()
    context.close()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<p>One.<p>Another.", []),
        ("<p>One.<p class=pale>Another.", ["color-contrast"]),
        ("<p class=hidden>One.<p class=pale>Another.", ["color-contrast"]),
        ("<div><p>One.</div><div class=dark><p>Another.</div>", ["color-contrast"]),
        ("<div class=unseen><p class=pale>One.</div><p class=pale>Other.", ["color-contrast"]),
        ("<details><summary>One</summary><p class=pale>No.</details>", []),
        ("<p>One.<input class=pale aria-label=One value=no>", ["color-contrast"]),
        ("<p>One.<img src=data:,>", ["image-alt"]),
        ("<p>One.<p class=pale>Another.<input>", ["color-contrast", "label"]),
    ],
)
def test_what_is_broken_is_found(page, text, found):
    page.set_content(PAGE.format(text))
    broken = [one.partition(":")[0] for one in violations(page)]
    assert broken == found
    colours = [rule for rule in broken if rule == "color-contrast"]
    assert [one.partition(":")[0] for one in violations(page, others=False)] == colours
    others = [rule for rule in broken if rule != "color-contrast"]
    assert [one.partition(":")[0] for one in violations(page, colours=False)] == others
    assert page.locator("[data-alike]").count() == 0


def test_of_texts_that_look_alike_the_one_that_is_seen_is_looked_at(page):
    closed = "<details><summary>One</summary><p class=pale>No.</details>"
    opened = closed.replace("<details>", "<details open>").replace("One", "Two")
    page.set_content(PAGE.format(closed + opened))
    assert [one.partition(":")[0] for one in violations(page)] == ["color-contrast"]
