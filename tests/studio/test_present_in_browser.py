"""A presentation of each view in a browser: large letters, and one panel at a time."""

import pytest
from playwright.sync_api import expect

from studio.conftest import LANGUAGES, address, quickly, together
from studio.pictures.vision_folders import vit_folder
from studio.small_runs import SmallRun
from translated import translated

TEXT = "a+big+red+dog+saw+a+ball"
# The panels of each view, in their order.
PANELS = {
    "prompt": [".sentence", "aside", ".all"],
    "heads": [".over-text", ".all", ".open", ".roles"],
    "model": [".whole", "aside", ".sentence"],
    "atlas": [".map", "section.keys", "section.queries"],
    "alignment": [".candidates", ".bands", ".heat"],
    "picture": [".photo", ".all"],
    "training": [".standing", "figure >> nth=0", "figure >> nth=1"],
}
# Others follow in the view "training".
MORE = 4


@pytest.fixture(scope="module")
def urls(tmp_path_factory, serving, folder):
    made = tmp_path_factory.mktemp("presented")
    words = ("tokenizer=words", "num_decoder_layers=2", "context_length=17")
    known = {
        "alignment": lambda: translated(made / "translator", *words).path,
        "picture": lambda: vit_folder(made / "vit"),
        "training": lambda: SmallRun(made / "run").watch().go(37).folder.path,
    }
    return lambda view: serving(known[view]() if view in known else folder).url


def presented(look, place):
    page = look.open(f"?present{place}")
    page.wait_for_selector(".presenting")
    return page


def seen(page):
    return page.locator("[data-panel]:visible")


@pytest.mark.parametrize("view", quickly("prompt", PANELS))
def test_keys_go_through_the_panels_of_each_view_one_at_a_time(looking, urls, view):
    look = looking(urls(view), width=1920, height=1080)
    page = look.open(f"#{view}" + (f"?text={TEXT}" if view in ("prompt", "model") else ""))
    page.get_by_role("button", name="Present", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.locator("header")).to_be_hidden()
    page.locator(".notice").evaluate("(notice) => notice.replaceChildren()")
    for at, panel in enumerate(PANELS[view]):
        expect(page.locator(panel).first).to_be_visible()
        expect(seen(page)).to_have_count(1)
        box = seen(page).bounding_box()
        # It has the width of the page, and begins at its top.
        assert box["width"] > (700 if view == "picture" else 1500)
        assert box["y"] < 300
        assert look.overflow() == 0
        place = page.locator(".presenting [role=status]").inner_text()
        assert place.startswith(f"{at + 1} / ")
        page.keyboard.press("ArrowRight")
    last = int(place.split("/")[1])
    assert last >= len(PANELS[view]) + (MORE if view == "training" else 0)
    for _ in range(last):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".presenting [role=status]")).to_have_text(f"{last} / {last}")
    expect(seen(page)).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator("header")).to_be_visible()
    expect(seen(page)).to_have_count(page.locator("[data-panel]:not(:empty)").count())
    assert "present" not in address(page)


def test_a_remote_control_leaves_what_keys_move_within(looking, urls):
    look = looking(urls("heads"), width=1920, height=1080)
    page = presented(look, "#heads?layer=1&head=2")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    canvas = page.locator(".map canvas")
    canvas.click(position={"x": 5, "y": 5})
    before = address(page)
    page.keyboard.press("ArrowRight")
    # The map has the focus, and its cross-hair moves.
    expect(page.locator(".open")).to_be_visible()
    assert address(page) != before
    page.keyboard.press("PageDown")
    expect(page.locator(".roles")).to_be_visible()
    page.keyboard.press("PageUp")
    page.keyboard.press("PageUp")
    expect(page.locator(".all .grid")).to_be_visible()
    page.get_by_role("button", name="Next panel").click()
    expect(page.locator(".open")).to_be_visible()
    page.get_by_role("button", name="End the presentation").click()
    expect(page.locator("header")).to_be_visible()


def test_a_pointer_finds_its_place_where_all_is_larger(looking, urls):
    look = looking(urls("heads"), width=1920, height=1080)
    page = presented(look, "#heads?layer=1&head=2")
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    canvas = page.locator(".map canvas")
    # Waits until it stands still.
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    count = page.locator(".tokens span").count()
    side = box["width"] / count
    page.mouse.click(box["x"] + 2.5 * side, box["y"] + 3.5 * side)
    assert "query=3&key=2" in address(page)
    cell = page.locator(".map .cell").bounding_box()
    assert cell["x"] == pytest.approx(box["x"] + 2 * side, abs=4)
    assert cell["y"] == pytest.approx(box["y"] + 3 * side, abs=4)
    assert box["y"] + box["height"] < 1080


def test_two_presses_begin_one_presentation(looking, urls):
    page = looking(urls("heads")).open("#heads?layer=1&head=2")
    page.get_by_role("button", name="Present", exact=True).evaluate(
        "(button) => { button.click(); button.click(); }"
    )
    expect(page.locator(".presenting")).to_have_count(1)
    page.locator("main").focus()
    page.keyboard.press("Escape")
    expect(page.locator("header")).to_be_visible()
    expect(page.locator(".presenting")).to_have_count(0)


def test_escape_ends_a_presentation_unless_the_view_uses_it(looking, urls):
    page = presented(looking(urls("model")), f"#model?text={TEXT}")
    head = page.locator(".whole button")
    least = page.locator(".whole").get_attribute("data-zoom")
    head.press("+")
    expect(page.locator(".whole")).not_to_have_attribute("data-zoom", least)
    head.press("Escape")
    expect(page.locator(".whole")).to_have_attribute("data-zoom", least)
    expect(page.locator(".presenting")).to_be_visible()
    page.locator("main").press("Escape")
    expect(page.locator("header")).to_be_visible()


def test_another_panel_is_kept_while_its_view_is_filled_again(looking, urls):
    look = looking(urls("prompt"), width=1920, height=1080)
    page = presented(look, f"#prompt?text={TEXT}")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".bars")).to_be_visible()
    page.locator("textarea").fill("a small dog")
    page.wait_for_selector(".body[data-drawn]")
    expect(page.locator(".bars")).to_be_visible()
    expect(seen(page)).to_have_count(1)


@pytest.mark.parametrize("languages", together("en", LANGUAGES))
def test_a_presentation_is_accessible_and_fits_small_screens(looking, urls, languages):
    for language in languages:
        look = looking(urls("prompt"), width=390, height=844, language=language)
        page = presented(look, f"#prompt?text={TEXT}")
        for _ in PANELS["prompt"]:
            assert look.violations(contrast=language == "en") == []
            assert look.overflow() == 0
            page.keyboard.press("ArrowRight")
