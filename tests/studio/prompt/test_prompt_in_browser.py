"""The page of a prompt in a browser: its arcs, its bars, and heads that are taken away."""

import re
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree as ET

import pytest
import torch
from playwright.sync_api import expect

from glasshead.studio.background_jobs import Work
from glasshead.studio.studio import Studio
from glasshead.studio.views.prompt import Prompts
from glasshead.studio.views.steps import steps_data
from glasshead.studio.views.steps_request import StepsRequest
from pretrained_folders import bert_folder
from studio.conftest import LANGUAGES, address, letters, quickly, share, together
from studio.small_runs import SmallRun

TEXT = "a big red dog saw a ball"
PLACE = f"#prompt?text={TEXT.replace(' ', '+')}"


@pytest.fixture(scope="module")
def prompts(folder):
    return Prompts(Studio(folder))


VALUES = "(all) => all.map(({ dataset }) => dataset.value)"


def numbers(page, name="value"):
    found = page.locator(".bars .number").evaluate_all(
        f"(all) => all.map((one) => Number(one.dataset.{name}))"
    )
    return pytest.approx(found, abs=1e-9)


def drawn(page):
    page.wait_for_selector(".body[data-drawn]")


def arcs(page, kind):
    """The weights of the arcs of a kind, by query and key."""
    found = page.locator(f".arcs path[data-kind={kind}]").evaluate_all(
        "(all) => all.map(({ dataset }) => [dataset.query, dataset.key, dataset.value].map(Number))"
    )
    return {(int(query), int(key)): value for query, key, value in found}


def test_bars_and_loss_are_those_of_the_model(looking, serving, folder, prompts):
    page = looking(serving(folder).url).open(PLACE)
    told = prompts.predictions(TEXT, [], 10, 1.0, Work())
    assert numbers(page) == [one["p"] for one in told["likely"]]
    names = page.locator(".bars th").all_inner_texts()
    assert names == [one["text"] for one in told["likely"]]
    loss = page.locator(".loss")
    assert float(loss.get_attribute("data-value")) == told["loss"]
    page.get_by_label("Temperature").press("Home")
    drawn(page)
    assert numbers(page) == [1.0] + [0.0] * 9
    assert "temperature=0" in address(page)


def test_arcs_have_the_weights_of_the_heads_that_are_shown(looking, serving, folder, prompts):
    page = looking(serving(folder).url).open(f"{PLACE}&heads=1.2&query=5")
    P = prompts.weights(TEXT, [], [(1, 2)], Work())[0]
    expected = {(5, key): P[5, key].item() for key in range(len(P)) if P[5, key] >= 0.02}
    assert arcs(page, "row") == expected
    page.locator(".arcs .token").nth(2).hover()
    column = {(row, 2): P[row, 2].item() for row in range(len(P)) if row != 2 and P[row, 2] >= 0.02}
    assert arcs(page, "column") == column
    # A token that is pointed at is shown, and one that is clicked stays.
    assert "query=5" in address(page)
    page.locator(".grid").first.hover()
    assert arcs(page, "row") == expected
    page.locator(".arcs .token").nth(2).click()
    page.locator(".grid").first.hover()
    assert arcs(page, "column") == column
    assert "query=2" in address(page)
    # A second head joins, in a colour of its own.
    page.locator('.grid [data-layer="0"][data-head="1"]').click()
    drawn(page)
    assert "heads=1.2%2C0.1" in address(page)
    strokes = page.locator(".arcs path").evaluate_all(
        "(all) => all.map((one) => one.getAttribute('stroke'))"
    )
    assert len(set(strokes)) == 2
    assert page.locator(".legend .key").all_inner_texts() == ["Layer 1, head 2", "Layer 0, head 1"]


@pytest.mark.slow
def test_the_bars_are_of_the_query_and_the_head_stays_while_one_types(looking, serving, folder):
    look = looking(serving(folder).url)
    page = look.open(PLACE)
    tokens = page.locator(".arcs .token")
    expect(tokens.last).to_have_attribute("aria-pressed", "true")
    shown = address(page).split("heads=")[1].split("&")[0]
    page.locator("textarea").fill("the dog saw the ball and the cat")
    page.wait_for_function("() => document.querySelectorAll('.arcs .token').length > 7")
    drawn(page)
    expect(tokens.last).to_have_attribute("aria-pressed", "true")
    assert f"heads={shown}" in address(page)
    # The last head that was clicked is described, and opened in the other views.
    page.locator('.grid [data-layer="0"][data-head="1"]').click()
    drawn(page)
    assert page.locator(".why").inner_text().startswith("In layer 0, head 1,")
    address(page)
    page.get_by_role("link", name="Steps", exact=True).click()
    page.locator(".steps.view h2", has_text="Layer 0, head 1").wait_for()


@pytest.mark.slow
def test_an_arc_to_another_line_leaves_by_a_margin(looking, serving, folder):
    page = looking(serving(folder).url, width=320, height=844).open(
        PLACE + 8 * "+and+a+cat" + "&heads=1.2"
    )
    lines, paths, width = page.evaluate("""() => {
      const all = [...document.querySelectorAll(".arcs .token")];
      const paths = [...document.querySelectorAll(".arcs path[data-kind=row]")];
      return [
        all.map(({ offsetTop }) => offsetTop),
        paths.map((one) => [+one.dataset.query, +one.dataset.key, one.getAttribute("d")]),
        document.querySelector(".arcs").clientWidth,
      ];
    }""")
    between = [d for query, key, d in paths if lines[query] != lines[key]]
    assert between
    assert all(d.count("M") == 1 for query, key, d in paths if lines[query] == lines[key])
    for d in between:
        ends = {float(half.split()[-2]) for half in d.split("M")[1:]}
        assert ends == {0.0, float(width)}


@pytest.mark.slow
def test_a_head_is_taken_away_and_put_back(looking, serving, folder, prompts):
    look = looking(serving(folder).url)
    page = look.open(PLACE)
    before = prompts.predictions(TEXT, [], 10, 1.0, Work())
    page.get_by_text("ablates it").click()
    page.locator('.grid [data-layer="1"][data-head="0"]').click()
    page.locator("p.away", has_text="Layer 1, head 0").wait_for()
    drawn(page)
    # What puts it back stands beside what took it away.
    assert page.locator(".clicks").get_by_role("button", name="Undo").is_visible()
    told = prompts.predictions(TEXT, [(1, 0)], 10, 1.0, Work())
    assert numbers(page) == [one["p"] for one in told["likely"]]
    assert numbers(page, "before") == [one["before"] for one in told["likely"]]
    page.get_by_role("button", name="Ablate or restore all heads of layer 0").click()
    page.locator("p.away", has_text="Layer 0, head 2").wait_for()
    drawn(page)
    held = address(page)
    assert "without=1.0%2C0.0%2C0.1%2C0.2" in held
    away = [(1, 0), (0, 0), (0, 1), (0, 2)]
    told = prompts.predictions(TEXT, away, 10, 1.0, Work())
    assert numbers(page) == [one["p"] for one in told["likely"]]
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("p.away")).not_to_contain_text("Layer 0")
    drawn(page)
    page.get_by_role("button", name="Restore all", exact=True).click()
    expect(page.locator("p.away")).to_be_empty()
    drawn(page)
    assert numbers(page) == [one["p"] for one in before["likely"]]
    # The address opens the same again.
    page = look.open(held.removeprefix(look.url))
    assert numbers(page) == [one["p"] for one in told["likely"]]


@pytest.mark.slow
def test_typing_gives_up_what_was_asked_before(looking, serving, folder, prompts):
    page = looking(serving(folder).url).open(PLACE)
    field = page.locator("textarea")
    field.press("End")
    field.press_sequentially(" and a cat")
    page.wait_for_function("() => document.querySelectorAll('.arcs .token').length > 12")
    drawn(page)
    typed = f"{TEXT} and a cat"
    told = prompts.predictions(typed, [], 10, 1.0, Work())
    assert numbers(page) == [one["p"] for one in told["likely"]]
    assert len(told["tokens"]) == page.locator(".arcs .token").count()
    page.locator(".bars button").first.click()
    page.wait_for_function(
        "(typed) => document.querySelector('textarea').value !== typed", arg=typed
    )
    follows = told["likely"][0]["text"].replace("␣", " ")
    assert field.input_value() == typed + follows
    field.fill(" ")
    expect(page.locator(".refused")).to_have_text("Type at least one word.")


def test_a_text_without_a_word_has_no_answers(looking, serving, folder):
    page = looking(serving(folder).url).open(PLACE)
    field = page.locator("textarea")
    field.fill(" ")
    expect(page.locator(".refused")).to_have_text("Type at least one word.")
    expect(page.locator(".stage")).not_to_be_visible()
    page.locator("details.share > summary").click()
    assert page.get_by_role("button", name="PNG").count() == 0
    # Who types leaves the menu, which closes.
    field.fill(TEXT)
    expect(page.locator(".stage")).to_be_visible()
    page.locator("details.share > summary").click()
    expect(page.get_by_role("button", name="PNG")).to_be_visible()


def test_the_sentence_says_that_its_head_is_ablated(looking, serving, folder):
    page = looking(serving(folder).url).open(f"{PLACE}&heads=1.0&without=1.0,0.2")
    assert page.locator(".why").inner_text().startswith("In layer 1, head 0 (ablated), “")
    page.get_by_role("button", name="Restore all", exact=True).click()
    expect(page.locator(".why")).to_contain_text("In layer 1, head 0, “")


def test_without_a_model_a_sentence_has_the_weights_of_the_steps(looking, serving):
    page = looking(serving().url).open()
    told = steps_data(StepsRequest(), Studio().limits)
    weights = torch.tensor(told["matrices"]["weights"], dtype=torch.float64)
    assert arcs(page, "row") == {
        (1, key): pytest.approx(weights[1, key].item()) for key in range(3)
    }
    assert page.locator(".why").inner_text().startswith("“shiny” gives 0.4063 of its attention to")
    # So do the bars of the word that is pointed at, and the table of all words.
    bars = page.locator(".bars [data-value]")
    page.locator(".every td[data-query='2']").first.hover()
    expect(bars.first).to_have_attribute("data-value", str(weights[2, 0].item()))
    assert [float(each) for each in bars.evaluate_all(VALUES)] == weights[2].tolist()
    shown = page.locator(".every td[data-query]").all_inner_texts()
    assert shown == [f"{weight:.2f}" for weight in weights.flatten().tolist()]
    page.locator("textarea").fill("one two three four")
    page.wait_for_function("() => document.querySelectorAll('.arcs .token').length === 4")
    page.get_by_text("Show all numbers").click()
    page.wait_for_selector("table[data-matrix=queries] tbody tr:nth-child(4)")
    assert "text=one+two+three+four" in address(page)


@pytest.mark.slow
def test_a_selection_survives_each_change_of_view(looking, serving, folder):
    page = looking(serving(folder).url).open(f"{PLACE}&heads=1.2&query=5")
    key = None
    for view, expected in (
        ("Attention heads", {"layer": "1", "head": "2", "query": "5", "said": TEXT}),
        ("Atlas", {"layer": "1", "head": "2", "i": "5", "said": TEXT}),
        ("Prompt", {"heads": "1.2", "query": "5", "text": TEXT}),
    ):
        page.locator("nav a", has_text=view).click()
        page.wait_for_selector(f"h1:has-text('{view}')")
        drawn(page)
        held = parse_qs(urlsplit(address(page)).fragment.partition("?")[2])
        found = {name: held[name][0] for name in expected if name in held}
        # What is not written yet is shown all the same.
        assert expected.items() >= found.items()
        if view == "Attention heads":
            assert page.locator('[data-row="query"]').get_attribute("data-value") == "5"
            expect(page.locator(".one .head h2")).to_contain_text("Layer 1, head 2")
            key = page.locator('[data-row="key"]').get_attribute("data-value")
            page.locator(".map canvas").press("ArrowRight")
            key = str(int(key) + 1)
            assert f"key={key}" in address(page)
        if view == "Atlas":
            assert (found["i"], held["j"][0]) == ("5", key)
    assert page.locator("textarea").input_value() == TEXT
    assert {query for query, _ in arcs(page, "row")} == {5}


def test_the_header_says_what_is_loaded(looking, serving, folder):
    page = looking(serving(folder).url).open()
    expect(page.locator(".brand span")).to_contain_text("2 × 3 heads")


# The names of the groups of links that are seen, and the links of each.
INTENTS = """() => {
  const seen = (inside, all) =>
    [...inside.querySelectorAll(all)].filter((one) => one.checkVisibility());
  return seen(document, "nav [role=group]").map((group) => [
    group.ariaLabel,
    seen(group, "a").map((link) => link.hash.slice(1)),
  ]);
}"""


def test_views_stand_by_what_one_wants_to_do(looking, serving, folder):
    page = looking(serving(folder).url).open()
    text = ["prompt", "heads", "atlas", "model"]
    assert page.evaluate(INTENTS) == [
        ["Learn", ["steps"]],
        ["Text", text],
        ["Training", ["training"]],
    ]
    # Without a model the sentence of Prompt is the worked example.
    page = looking(serving().url).open()
    assert page.evaluate(INTENTS)[0] == ["Learn", ["prompt", "steps"]]


@pytest.mark.parametrize(("width", "height"), quickly((390, 844), [(1440, 900), (390, 844)]))
def test_arcs_are_seen_without_scrolling(looking, serving, folder, width, height):
    page = looking(serving(folder).url, width=width, height=height).open()
    box = page.locator(".arcs .words").bounding_box()
    assert box["y"] > 0
    assert box["y"] + box["height"] <= height
    assert page.locator(".arcs path").count() > 0


@pytest.mark.slow
def test_a_field_with_a_long_text_leaves_room_for_what_the_model_does(looking, serving, folder):
    look = looking(serving(folder).url, width=1280, height=800)
    page = look.open(f"#prompt?text={TEXT.replace(' ', '+') * 83}")
    field = page.get_by_role("textbox").bounding_box()
    assert field["height"] < 200
    assert page.locator(".arcs").bounding_box()["y"] < 400


def test_what_a_click_does_is_chosen_before_the_maps_arrive(looking, serving, folder):
    look = looking(serving(folder).url)
    page = look.page
    held = []

    def hold(route):
        held.append(route)

    page.route("**/prompt/maps*", hold)
    page.goto(f"{look.url}{PLACE}")
    page.get_by_text("ablates it").click()
    for route in held:
        route.continue_()
    name = "Ablate or restore all heads of layer 1"
    # The console stays empty.
    expect(page.get_by_role("button", name=name)).to_be_visible()


def test_the_number_of_a_layer_is_a_button_only_if_a_click_ablates(looking, serving, folder):
    page = looking(serving(folder).url).open(PLACE)
    number = page.locator(".grid tbody th").nth(1)
    expect(number).to_have_text("1")
    expect(number.get_by_role("button")).to_have_count(0)
    page.get_by_text("ablates it").click()
    number.get_by_role("button", name="Ablate or restore all heads of layer 1").click()
    drawn(page)
    away = page.locator(".grid .small.away").evaluate_all(
        "all => all.map((one) => one.dataset.layer)"
    )
    assert away == ["1"] * page.locator('.grid [data-layer="1"]').count()
    assert away
    page.get_by_text("shows its arcs").click()
    expect(number.get_by_role("button")).to_have_count(0)


@pytest.mark.parametrize("languages", together("en", LANGUAGES))
def test_every_width_and_language(looking, serving, folder, languages):
    look = looking(serving(folder).url, width=390)
    look.open(f"{PLACE}&without=0.1&heads=0.0,1.2")
    for language in languages:
        look.speak(language)
        for width in (390, 820, 1440):
            look.resize(width)
            assert look.overflow() == 0, (language, width)
        assert look.violations(contrast=language == "en") == []


@pytest.mark.slow
def test_all_can_be_done_by_keyboard(looking, serving, folder):
    page = looking(serving(folder).url).open(f"{PLACE}&query=3&heads=0.0")
    page.locator(".arcs .token").nth(3).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".arcs .token").nth(5)).to_be_focused()
    assert "query=5" in address(page)
    page.locator('.grid [data-layer="0"][data-head="0"]').focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    drawn(page)
    assert "heads=0.0%2C1.1" in address(page)


@pytest.mark.slow
def test_the_picture_has_the_arcs_and_their_legend(looking, serving, folder, tmp_path):
    page = looking(serving(folder).url).open(f"{PLACE}&heads=0.0,1.2&without=0.1")
    with page.expect_download() as download:
        share(page, "SVG")
    download.value.save_as(tmp_path / "prompt.svg")
    written = (tmp_path / "prompt.svg").read_text()
    svg = ET.fromstring(written)
    assert written.count("<path") == page.locator(".arcs path").count()
    # Two heads are framed, and one is struck out.
    colors = {each.get("stroke") for each in svg.findall(".//{*}path")}
    frames = [each for each in svg.findall(".//{*}rect") if each.get("stroke") in colors]
    assert len(frames) == len(colors) == 2
    assert len(svg.findall(".//{*}linearGradient")) == 1
    assert written.count("<image") == page.locator("button.small").count()
    assert "Layer 1, head 2" in written
    for told in page.locator(".bars .number").all_inner_texts():
        probability, change = told[:6], told[6:].strip()
        assert probability + change in letters(svg)
    assert page.locator(".loss").inner_text() in written
    texts = [each.text for each in svg.iter() if each.text]
    assert texts.count("a") >= 2
    assert texts[0].startswith("Prompt")


@pytest.mark.slow
def test_twelve_heads_fit_a_telephone(looking, serving, wide):
    look = looking(serving(wide).url, width=390, height=844)
    for view in ("prompt", "heads"):
        page = look.open(f"#{view}")
        assert look.violations(contrast=False) == []
        for language in LANGUAGES:
            look.speak(language)
            assert look.overflow() == 0, (view, language)
            # No role is cut.
            cut = page.locator(".small .role").evaluate_all(
                "(all) => all.filter((one) => one.scrollWidth > one.clientWidth).length"
            )
            assert cut == 0


def test_a_tap_on_a_map_shows_its_arcs_on_a_telephone(looking, serving, folder):
    page = looking(serving(folder).url, width=390, height=500).open(PLACE)
    page.locator(".small").last.click()
    expect(page.locator(".arcs .words")).to_be_in_viewport(ratio=1)


def test_a_token_that_looks_at_one_of_the_same_letters_is_named_by_its_place(
    looking, serving, folder
):
    page = looking(serving(folder).url).open(f"{PLACE}&query=0&heads=1.2")
    told = "In layer 1, head 2, “a 0” gives 1.0000 of its attention to “a 0”."
    expect(page.locator(".why")).to_contain_text(told)


def test_a_tablet_shows_arcs_maps_and_predictions_at_once(looking, serving, folder):
    page = looking(serving(folder).url, width=820, height=1180).open(PLACE)
    for shown in (".arcs .words", ".small >> nth=-1", "aside .bars"):
        expect(page.locator(shown)).to_be_in_viewport(ratio=1)
    aside, maps = (page.locator(one).bounding_box() for one in (".stage aside", ".stage .all"))
    assert maps["x"] + maps["width"] <= aside["x"]


# Where the lowest arc ends, and the sentence below them begins.
BELOW = """() => {
  const bottoms = [...document.querySelectorAll(".arcs path")]
    .map((arc) => arc.getBoundingClientRect().bottom);
  return [Math.max(...bottoms), document.querySelector(".why").getBoundingClientRect().top];
}"""


@pytest.mark.parametrize("sentence", ["Hello+shiny+sun", "a+big+red+dog+saw+a+ball+in+the+dark"])
def test_arcs_leave_the_sentence_below_them_free(looking, serving, sentence):
    look = looking(serving().url)
    page = look.open(f"#prompt?text={sentence}&query=0")
    for width in (390, 820, 1440):
        look.resize(width)
        lowest, begins = page.evaluate(BELOW)
        assert lowest < begins


# The lines of each layer's maps, and whether each is within the window.
LINES = """() => {
  const layers = Map.groupBy(document.querySelectorAll(".grid .small"), (one) => one.dataset.layer);
  return [...layers.values()].map((all) => {
    const boxes = all.map((one) => one.getBoundingClientRect());
    const isIn = boxes.every(({ left, right }) => left >= 0 && right <= innerWidth);
    return [new Set(boxes.map(({ top }) => top)).size, isIn];
  });
}"""


@pytest.mark.slow
@pytest.mark.parametrize("view", ["prompt", "heads"])
def test_32_heads_of_a_layer_fit_a_screen_and_a_telephone(looking, serving, many, view):
    look = looking(serving(many).url, width=1440, height=900)
    page = look.open(f"#{view}")
    assert page.evaluate(LINES) == [[1, True]] * 3
    assert look.overflow() == 0
    look.resize(390, 844)
    page.wait_for_function("() => document.querySelectorAll('.grid tbody tr').length === 6")
    assert page.evaluate(LINES) == [[2, True]] * 3
    assert page.locator(".grid tbody th").all_inner_texts() == ["0", "+16", "1", "+16", "2", "+16"]
    assert look.overflow() == 0
    assert look.violations(contrast=False) == []
    # Arrow keys go along the lines, and to the head below.
    page.locator('.grid [data-layer="1"][data-head="3"]').focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator('.grid [data-layer="1"][data-head="19"]')).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.locator('.grid [data-layer="2"][data-head="3"]')).to_be_focused()
    page.keyboard.press("End")
    expect(page.locator('.grid [data-layer="2"][data-head="15"]')).to_be_focused()
    # Tab leads to this head alone.
    assert page.locator(".grid .small[tabindex='0']").count() == 1


@pytest.mark.slow
def test_undo_is_seen_wherever_a_head_is_taken_away(looking, serving, many):
    page = looking(serving(many).url, width=390, height=500).open("#prompt")
    page.get_by_text("ablates it").click()
    last = page.locator('.grid [data-layer="2"][data-head="31"]')
    last.click()
    page.locator("p.away", has_text="Layer 2, head 31").wait_for()
    drawn(page)
    undo = page.get_by_role("button", name="Undo")
    box = undo.bounding_box()
    assert 0 <= box["y"] < last.bounding_box()["y"] < 500
    undo.click()
    expect(page.locator("p.away")).to_be_empty()


@pytest.mark.slow
def test_a_run_without_a_model_is_refused_once(looking, serves, tmp_path):
    studio = Studio(SmallRun(tmp_path / "run").go(3).folder.path)
    look = looking(serves(studio).url, expected=("Failed to load resource",))
    refused = []
    look.on("response", lambda one: refused.append(one.url) if one.status == 400 else None)
    for view in ("prompt", "atlas", "heads", "model"):
        refused.clear()
        page = look.open(f"#{view}")
        told = page.locator(".refused, .wrong:not(:empty)").first.inner_text()
        assert "config.json is not what training wrote (" in told
        assert "names and values, got null). Train again." in told
        assert len(refused) <= 1, view


@pytest.mark.slow
def test_a_masked_language_model_fills_a_blank(looking, serving, tmp_path):
    folder = bert_folder(tmp_path / "bert", "BertForMaskedLM")
    page = looking(serving(folder).url).open("#prompt?text=tom+saw+a+[MASK]+dog")
    expect(page.locator(".likely h2")).to_have_text("Candidates for [MASK]")
    # The query is the blank, which the bars are about: it is the fifth token, after [CLS].
    expect(page.locator(".arcs .token").nth(4)).to_have_attribute("aria-pressed", "true")
    word = page.locator(".bars button").first.inner_text()
    page.locator(".bars button").first.click()
    expect(page.locator("textarea")).to_have_value(f"tom saw a {word} dog")
    expect(page.locator(".loss")).to_have_text(
        "Write [MASK] in place of a word to see what the model puts there."
    )


def test_while_the_model_is_loaded_the_page_says_so_and_shows_no_dead_control(
    looking, serving, folder
):
    look = looking(serving(folder).url)
    page, held = look.page, []
    page.route("**/api/prompt?*", lambda route: held.append(route))  # noqa: PLW0108 - Playwright marks it
    page.goto(f"{look.url}{PLACE}", wait_until="commit")
    page.get_by_text("Loading the model…").wait_for()
    page.get_by_text("This page shows where the attention heads of a model look").wait_for()
    assert page.locator(".stage").count() == 0
    held.pop().continue_()
    page.wait_for_selector(".stage .bars td")
    drawn(page)
    assert page.locator(".progress").count() == 0


def test_views_of_other_kinds_of_models_have_no_tab(looking, serving, folder):
    look = looking(serving(folder).url)
    page = look.open(PLACE)
    tabs = "(all) => all.filter((each) => each.offsetParent).map((each) => each.hash.split('?')[0])"
    own = ["#steps", "#prompt", "#heads", "#atlas", "#model", "#training"]
    assert page.locator("nav a").evaluate_all(tabs) == own
    # An address that names one says why it is not there.
    look.go("#picture")
    assert page.locator("nav a").evaluate_all(tabs) == [*own[:5], "#picture", own[5]]
    assert page.locator("p.note").is_visible()


def test_a_space_is_named_in_each_sentence(looking, serving, folder):
    page = looking(serving(folder).url).open("#prompt?text=a+big++dog&query=5")
    assert page.locator(".token[aria-pressed=true]").inner_text().strip() == ""
    expect(page.locator(".why")).to_contain_text("“␣”")
    titles = page.locator(".arcs path title").all_text_contents()
    assert titles
    assert all(re.search(r": \S+ → \S+ [0-9.]+", title) for title in titles), titles
