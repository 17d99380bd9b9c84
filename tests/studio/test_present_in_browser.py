"""A presentation of each view in a browser: large letters, and one panel at a time."""

from functools import cache
from itertools import cycle, islice

import pytest
from playwright.sync_api import expect

from studio.conftest import LANGUAGES, address, quickly, together
from studio.pictures.vision_folders import vit_folder
from studio.small_runs import SmallRun
from translated import translated

TEXT = "a+big+red+dog+saw+a+ball"
# The panels of each view, in their order.
PANELS = {
    "prompt": [".sentence", ".all"],
    "heads": [".over-text", ".all", ".open", ".roles"],
    "model": [".whole", "aside", ".sentence"],
    "atlas": [".layout"],
    "alignment": [".bands", ".heat", ".candidates"],
    "picture": [".all"],
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
    place = cache(lambda view: known[view]() if view in known else folder)
    return lambda view: serving(place(view)).url


def presented(look, place):
    page = look.open(f"?present{place}")
    page.wait_for_selector(".presenting")
    drawn_for_its_room(page)
    return page


def drawn_for_its_room(page):
    """Wait until charts and canvases are drawn for another room: in the next frame."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


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
        # What the model predicts stands beside the text and the heads.
        is_beside = view == "prompt"
        expect(seen(page)).to_have_count(1 + is_beside)
        box = page.locator(".presented").bounding_box()
        # It has the width of the page, and begins at its top.
        assert box["width"] > (700 if is_beside else 1500)
        assert box["y"] < 300
        assert look.overflow() == 0
        for one in page.locator(".presented .choice:visible").all():
            # What a click does is said in a line.
            tops = one.locator("label").evaluate_all("all => all.map((one) => one.offsetTop)")
            assert len(set(tops)) == 1
        place = page.locator(".presenting [role=status]").inner_text()
        if len(PANELS[view]) == 1:
            # One panel needs no number, and leads nowhere.
            assert place == ""
            expect(page.get_by_role("button", name="step or panel")).to_have_count(0)
            continue
        assert place.startswith(f"Panel {at + 1} / ")
        ends = [int(at == 0), int(at + 1 == int(place.split("/")[1]))]
        assert [
            page.get_by_label(f"{way} step or panel").is_disabled() for way in ("Previous", "Next")
        ] == ends
        page.keyboard.press("ArrowRight")
    if place:
        last = int(place.split("/")[1])
        assert last >= len(PANELS[view]) + (MORE if view == "training" else 0)
        for _ in range(last):
            page.keyboard.press("ArrowRight")
        expect(page.locator(".presenting [role=status]")).to_have_text(f"Panel {last} / {last}")
    expect(page.locator(".presented")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator("header")).to_be_visible()
    expect(seen(page)).to_have_count(page.locator("[data-panel]:not(:empty)").count())
    assert "present" not in address(page)


@pytest.mark.parametrize("view", ["model", "picture", "alignment", "atlas"])
def test_a_panel_fits_the_screen_above_the_control_bar(looking, urls, view):
    look = looking(urls(view), width=1920, height=1080)
    page = presented(look, f"#{view}" + (f"?text={TEXT}" if view == "model" else ""))
    page.wait_for_selector(".body[data-drawn]")
    expect(page.locator(".notice p")).to_be_visible()
    assert look.overflow_below() == 0
    bar = page.locator(".presenting").bounding_box()["y"]
    shown = page.locator("main .presented").last.bounding_box()
    assert shown["y"] + shown["height"] <= bar
    # And it is most of the screen.
    assert shown["height"] > 0.7 * 1080


@pytest.mark.parametrize("chosen", ["", "&layer=1&head=2"], ids=["words", "head"])
def test_arrows_are_dragged_on_most_of_a_projector(looking, urls, chosen):
    look = looking(urls("heads"), width=1920, height=1080)
    page = presented(look, f"#steps?way=drag{chosen}")
    page.wait_for_selector(".drag circle")
    assert look.overflow_below() == 0
    planes = [one.bounding_box() for one in page.locator(".drag svg").all()]
    assert len(planes) == 2
    controls, numbers = (
        page.locator(f".drag .worked > {one}").bounding_box()
        for one in (".controls", ":last-child")
    )
    for box in planes:
        assert box["height"] == pytest.approx(box["width"], abs=1)
        assert box["height"] > 0.5 * 1080
        # What follows stands to their right.
        assert box["x"] + box["width"] < min(controls["x"], numbers["x"])
    # The result stands first.
    assert numbers["y"] + numbers["height"] <= controls["y"]
    assert controls["y"] + controls["height"] <= page.locator(".presenting").bounding_box()["y"]


# The words of an example, a table of long texts and the log of a training are to be scrolled.
FITTING = ("prompt", "heads", "model", "atlas", "picture", "steps?layer=1&head=2&frame=99")


@pytest.mark.parametrize(("width", "height"), [(390, 844), (820, 1180), (1180, 820)])
def test_nothing_lies_over_the_ways_of_the_steps(looking, urls, width, height):
    page = presented(looking(urls("heads"), width=width, height=height), "#steps")
    page.get_by_text("Drag the arrows").click()
    expect(page.locator(".drag")).to_be_visible()
    assert page.locator(".studio").evaluate("(page) => page.scrollWidth - page.clientWidth") <= 0


@pytest.mark.parametrize("place", quickly("steps?layer=1&head=2&frame=99", FITTING))
def test_every_panel_fits_a_projector(looking, urls, place):
    view = place.partition("?")[0]
    text = f"{'&' if '?' in place else '?'}text={TEXT}" if view in ("prompt", "model") else ""
    look = looking(urls(view), width=1920, height=1080)
    page = presented(look, f"#{place}{text}")
    place = page.locator(".presenting [role=status]")
    first = 1
    if view in ("atlas", "picture", "steps"):
        # An only panel has no number, nor has that of a walk.
        expect(place).to_have_text("")
        assert look.overflow() == look.overflow_below() == 0
        if view != "steps":
            return
        page.keyboard.press("PageDown")
        first = 2
    count = int(place.inner_text().split("/")[1])
    assert count >= 2
    for at in range(first, count + 1):
        expect(place).to_have_text(f"Panel {at} / {count}")
        assert look.overflow() == look.overflow_below() == 0
        page.keyboard.press("PageDown")


@pytest.mark.parametrize("model", ["", "&layer=1&head=2"], ids=["words", "head"])
def test_every_frame_of_a_walk_fits_a_projector(looking, urls, model):
    look = looking(urls("heads"), width=1920, height=1080)
    page = presented(look, f"#steps?frame=0{model}")
    for _ in range(int(page.get_by_label("Frame", exact=True).get_attribute("max"))):
        assert look.overflow() == look.overflow_below() == 0
        page.keyboard.press("PageDown")
    expect(page.locator(".stage")).to_be_visible()


# In which panel each view draws for the height of the screen, and what.
DRAWN_FOR_A_HEIGHT = {
    "heads?layer=1&head=2": (2, ".map"),
    "steps?layer=1&head=2": (0, "canvas.stage"),
    "training": (1, "figure.presented .plot"),
}


@pytest.mark.parametrize("place", quickly("heads?layer=1&head=2", DRAWN_FOR_A_HEIGHT))
def test_a_panel_is_drawn_again_for_a_window_of_another_height(looking, urls, place):
    page = presented(looking(urls(place.partition("?")[0]), width=1920, height=1080), f"#{place}")
    turns, drawn = DRAWN_FOR_A_HEIGHT[place]
    for _ in range(turns):
        page.keyboard.press("ArrowRight")
    focusable = "[tabindex='0']:visible, button:enabled:visible, .player input"
    reached = page.locator(".presented").locator(focusable).first
    reached.focus()
    expect(reached).to_be_focused()
    now = f"document.querySelector('{drawn}')?.clientHeight"
    # It is drawn at a smaller size before it fills the screen.
    page.wait_for_function(f"() => {now} > 0.5 * innerHeight")
    high = page.locator(drawn).bounding_box()["height"]
    page.set_viewport_size({"width": 1920, "height": 960})
    # While it is hidden it has no height.
    page.wait_for_function(f"() => {now} > 97 && {now} < {high - 37}")
    page.set_viewport_size({"width": 1920, "height": 1080})
    page.wait_for_function(f"() => {now} > {high - 2}")
    assert page.locator(drawn).bounding_box()["height"] == pytest.approx(high, abs=1)
    expect(reached).to_be_focused()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["wide", "many"])
def test_the_maps_of_many_heads_fit_a_projector_and_use_it(looking, serving, request, model):
    url = serving(request.getfixturevalue(model)).url
    look = looking(url, width=1920, height=1080)
    page = presented(look, "#heads")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".all .grid")).to_be_visible()
    assert look.overflow_below() == 0
    grid = page.locator(".grid table").bounding_box()
    assert grid["x"] + grid["width"] <= 1920
    assert grid["width"] > 0.9 * 1920 or grid["height"] > 0.6 * 1080


def test_the_button_that_leads_to_the_last_panel_keeps_the_focus(looking, urls):
    page = presented(looking(urls("prompt")), f"#prompt?text={TEXT}")
    on = page.get_by_label("Next step or panel")
    for _ in range(len(PANELS["prompt"])):
        on.press("Enter")
    expect(on).to_be_focused()
    assert on.is_disabled()
    assert page.get_by_label("Previous step or panel").is_enabled()


def test_what_an_exercise_hides_is_not_a_panel(looking, serving):
    page = presented(looking(serving().url), "#steps?way=predict")
    page.wait_for_selector(".predict .bars")
    expect(page.locator(".presenting [role=status]")).to_have_text("")
    page.get_by_text("Watch", exact=True).click()
    # A walk has its own number, and that of its panel would be taken for it.
    expect(page.locator(".player output")).to_contain_text("Frame 1 / ")
    expect(page.locator(".presenting [role=status]")).to_have_text("")
    page.get_by_label("Frame", exact=True).press("End")
    page.keyboard.press("PageDown")
    # The walk, the numbers, and a panel for each section of the explanation.
    expect(page.locator(".presenting [role=status]")).to_have_text("Panel 2 / 10")


@pytest.mark.parametrize(
    ("width", "height", "place"),
    # A table of what a tutorial prints needs a larger screen.
    [(1280, 720, "#steps?text=A+cat+saw+rain&frame=99"), (1920, 1080, "#steps?frame=99")],
)
def test_sections_of_the_explanation_fit_a_projector(looking, serving, width, height, place):
    look = looking(serving().url, width=width, height=height)
    page = presented(look, place)
    turned = page.locator(".presenting [role=status]")
    for at in range(2, 11):
        page.get_by_role("button", name="Next step or panel").click()
        expect(turned).to_have_text(f"Panel {at} / 10")
        # Matrices may be scrolled.
        assert at == 2 or look.overflow_below() == 0, at


def test_the_atlas_is_presented_with_the_text_of_both_sides(looking, urls):
    page = presented(looking(urls("atlas"), width=1920, height=1080), f"#atlas?said={TEXT}")
    boxes = [
        page.locator(f".atlas {part}").bounding_box()
        for part in (".map", "section.keys", "section.queries", ".told")
    ]
    expect(page.locator(".which")).to_have_text("Layer 0, head 0")
    expect(page.locator(".which")).to_be_visible()
    drawn, keys, queries, told = boxes
    assert keys["y"] >= drawn["y"] + drawn["height"]
    for left, right in ((queries, drawn), (drawn, told)):
        assert left["x"] + left["width"] <= right["x"]
    bar = page.locator(".presenting").bounding_box()
    assert keys["y"] + keys["height"] <= bar["y"] or keys["x"] + keys["width"] <= bar["x"]


def test_the_picture_and_its_heads_fill_a_projector(looking, urls):
    page = presented(looking(urls("picture"), width=1366, height=768), "#picture")
    page.wait_for_selector(".body[data-drawn]")
    photo, heads, bar = (
        page.locator(one).bounding_box() for one in (".photo > canvas", ".all table", ".presenting")
    )
    assert photo["height"] > 0.75 * 768
    ends = photo["x"] + photo["width"]
    # As wide or as high as the room next to the picture.
    is_wide = heads["width"] > 0.85 * (1366 - ends - 60)
    assert is_wide or heads["y"] + heads["height"] > bar["y"] - 40
    assert heads["y"] + heads["height"] <= bar["y"]


def test_the_lines_of_an_alignment_are_explained(looking, urls):
    page = presented(looking(urls("alignment"), width=1366, height=768), "#alignment")
    expect(page.locator(".bands .readout")).to_contain_text("A line shows how much")


def test_the_sentence_about_keys_leaves_when_a_panel_is_turned(looking, urls):
    page = presented(looking(urls("heads"), width=1920, height=1080), "#heads?layer=1&head=2")
    expect(page.locator(".notice p")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".notice p")).to_have_count(0)


def test_bands_reach_their_words_on_a_small_projector(looking, urls):
    page = presented(looking(urls("alignment"), width=1280, height=720), "#alignment")
    # The page is as wide as before, and the bands are higher.
    ends = page.locator(".bands path").evaluate_all(
        "(paths) => Math.max(...paths.map((path) => path.getBoundingClientRect().bottom))"
    )
    words = page.locator(".bands .words").nth(1).bounding_box()
    assert ends == pytest.approx(words["y"], abs=20)


def test_a_head_that_is_opened_while_its_map_is_hidden_is_drawn_without_a_fault(looking, urls):
    page = presented(looking(urls("heads")), "#heads?layer=1&head=2")
    page.keyboard.press("ArrowRight")
    page.locator(".all .small").first.click()
    expect(page.locator(".all .small").first).to_have_attribute("aria-current", "true")
    page.wait_for_function("() => document.querySelector('.heads .map').clientHeight > 100")
    # The console stays empty.


def test_the_facts_of_a_head_stand_beside_its_map(looking, urls):
    page = presented(looking(urls("heads"), width=1920, height=1080), "#heads?layer=1&head=2")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    # The map is drawn for its frame once the frame is shown.
    page.wait_for_function("() => document.querySelector('.heads .map').clientHeight > 500")
    drawn, facts = (
        page.locator(f".heads {each}").bounding_box() for each in (".map canvas", ".readout")
    )
    assert 0 <= facts["x"] - (drawn["x"] + drawn["width"]) < 400


def test_keys_move_within_a_map_after_tab_and_turn_panels_after_a_click(looking, urls):
    look = looking(urls("heads"), width=1920, height=1080)
    page = presented(look, "#heads?layer=1&head=2")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    canvas = page.locator(".map canvas")
    canvas.click(position={"x": 5, "y": 5})
    before = address(page)
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".all .grid")).to_be_visible()
    page.keyboard.press("ArrowRight")
    assert address(page) == before
    page.keyboard.press("Shift+Tab")
    canvas.focus()
    page.keyboard.press("ArrowRight")
    # The map has the focus, and its cross-hair moves.
    expect(page.locator(".open")).to_be_visible()
    assert address(page) != before
    page.keyboard.press("PageDown")
    expect(page.locator(".roles")).to_be_visible()
    page.keyboard.press("PageUp")
    page.keyboard.press("PageUp")
    expect(page.locator(".all .grid")).to_be_visible()
    page.get_by_role("button", name="Next step or panel").click()
    expect(page.locator(".open")).to_be_visible()
    page.get_by_role("button", name="End the presentation").click()
    expect(page.locator("header")).to_be_visible()


def test_arrows_turn_panels_after_a_click_on_a_small_map_or_a_choice(looking, urls):
    page = presented(looking(urls("prompt"), width=1920, height=1080), f"#prompt?text={TEXT}")
    heads = page.locator(".all .grid")
    # A map whose head is ablated turns no panel itself.
    for clicked in ("text=ablates it", ".all .small >> nth=1"):
        page.keyboard.press("PageDown")
        page.keyboard.press("PageDown")
        expect(heads).to_be_visible()
        page.locator(clicked).click()
        page.wait_for_selector(".body[data-drawn]")
        for _ in range(2):
            page.keyboard.press("ArrowLeft")
        expect(page.locator(".sentence")).to_be_visible()
        expect(heads).to_be_hidden()
    # The choice is kept.
    page.keyboard.press("PageDown")
    page.keyboard.press("PageDown")
    expect(page.get_by_label("ablates it")).to_be_checked()


@pytest.mark.parametrize(("view", "shown"), [("prompt", ".sentence"), ("heads", ".open")])
def test_a_click_on_a_small_map_turns_to_what_shows_its_head(looking, urls, view, shown):
    look = looking(urls(view), width=1366, height=768)
    page = presented(look, f"#{view}?{'text' if view == 'prompt' else 'said'}={TEXT}")
    maps = page.locator(".all .small")
    expect(page.locator(".presenting button").first).to_be_visible()
    while not maps.last.is_visible():
        page.keyboard.press("PageDown")
    maps.nth(1).click()
    expect(page.locator(f"{shown}.presented")).to_contain_text("Layer 0, head 1")
    expect(maps.first).to_be_hidden()


def test_the_effect_of_an_ablation_is_presented_beside_the_heads(looking, urls):
    page = presented(looking(urls("prompt"), width=1920, height=1080), f"#prompt?text={TEXT}")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.locator("text=ablates it").click()
    page.locator(".all .small").nth(1).click()
    expect(page.locator("aside .bar").first).to_be_visible()
    expect(page.locator(".all .small.away")).to_have_count(1)
    heads, bars = (page.locator(one).bounding_box() for one in (".all", "aside"))
    assert heads["x"] + heads["width"] <= bars["x"]


def test_keys_reveal_the_sum_of_a_weight_that_is_predicted(looking, serving):
    page = presented(looking(serving().url, width=1920, height=1080), "#steps?way=predict")
    page.wait_for_selector(".predict .bars")
    # Score, power, sum and weight; then the next round.
    for count in (1, 2, 3, 4, 0):
        page.keyboard.press("ArrowRight")
        expect(page.locator(".sums li")).to_have_count(count)
    expect(page.locator(".predict .count")).to_have_text("Round 2 of 5")


@pytest.mark.parametrize(("width", "height"), [(1366, 768), (1920, 1080)])
def test_a_weight_of_many_keys_is_predicted_on_one_screen(looking, urls, width, height):
    look = looking(urls("heads"), width=width, height=height)
    page = presented(look, "#steps?layer=1&head=2&way=predict")
    page.wait_for_selector(".predict .bars")
    for count in range(1, 5):
        page.keyboard.press("ArrowRight")
        expect(page.locator(".sums li")).to_have_count(count)
        assert look.overflow_below() == 0, count
    # Each number of the vectors is whole, and the sum stands next to the bars.
    cells = page.locator(".predict .vector i")
    assert cells.evaluate_all(
        "all => all.every((i) => i.innerText && i.scrollWidth <= i.offsetWidth)"
    )
    sums, bars = (page.locator(f".predict .{one}").bounding_box() for one in ("sums", "bars"))
    assert sums["x"] + sums["width"] <= bars["x"]
    # Whoever goes too far goes back.
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".sums li")).to_have_count(3)


def test_a_map_that_was_hidden_when_its_head_was_chosen_pools_nothing(looking, urls):
    page = presented(looking(urls("heads"), width=1920, height=1080), "#heads")
    page.keyboard.press("ArrowRight")
    page.locator(".grid .small").nth(2).click()
    expect(page.locator(".map canvas")).to_be_visible()
    expect(page.locator(".one .head .key")).to_be_visible()
    expect(page.get_by_text("Each pixel shows")).to_have_count(0)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("#prompt", "the next or the previous step or panel"),
        ("#steps?layer=1&head=2&way=drag", "Esc ends the presentation."),
        ("&tour=#prompt", "the next or the previous stop"),
    ],
)
def test_the_sentence_about_keys_says_what_they_do(looking, urls, place, said):
    page = presented(looking(urls("heads"), width=1920, height=1080), place)
    page.wait_for_selector(".body[data-drawn]")
    expect(page.locator(".notice")).to_contain_text(said)
    if said.startswith("Esc"):
        expect(page.locator(".notice")).to_have_text(said)


def test_what_another_prompt_changes_is_presented_in_two_panels(looking, urls):
    look = looking(urls("prompt"), width=1366, height=768)
    page = presented(look, f"#prompt?text={TEXT}&minus={TEXT}+a")
    page.wait_for_selector(".pair", state="attached")
    expect(page.locator(".presenting")).to_contain_text("Panel 1 / 4")
    for shown in (".likely", ".changed", ".all"):
        page.keyboard.press("ArrowRight")
        expect(page.locator(f".prompt {shown}")).to_be_visible()
        expect(page.locator(".prompt .presented")).to_have_count(1)
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".changed p.quiet")).to_be_visible()


def test_the_roles_of_a_head_are_presented_with_its_name(looking, urls):
    page = presented(looking(urls("heads"), width=1366, height=768), "#heads?layer=1&head=2")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".which:visible")).to_have_text("Layer 1, head 2")


@pytest.mark.parametrize(("width", "height"), [(1366, 768), (1920, 1080)])
def test_charts_that_belong_together_are_one_panel(looking, urls, width, height):
    look = looking(urls("training"), width=width, height=height)
    page = presented(look, "#training")
    shown = {
        0: [],
        1: ["Loss"],
        2: ["Validation: accuracy", "Learning rate"],
        3: ["Lowest entropy of any head", "Entropy, as a share of its maximum"],
        4: ["Highest score of any head", "Maximum score"],
    }
    for titles in shown.values():
        expect(page.locator("figure:visible :is(h2, h3)")).to_have_text(titles)
        plots = [one.bounding_box() for one in page.locator(".plot:visible").all()]
        assert all(plot["height"] > 0.5 * height for plot in plots)
        assert sum(plot["width"] for plot in plots) > 0.9 * width or not plots
        # Signs are named in each panel that has them.
        if any(title.startswith(("Loss", "Validation")) for title in titles):
            expect(page.locator("figure:visible .legend").first).to_contain_text("alarm")
        assert look.overflow() == look.overflow_below() == 0
        page.keyboard.press("ArrowRight")
        drawn_for_its_room(page)


def test_alarms_that_are_folded_are_no_panel(looking, urls):
    page = presented(looking(urls("training"), width=1920, height=1080), "#training")
    page.wait_for_selector(".body[data-drawn]")
    place = page.locator(".presenting [role=status]")
    count = int(place.inner_text().split("/")[1])
    # Two alarms are open.
    page.locator(".alarms details").evaluate("(one) => (one.open = false)")
    page.keyboard.press("ArrowRight")
    expect(place).to_have_text(f"Panel 2 / {count - 1}")


def test_a_view_without_panels_has_no_number_of_one(looking, urls):
    page = presented(looking(urls("prompt")), "#training")
    expect(page.locator(".refused, .view.training .body").first).to_be_visible()
    expect(page.locator(".presenting [role=status]")).to_have_text("")


def test_arrows_turn_panels_after_a_click_on_a_word(looking, urls):
    page = presented(looking(urls("alignment"), width=1920, height=1080), "#alignment")
    word = page.locator(".bands .words li").nth(2)
    word.click()
    expect(word).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".heat")).to_be_visible()


def test_arrows_turn_panels_after_a_click_on_a_token(looking, urls):
    look = looking(urls("prompt"), width=1920, height=1080)
    page = presented(look, f"#prompt?text={TEXT}")
    token = page.locator(".arcs .token").nth(2)
    token.click()
    expect(token).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".all")).to_be_visible()
    page.keyboard.press("ArrowLeft")
    expect(token).to_be_visible()
    # Who moves by keys alone moves among the tokens.
    page.keyboard.press("Tab")
    token.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".arcs .token").nth(3)).to_be_focused()


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


# The width of a button, and of the sign on it, in the size of the page's letters.
SIGNS = """(all) => all.map((one) => {
  const letters = parseFloat(getComputedStyle(document.documentElement).fontSize);
  return [one.offsetWidth / letters, parseFloat(getComputedStyle(one).fontSize) / letters];
})"""


def test_buttons_that_are_signs_can_be_seen_and_pressed(looking, urls):
    look = looking(urls("heads"), width=390, height=844)
    for place, count in (("?tour", 1), ("#steps", 2), ("?present#heads", 3)):
        page = look.open(place)
        signs = page.locator(":is(.tour, .player, .presenting) button.sign")
        expect(signs).to_have_count(count)
        for width, letter in signs.evaluate_all(SIGNS):
            assert width >= 2.4, place
            assert letter >= 1.2, place


def test_the_page_is_as_before_once_a_presentation_ends(looking, urls):
    page = looking(urls("heads")).open("#steps?text=Hello+shiny+sun!")
    begin = page.get_by_role("button", name="Present", exact=True)
    begin.click()
    page.wait_for_selector(".presenting")
    page.keyboard.press("Escape")
    expect(begin).to_be_focused()
    assert page.evaluate("scrollY") == 0
    expect(page.locator(".presenting")).to_have_count(0)


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


def test_a_text_fills_its_panel_by_larger_letters(looking, serving):
    look = looking(serving().url, width=1920, height=1080)
    letters = []
    for count in (5, 11, 23):
        words = islice(cycle(["sun", "shines", "brightly"]), count)
        page = presented(look, f"#prompt?text={'+'.join(words)}")
        arcs = page.locator(".sentence .arcs")
        expect(arcs.locator(".token")).to_have_count(count)
        assert look.overflow_below() == 0
        assert arcs.bounding_box()["height"] > 0.3 * 1080
        letters.append(
            arcs.locator(".words").evaluate("(p) => parseFloat(getComputedStyle(p).fontSize)")
        )
    assert letters[0] > letters[1] > 1.2 * letters[2] > 60


def test_another_panel_is_kept_while_its_view_is_filled_again(looking, urls):
    look = looking(urls("prompt"), width=1920, height=1080)
    page = presented(look, f"#prompt?text={TEXT}")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".all.presented")).to_be_visible()
    page.locator("textarea").fill("a small dog")
    page.wait_for_selector(".body[data-drawn]")
    expect(page.locator(".all.presented")).to_be_visible()
    expect(page.locator(".presented")).to_have_count(1)


@pytest.mark.parametrize("languages", together("en", LANGUAGES))
def test_a_presentation_is_accessible_and_fits_small_screens(looking, urls, languages):
    for language in languages:
        look = looking(urls("prompt"), width=390, height=844, language=language)
        page = presented(look, f"#prompt?text={TEXT}")
        for _ in PANELS["prompt"]:
            assert look.violations(contrast=language == "en") == []
            assert look.overflow() == 0
            page.keyboard.press("ArrowRight")
