"""The arcs over the text, chips that choose heads, and comparisons, in a browser."""

from xml.etree import ElementTree as ET

import pytest
import torch
from playwright.sync_api import expect

import glasshead as gh
from glasshead.studio.background_jobs import Work
from glasshead.studio.shell import words
from glasshead.studio.studio import Studio
from glasshead.studio.views import heads
from glasshead.tasks.story_model import FOLDER
from studio.conftest import LANGUAGES, address, letters, quickly, share
from studio.heads.heads_seen import FIELD, HEADS, LAYERS, OPEN, TEXT, small
from written import written

OTHER = "a red dog ran"
# The pixels of a canvas, each as a number.
PIXELS = """(canvas) => {
  const pen = canvas.getContext("2d");
  const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
  return Array.from(new Uint32Array(data.buffer));
}"""


@pytest.fixture(scope="module")
def second(tmp_path_factory):
    """A run of another seed: the same tokenizer and shape, other weights."""
    return written(tmp_path_factory.mktemp("runs") / "other", "context_length=47", "seed=7").path


@pytest.fixture
def compared(looking, serves, folder, second):
    """A studio of two models, the view of a text, and a page that opens a part of it."""
    served = serves(Studio(folder, other_folders=[second]))
    text, other = served.studio.texts.add(TEXT), served.studio.texts.add(OTHER)
    look = looking(served.url, expected=("400",))
    return served.studio, look, f"#heads?text={text}", other


def arcs(page, kind):
    found = page.locator(f".arcs path[data-kind={kind}]").evaluate_all(
        "(all) => all.map(({ dataset }) => [dataset.query, dataset.key, dataset.value].map(Number))"
    )
    return {(int(query), int(key)): value for query, key, value in found}


def drawn(page):
    page.wait_for_selector(".body[data-drawn]")


def here(page, row):
    return float(page.locator(f'[data-row="{row}"]').get_attribute("data-value"))


def row_and_column(P, at):
    row = {(at, key): P[at, key].item() for key in range(len(P)) if P[at, key] >= 0.02}
    column = {
        (query, at): P[query, at].item()
        for query in range(len(P))
        if query != at and P[query, at] >= 0.02
    }
    return row, column


def test_arcs_are_the_weights_of_the_row_and_the_column(opened, reading):
    page, P = opened.page, heads.whole_map(reading, 1, 2)
    assert (arcs(page, "row"), arcs(page, "column")) == row_and_column(P, 5)
    # A token that is pointed at is the query of the map as well, and the other way round.
    page.locator(".arcs .token").nth(7).hover()
    page.wait_for_function("() => document.querySelector('.arcs path[data-query=\"7\"]')")
    assert (arcs(page, "row"), arcs(page, "column")) == row_and_column(P, 7)
    assert here(page, "query") == 7
    assert "query=5" in address(page)
    page.locator("h1").hover()
    page.wait_for_function("() => document.querySelector('.arcs path[data-query=\"5\"]')")
    assert here(page, "query") == 5
    page.locator(".arcs .token").nth(7).click()
    page.locator("h1").hover()
    assert "query=7" in address(page)
    assert here(page, "query") == 7
    page.locator(".map canvas").focus()
    page.keyboard.press("ArrowUp")
    expect(page.locator(".arcs .token").nth(6)).to_have_attribute("aria-pressed", "true")
    assert (arcs(page, "row"), arcs(page, "column")) == row_and_column(P, 6)
    # By keyboard, from token to token.
    page.locator(".arcs .token").nth(6).focus()
    page.keyboard.press("ArrowLeft")
    assert here(page, "query") == 5
    assert "query=5" in address(page)


# For each arc into a lower line: the space between its upper edge and the line above.
LANES = """() => {
  const tokens = [...document.querySelectorAll(".arcs .token")];
  const bottom = (token) => token.offsetTop + token.offsetHeight;
  const paths = [...document.querySelectorAll(".arcs path:not([data-kind=column])")];
  return paths.filter((path) => path.getAttribute("d").lastIndexOf("M") > 0).map((path) => {
    const { query, key } = path.dataset;
    const top = Math.max(tokens[query].offsetTop, tokens[key].offsetTop);
    const above = tokens.map(bottom).filter((each) => each < top);
    const half = path.cloneNode();
    half.setAttribute("d", path.getAttribute("d").slice(path.getAttribute("d").lastIndexOf("M")));
    path.after(half);
    const { y } = half.getBBox();
    half.remove();
    return y - Number(path.getAttribute("stroke-width")) / 2 - Math.max(...above);
  });
}"""


@pytest.mark.parametrize("place", ["heads?said", "prompt?text"])
def test_an_arc_to_another_line_does_not_strike_the_line_above(looking, serving, place):
    text = "One+rainy+day+Emma+took+her+blue+bell+to+the+kitchen.+But+soon+the+bell+rang+for+the"
    look = looking(serving(FOLDER).url, width=390, height=844)
    page = look.open(f"#{place}={text}")
    page.wait_for_selector(".arcs path")
    lanes = page.evaluate(LANES)
    assert lanes
    assert min(lanes) >= 0


def test_a_token_that_looks_at_itself_has_a_loop_that_is_wider_than_its_line(looking, serving):
    page = looking(serving(FOLDER).url).open("#heads?layer=0&head=0&query=3")
    loop = page.locator(".arcs path[data-query='3'][data-key='3']")
    assert float(loop.get_attribute("data-value")) > 0.5
    sides = loop.evaluate("(one) => [one.getBBox().width, one.getBBox().height]")
    assert min(sides) > 3 * float(loop.get_attribute("stroke-width"))


@pytest.mark.slow
def test_arcs_of_several_heads_have_colours_of_their_own(opened, reading, looking, place):
    page = opened.page
    page.get_by_role("button", name="Keep arcs").click()
    small(page, 0, 1).click()
    drawn(page)
    colors = page.locator(".arcs path[data-kind=row]").evaluate_all(
        "(all) => all.map((one) => [one.getAttribute('stroke'), Number(one.dataset.value)])"
    )
    by_color = {}
    for color, value in colors:
        by_color.setdefault(color, []).append(value)
    expected = [
        [value for value in heads.whole_map(reading, *head)[5].tolist() if value >= 0.02]
        for head in ((1, 2), (0, 1))
    ]
    assert [*by_color.values()] == expected
    names = page.locator(".legend .key").all_inner_texts()
    assert [name.split("\n")[0] for name in names] == ["Layer 1, head 2", "Layer 0, head 1"]
    held = address(page)
    assert "arcs=1.2" in held
    again = looking(place[0]).open("#" + held.split("#")[1])
    assert len(arcs(again, "row")) == len(arcs(page, "row"))
    assert again.locator(".legend .key").count() == 2
    page.get_by_role("button", name="Clear arcs (Layer 1, head 2)").click()
    expect(page.locator(".legend .key")).to_have_count(1)
    assert "arcs=" not in address(page)


@pytest.mark.parametrize(("width", "height"), quickly((390, 844), [(1440, 900), (390, 844)]))
def test_arcs_are_seen_without_scrolling(looking, place, width, height):
    url, view = place
    page = looking(url, width=width, height=height).open(view)
    box = page.locator(".arcs").bounding_box()
    assert 0 <= box["y"] < box["y"] + box["height"] <= height
    assert page.locator(".arcs path[data-kind=row]").count() > 0
    assert box["y"] < page.locator(".map canvas").bounding_box()["y"]


def test_without_an_address_the_query_is_one_that_tells(looking, place, reading):
    url, view = place
    page = looking(url).open(f"{view}&layer=1&head=2")
    P = heads.whole_map(reading, 1, 2)
    places = torch.arange(len(P))
    far = P * torch.log2(1 + (places[:, None] - places).abs())
    far[:, 0] = 0
    query = int(far.amax(1).argmax())
    assert (here(page, "query"), here(page, "key")) == (query, int(P[query].argmax()))


def in_a_row(page):
    """The heads that are shown in a row, and the table's where they are not."""
    return page.locator(".in-a-row .small").evaluate_all(
        "(all) => all.map(({ dataset }) => [Number(dataset.layer), Number(dataset.head)])"
    )


@pytest.mark.slow
def test_chips_filter_and_a_menu_sorts(looking, place, reading):
    url, view = place
    look = looking(url)
    page = look.open(view)
    told = heads.summary(reading)
    every = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    roles = {
        role: [one for one in every if (told["roles"][one[0]][one[1]] or "none") == role]
        for role in [*told["scores"], "none"]
    }
    for role, those in roles.items():
        chip = page.locator(f'.chip[data-role="{role}"]')
        assert chip.locator("b").all_inner_texts() == [str(len(those))] * bool(those)
    assert page.locator(".all table").count() == 1
    role = max(roles, key=lambda name: len(roles[name]))
    page.locator(f'.chip[data-role="{role}"]').click()
    assert [tuple(one) for one in in_a_row(page)] == roles[role]
    assert f"role={role}" in address(page)
    page.get_by_label("Order").select_option("entropy")
    entropy = lambda one: told["entropy"][one[0]][one[1]]  # noqa: E731
    assert [tuple(one) for one in in_a_row(page)] == sorted(roles[role], key=entropy)
    page.locator(f'.chip[data-role="{role}"]').click()
    assert [tuple(one) for one in in_a_row(page)] == sorted(every, key=entropy)
    page.get_by_label("Order").select_option("previous")
    score = lambda one: -told["scores"]["previous"][one[0]][one[1]]  # noqa: E731
    assert [tuple(one) for one in in_a_row(page)] == sorted(every, key=score)
    held = address(page)
    assert "sort=previous" in held
    # By keyboard: the open head is reached, and arrow keys go along the row.
    page.locator(".in-a-row .small[tabindex='0']").focus()
    page.keyboard.press("Home")
    expect(page.locator(".in-a-row .small").first).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    layer, head = sorted(every, key=score)[1]
    expect(page.locator(".one h2").first).to_contain_text(f"Layer {layer}, head {head}")
    page.keyboard.press("End")
    expect(page.locator(".in-a-row .small").last).to_be_focused()
    again = look.open("#" + held.split("#")[1])
    assert [tuple(one) for one in in_a_row(again)] == sorted(every, key=score)
    again.get_by_label("Order").select_option("place")
    assert again.locator(".all table .small").count() == LAYERS * HEADS
    assert "sort=" not in address(again)


def test_a_click_in_a_sorted_row_draws_one_map(looking, place):
    url, view = place
    page = looking(url).open(f"{view}{OPEN}&sort=entropy")
    count = "CanvasRenderingContext2D.prototype"
    page.evaluate(f"""() => {{
      window.drawn = 0;
      const put = {count}.putImageData;
      {count}.putImageData = function (...given) {{ window.drawn += 1; put.apply(this, given); }};
    }}""")
    shown = page.locator(".one h2").first.inner_text()
    page.locator(".grid .small:not([aria-current])").first.click()
    expect(page.locator(".one h2").first).not_to_have_text(shown)
    drawn(page)
    assert page.evaluate("window.drawn") == 1


def test_an_induction_test_that_is_refused_says_why(looking, place):
    url, view = place
    page = looking(url, expected=("Failed to load resource",)).open(view + OPEN)
    refused = {"status": 400, "json": {"detail": "The text has no room for the test."}}
    page.route("**/heads/roles*", lambda route: route.fulfill(**refused))
    page.get_by_role("button", name="Run the induction test").click()
    expect(page.locator(".test [role=alert]")).to_have_text("The text has no room for the test.")
    drawn(page)
    assert "roles=" not in address(page)
    assert page.get_by_role("button", name="Run the induction test").is_visible()
    # It is said once.
    page.get_by_text("Choose a text").click()
    page.locator(FIELD).fill("a dog")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator(".said")).to_contain_text("Tokens: 5.")
    expect(page.locator(".test [role=alert]")).to_have_count(0)


@pytest.mark.slow
def test_the_induction_test_has_the_librarys_numbers(looking, place, folder):
    url, view = place
    look = looking(url)
    page = look.open(view + OPEN)
    before = page.locator('[data-score="induction"]').get_attribute("data-value")
    page.get_by_role("button", name="Run the induction test").click()
    expect(page.get_by_role("radio", name="random tokens")).to_be_checked(timeout=60_000)
    drawn(page)
    found = gh.find_roles(folder)
    for role, scores in found.scores.items():
        cell = page.locator(f'[data-score="{role}"]')
        assert float(cell.get_attribute("data-value")) == scores[1, 2].item()
        count = sum(row.count(role) for row in found.roles)
        chips = page.locator(f'.chip[data-role="{role}"] b').all_inner_texts()
        assert chips == [str(count)] * bool(count)
    for layer in range(LAYERS):
        for head in range(HEADS):
            role = found.roles[layer][head] or ""
            assert small(page, layer, head).get_attribute("data-role") == role
    # The answer is a sentence about the head with the highest score, and leads to its map.
    scores = found.scores["induction"].nan_to_num(-1)
    layer, head = divmod(int(scores.flatten().argmax()), HEADS)
    answer = page.locator(".test .answer")
    place = f"layer {layer}, head {head}"
    count = sum(row.count("induction") for row in found.roles)
    begin = place if count else "no head"
    assert answer.inner_text().startswith(f"On random tokens, {begin} is an induction head")
    assert place in answer.inner_text().lower()
    assert f"it gives {scores[layer, head]:.2f} of its weight to the token" in answer.inner_text()
    held = address(page)
    assert "roles=random" in held
    answer.get_by_role("button", name=f"Open {place}").click()
    expect(page.locator(".one h2").first).to_contain_text(f"Layer {layer}, head {head}")
    again = look.open("#" + held.split("#")[1])
    assert again.get_by_role("radio", name="random tokens").is_checked()
    again.get_by_text("this text", exact=True).click()
    expect(again.locator('[data-score="induction"]')).to_have_attribute("data-value", before or "")
    assert "roles=" not in address(again)


@pytest.mark.slow
def test_the_story_model_has_induction_heads_in_a_sentence(looking, serving):
    page = looking(serving(FOLDER).url).open("#heads?roles=random")
    found = gh.find_roles(FOLDER)
    scores = found.scores["induction"].nan_to_num(-1)
    best = int(scores.flatten().argmax())
    layer, head = divmod(best, len(found.roles[0]))
    count = sum(row.count("induction") for row in found.roles)
    score = scores[layer, head]
    assert count > 1
    assert page.locator(".test .answer").inner_text() == (
        f"On random tokens, layer {layer}, head {head} is an induction head: it gives {score:.2f} "
        "of its weight to the token after the earlier occurrence. Other induction heads: "
        f"{count - 1}. Open layer {layer}, head {head}"
    )


@pytest.mark.slow
def test_the_open_map_uses_the_width(looking, place):
    url, view = place
    look = looking(url, width=1440, height=900)
    page = look.open(view + OPEN)
    for width, height in ((1440, 900), (1920, 1080)):
        look.resize(width, height)
        map_box, grid = (page.locator(one).bounding_box() for one in (".map", ".grid"))
        canvas = page.locator(".map canvas").bounding_box()
        # The map stands beside the text and the small maps, and ends at a margin or at the fold.
        assert map_box["x"] > grid["x"] + grid["width"] - 1
        rest = map_box["x"] + map_box["width"] - (canvas["x"] + canvas["width"])
        below = height - (canvas["y"] + canvas["height"])
        assert min(rest, below) < 120
        assert canvas["width"] > 0.24 * width


@pytest.mark.slow
def test_a_text_minus_itself_is_blank_everywhere(compared):
    _, look, view, _ = compared
    text = view.partition("text=")[2]
    page = look.open(f"{view}&minus={text}&side=d{OPEN}")
    paper = page.evaluate(
        """() => {
          const made = document.createElement("canvas");
          const pen = made.getContext("2d");
          pen.fillStyle = getComputedStyle(document.body).getPropertyValue("--paper");
          pen.fillRect(0, 0, 1, 1);
          return new Uint32Array(pen.getImageData(0, 0, 1, 1).data.buffer)[0];
        }"""
    )
    maps = page.locator(".small canvas, .map canvas, .thumb[data-side=d] canvas")
    assert maps.count() == LAYERS * HEADS + 2
    for at in range(maps.count()):
        # 0 has the colour of the paper; what is hidden is clear.
        assert set(maps.nth(at).evaluate(PIXELS)) == {0, paper}
    for row in ("weight", "entropy", "distance", "received"):
        assert here(page, row) == 0
        assert page.locator(f'[data-row="{row}"]').inner_text() in ("0", "0.0000")
    assert set(page.locator(".small .entropy").all_inner_texts()) == {"0.00"}


@pytest.mark.slow
def test_two_texts_are_compared_head_by_head(compared):
    studio, look, view, _ = compared
    page = look.open(view + OPEN)
    page.get_by_text("Compare with another text").click()
    field = page.locator(".compare textarea")
    expect(field).to_have_value(TEXT)
    field.fill(OTHER)
    page.locator(".compare").get_by_role("button", name="Read").click()
    expect(page.locator(".thumb")).to_have_count(3)
    drawn(page)
    one, other = (
        heads.reading_of(studio, studio.texts.add(text), Work()) for text in (TEXT, OTHER)
    )
    told = [heads.summary(each) for each in (one, other)]
    P, Q = (heads.whole_map(each, 1, 2) for each in (one, other))
    # A is shown, with the entropies of both.
    before, after = (each["entropy"][0][1] for each in told)
    entropies = small(page, 0, 1).locator(".entropy")
    assert entropies.inner_text() == f"{before:.2f} → {after:.2f}"
    # The pointer may stand over another token by now.
    query, key = int(here(page, "query")), int(here(page, "key"))
    assert here(page, "weight") == P[query, key].item()
    page.locator(".thumb[data-side=b]").click()
    drawn(page)
    query, key = int(here(page, "query")), int(here(page, "key"))
    assert here(page, "weight") == Q[query, key].item()
    assert entropies.inner_text() == f"{before:.2f} → {after:.2f}"
    page.get_by_text("A − B", exact=True).first.click()
    expect(page.locator(".thumb[data-side=d]")).to_have_attribute("aria-pressed", "true")
    drawn(page)
    for query in range(one.length):
        page.locator(".arcs .token").nth(query).hover()
        key = int(here(page, "key"))
        assert here(page, "weight") == (P[query, key] - Q[query, key]).item()
    assert float(small(page, 0, 1).get_attribute("data-entropy")) == before - after
    # Arcs are those of both, each in its colour.
    last = one.length - 1
    page.wait_for_function(
        f"() => document.querySelector('.arcs path[data-kind=row][data-query=\"{last}\"]')"
    )
    values = page.locator(".arcs path[data-kind=row]").evaluate_all(
        "(all) => all.map((one) => Number(one.dataset.value))"
    )
    assert values == [
        value for row in (P[last], Q[last]) for value in row.tolist() if value >= 0.02
    ]
    top = float(page.locator(".one p.key [data-value]").get_attribute("data-value"))
    assert top == (P - Q).abs().max().item()
    held = address(page)
    assert "side=d" in held
    again = look.open("#" + held.split("#")[1])
    # The picture has both sides and their difference, and says what they are.
    with again.expect_download() as saved:
        share(again, "SVG")
    svg = ET.parse(saved.value.path()).getroot()
    texts = [one.text for one in svg.iter() if one.tag.endswith("text")]
    assert {"A", "B", "A − B", "A · Layer 1, head 2"} <= set(texts)
    for said in (f"A {TEXT} run", f"B {OTHER} run"):
        assert said.replace(" ", "") in letters(svg)
    assert sum(one.tag.endswith("image") for one in svg.iter()) == LAYERS * HEADS + 3 + 1
    assert float(small(again, 0, 1).get_attribute("data-entropy")) == before - after
    again.get_by_role("button", name="Stop comparing").click()
    expect(again.locator(".thumb")).to_have_count(0)
    drawn(again)
    assert "minus" not in address(again)


@pytest.mark.slow
def test_texts_of_other_lengths_have_both_maps_and_a_sentence(compared):
    studio, look, view, _ = compared
    longer = studio.texts.add(f"{TEXT} and a cat")
    page = look.open(f"{view}&minus={longer}&side=d{OPEN}")
    assert "the same number of tokens" in page.locator(".compared .refused").inner_text()
    assert page.locator(".thumb").count() == 2
    assert "→" in small(page, 0, 0).locator(".entropy").inner_text()
    page.locator(".thumb[data-side=b]").click()
    drawn(page)
    reading = heads.reading_of(studio, longer, Work())
    assert page.locator(".arcs .token").count() == reading.length


@pytest.mark.slow
def test_two_models_are_compared_on_one_text(compared, second):
    studio, look, view, _ = compared
    page = look.open(view + OPEN)
    # With itself there is nothing to compare.
    offered = page.get_by_label("Compared with").locator("option")
    assert offered.evaluate_all("(all) => all.map(({ value }) => value)") == ["", "1"]
    page.get_by_label("Compared with").select_option("1")
    expect(page.locator(".thumb")).to_have_count(3)
    drawn(page)
    page.locator(".thumb[data-side=d]").click()
    expect(page.locator(".thumb[data-side=d]")).to_have_attribute("aria-pressed", "true")
    drawn(page)
    text = studio.texts.add(TEXT)
    P, Q = (
        heads.whole_map(heads.reading_of(studio, text, Work(), model), 1, 2) for model in (0, 1)
    )
    top = float(page.locator(".one p.key [data-value]").get_attribute("data-value"))
    assert top == (P - Q).abs().max().item()
    assert "minusmodel=1" in address(page)
    names = page.locator(".compared code").all_inner_texts()
    assert names == [each.label for each in (studio.subject, *studio.others)]
    # The second model by itself.
    page.get_by_role("button", name="Stop comparing").click()
    expect(page.locator(".thumb")).to_have_count(0)
    page.get_by_label("Model", exact=True).select_option("1")
    drawn(page)
    assert "model=1" in address(page)
    assert offered.evaluate_all("(all) => all.map(({ value }) => value)") == ["", "0"]
    expect(page.get_by_label("Model", exact=True)).to_be_focused()
    told = heads.summary(heads.reading_of(studio, text, Work(), 1))
    expect(small(page, 1, 0)).to_have_attribute("data-entropy", str(told["entropy"][1][0]))


@pytest.mark.slow
def test_comparisons_fit_a_telephone_in_every_language(serves, looking, folder, second):
    served = serves(Studio(folder, other_folders=[second]))
    text, other = served.studio.texts.add(TEXT), served.studio.texts.add(OTHER)
    look = looking(served.url, width=390, height=844)
    page = look.open(
        f"#heads?text={text}&minus={other}&side=d&sort=entropy&roles=random&minusmodel=1{OPEN}"
    )
    for language in LANGUAGES:
        look.speak(language)
        # Light in English, and dark in Turkish.
        if language == "tr":
            look.paper(dark=True)
        for width in (1440, 820, 390):
            look.resize(width)
            assert look.overflow() == 0, (language, width)
        assert look.violations(contrast=language in ("en", "tr")) == []
        # A colon as the language has it.
        colon = "：" if language.startswith("zh") else ": "
        named = f"{words(language)['heads.named'].format(layer=1, head=2)}{colon}"
        assert named in page.locator(".arcs path title").first.text_content()
        assert "heads." not in page.locator("main").inner_text()


def test_no_order_of_the_heads_is_cut(looking, serving, folder):
    look = looking(serving(folder).url)
    page = look.open("#heads")
    for language in LANGUAGES:
        look.speak(language)
        cut = page.locator(".order select").evaluate("""(select) => {
          const { offsetWidth } = select;
          select.style.maxWidth = "none";
          return select.offsetWidth - offsetWidth;
        }""")
        assert cut == 0, language
