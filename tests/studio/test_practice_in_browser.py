"""The exercises of the view `steps` in a browser: weights to predict, and arrows to drag."""

import math
import re
from urllib.parse import urlencode

import pytest
import torch
from playwright.sync_api import expect

import glasshead as gh
from glasshead.studio.background_jobs import Work
from glasshead.studio.live import live_page
from glasshead.studio.studio import Limits, Studio
from glasshead.studio.views.steps import computed
from glasshead.studio.views.steps_cell import Cells
from glasshead.studio.views.steps_request import STEPS_NORMALIZERS, StepsRequest
from glasshead.tasks.story_model import FOLDER
from pretrained_folders import llama_folder
from studio.conftest import LANGUAGES, address, quickly, share, widths_of

SENTENCE = "I do not like rain"
# Of the row that is asked about: its query and the key, by their places.
ASKED = """() => {
  const words = [...document.querySelectorAll(".predict .bars .word")];
  return [document.querySelector(".predict .bars .query").textContent.slice(2, -1),
    words.findIndex((one) => one.classList.contains("asked"))];
}"""
# The widths of all bars, as shares; that of the slider is its value.
BARS = """() => [...document.querySelectorAll(".predict .bars :is(input, .bar > b)")]
  .map((one) => Number(one.style.getPropertyValue("--share")))"""
# Where the bars begin and end, and where the letters of their numbers begin.
TRACKS = """(bars) => {
  const all = [...bars.querySelectorAll("input, .bar")].map((one) => one.getBoundingClientRect());
  const texts = [...bars.querySelectorAll("output:not(:empty)")].map((one) => {
    const range = document.createRange();
    range.selectNodeContents(one);
    return range.getBoundingClientRect().left;
  });
  return [all.map(({ left, right }) => [Math.round(left), Math.round(right)]), texts];
}"""
LINES = """() => [...document.querySelectorAll(".predict .sums .line")].map((line) =>
  [...line.querySelectorAll(":scope > data")].map((one) => Number(one.value)))"""


def close(numbers, expected):
    torch.testing.assert_close(
        torch.tensor(numbers, dtype=torch.float64),
        torch.as_tensor(expected, dtype=torch.float64),
        atol=1e-6,
        rtol=1e-6,
    )


def exercise(look, way, **chosen):
    page = look.open(f"#steps?{urlencode({'text': SENTENCE, 'way': way, **chosen})}")
    page.wait_for_selector(f".{'predict .bars' if way == 'predict' else 'drag circle'}")
    return page


def test_five_weights_are_guessed_and_worked_out(looking, serving):
    page = exercise(looking(serving().url), "predict", mask="causal")
    trace = computed(StepsRequest(text=SENTENCE, mask="causal"), Limits()).trace
    words, asked, differences = SENTENCE.split(), [], []
    go = page.locator(".predict button.play")
    place = go.bounding_box()
    for turn in range(5):
        assert page.locator(".predict .count").inner_text() == f"Round {turn + 1} of 5"
        # What gives the answer is hidden.
        assert page.locator(":is(.pipeline, .words):visible").count() == 0
        word, key = page.evaluate(ASKED)
        query = words.index(word)
        expect(page.get_by_label("Explained word")).to_have_value(str(query))
        page.locator(".predict [type=range]").press("Home")
        for _ in range(3 + turn):
            page.keyboard.press("ArrowRight")
        assert page.locator(".predict .sums .line").count() == 0
        for name in ("Show the score", "Show the power of e", "Show the sum", "Show the weight"):
            assert go.inner_text() == name
            go.click()
            assert go.bounding_box() == place
        score, scaled, power, total, weight = page.evaluate(LINES)
        # Large scores are relative to the largest, as in the explanation.
        largest = trace.masked[query].max()
        powers = (trace.masked[query] - (largest if abs(largest) > 10 else 0)).exp()
        close(score[-1], trace.scores[query, key])
        close(scaled, [trace.problem.scale, trace.scores[query, key], trace.scaled[query, key]])
        close(power[-1], powers[key])
        close(total, [*powers[: query + 1], powers.sum()])
        close(weight, [powers[key], powers.sum(), trace.weights[query, key]])
        close(page.evaluate(BARS)[: query + 1], trace.weights[query, : query + 1])
        asked.append((query, key))
        differences.append(abs(0.03 + 0.01 * turn - float(trace.weights[query, key])))
        go.click()
    assert page.locator(":is(.pipeline, .words):visible").count() == 2
    assert len(set(asked)) == 5
    assert all(0 <= key <= query > 0 for query, key in asked)
    assert go.bounding_box() == place
    shown = page.locator(".predict .said").inner_text()
    mean, least = sum(differences) / 5, min(differences)
    query, key = asked[differences.index(least)]
    assert shown == (
        f"Mean difference over 5 rounds: {mean:.2f}. Your best guess was “{words[query]}” → "
        f"“{words[key]}”, with a difference of {least:.2f}."
    )
    page.get_by_role("button", name="More rounds").click()
    assert page.locator(".predict .count").inner_text() == "Round 1 of 5"
    query, key = page.evaluate(ASKED)
    assert (words.index(query), key) not in asked


def test_a_guess_that_is_not_made_is_what_the_slider_shows(looking, serving):
    page = exercise(looking(serving().url), "predict")
    slider = page.locator(".predict [type=range]")
    # An equal share of five keys is 0.2, and of three 0.33.
    page.get_by_label("A sentence of your own").fill("sun shines brightly")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator(".predict .word")).to_have_count(3)
    share = float(slider.evaluate("(one) => one.style.getPropertyValue('--share')"))
    assert share == float(slider.input_value()) == 0.33
    for _ in range(4):
        page.locator(".predict button.play").click()
    said = page.locator(".predict .said").inner_text()
    guess, weight, difference = map(float, re.findall(r"0\.\d+", said))
    assert guess == 0.33
    assert difference == pytest.approx(abs(guess - weight), abs=0.0055)


@pytest.mark.parametrize("way", ["predict", "drag"])
def test_bars_of_a_row_have_one_scale_and_their_numbers_beside_them(looking, serving, way):
    look = looking(serving().url)
    page = exercise(look, way)
    for width in (390, 820, 1440, 1920):
        look.resize(width)
        tracks, numbers = page.locator(f".{way} .bars").evaluate(TRACKS)
        assert len(tracks) == 5
        assert tracks == [tracks[0]] * 5
        assert max(numbers) - tracks[0][1] < 20, width


@pytest.mark.parametrize("normalizer", quickly("softmax", STEPS_NORMALIZERS))
def test_bars_in_sight_do_not_give_the_hidden_one_away(looking, serving, normalizer):
    page = exercise(looking(serving().url), "predict", normalizer=normalizer)
    trace = computed(StepsRequest(text=SENTENCE, normalizer=normalizer), Limits()).trace
    word, key = page.evaluate(ASKED)
    weights = trace.weights[SENTENCE.split().index(word)]
    others = [at for at in range(5) if at != key]
    for presses in (0, 23, 71):
        slider = page.locator(".predict [type=range]")
        slider.press("Home")
        for _ in range(presses):
            page.keyboard.press("ArrowRight")
        bars = torch.tensor(page.evaluate(BARS), dtype=torch.float64)
        assert len(bars) == len(weights)
        close(bars[key].item(), presses / 100)
        if normalizer == "sigmoid":
            close(bars[others].tolist(), weights[others])
        elif weights[key] < 1:
            share = (1 - presses / 100) / (1 - weights[key])
            close(bars[others].tolist(), weights[others] * share)


def test_a_sentence_of_one_word_has_nothing_to_predict_and_a_narrow_head_no_plane(looking, serving):
    look = looking(serving().url)
    page = look.open("#steps?text=rain&way=predict")
    page.get_by_text("there is no weight to predict").wait_for()
    page.get_by_text("Drag the arrows").click()
    page.locator(".drag svg").first.wait_for()
    assert "way=drag" in address(page)
    page.locator("fieldset", has_text="Heads").get_by_text("4").click()
    page.get_by_text("Vectors of one number have no plane").wait_for()
    assert page.locator(".drag svg:visible").count() == 0
    page.get_by_text("Watch", exact=True).click()
    assert page.locator(".stage").is_visible()
    assert "way=" not in address(page)


# The score in the line, and the weights next to their bars.
WORKED = """() => [
  [...document.querySelectorAll(".drag .line data")].map((one) => Number(one.value)),
  [...document.querySelectorAll(".drag .bar > b")].map((one) =>
    Number(one.style.getPropertyValue("--share")))]"""
# Where a mark stands, in the plane's own units, from where its axes meet, to the right and upwards.
PLACE = """(mark) => {
  const axes = mark.closest("svg").querySelector(".axes").getAttribute("d");
  const [, top, left] = axes.match(/^M-150 ([-.\\d]+)H150M([-.\\d]+) -150V150$/).map(Number);
  return [mark.getAttribute("cx") - left, top - mark.getAttribute("cy")];
}"""
# Of each plane, half of its side.
HALVES = """() => [...document.querySelectorAll(".drag svg")].map((svg) =>
  (svg.ariaValueMax - svg.ariaValueMin) / 2)"""


def test_scores_weights_and_context_follow_the_arrow_keys(looking, serving):
    page = exercise(looking(serving().url), "drag", heads=2, mask="causal", query=3)
    made = computed(StepsRequest(text=SENTENCE, heads=2, mask="causal"), Limits())
    queries, keys, values = (made.step(name).clone() for name in ("queries", "keys", "values"))
    q, longest = queries[3], values.abs().max()
    size = torch.stack([q, *keys]).abs().max()
    plane = page.locator(".drag svg").first
    # The key of the largest weight is held at first.
    weights = made.step("weights")[3]
    assert plane.get_attribute("aria-label") == f"k({SENTENCE.split()[weights.argmax()]})"
    arrows = page.get_by_role("combobox", name="Query and keys")
    arrows.select_option(index=0)
    plane.press("ArrowUp")
    plane.press("ArrowUp")
    plane.press("ArrowLeft")
    q = q + torch.tensor([-0.05, 0.1]) * size
    arrows.select_option("k(do)")
    plane.press("ArrowRight")
    keys[1, 0] += 0.05 * size
    line, _ = page.evaluate(WORKED)
    page.locator(".drag svg").nth(1).press("ArrowDown")
    values[3, 1] -= 0.05 * longest
    scores = keys @ q
    weights = (scores[:4] * made.beta).softmax(-1)
    mixed, bars = page.evaluate(WORKED)
    close(line, [q.norm(), scores[1] / q.norm(), scores[1]])
    close(mixed, weights @ values[:4])
    close(bars, [*weights, 0])
    context = page.locator(".drag circle.context").evaluate(PLACE)
    torch.testing.assert_close(
        torch.tensor(context),
        weights @ values[:4] / page.evaluate(HALVES)[1] * 150,
        atol=0.02,
        rtol=0,
        check_dtype=False,
    )
    assert plane.get_attribute("aria-label") == "k(do)"
    assert plane.get_attribute("aria-valuetext").endswith(f"weight {weights[1]:.3f}")
    page.get_by_role("button", name="Reset").click()
    close(page.evaluate(WORKED)[1], made.step("weights")[3])


def test_an_arrow_is_dragged_and_the_other_numbers_stay(looking, serving):
    page = exercise(looking(serving().url), "drag")
    trace = computed(StepsRequest(text=SENTENCE), Limits()).trace
    query = len(SENTENCE.split()) - 1
    box = page.locator(".drag svg").first.bounding_box()
    tip = page.locator(".drag .k circle").nth(2)
    held = tip.bounding_box()
    page.mouse.move(held["x"] + held["width"] / 2, held["y"] + held["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + box["height"] * 0.3, steps=7)
    page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    page.mouse.up()
    name = page.locator(".drag svg").first.get_attribute("aria-label")
    key = SENTENCE.split().index(name[2:-1])
    one, other = (int(part) for part in page.get_by_label("Numbers in").input_value().split("."))
    x, y = page.locator(".drag .k.held circle").evaluate(PLACE)
    size = page.evaluate(HALVES)[0]
    circle = page.locator(".drag .k.held circle").bounding_box()
    middle = (circle["x"] + circle["width"] / 2, circle["y"] + circle["height"] / 2)
    to = (box["x"] + box["width"] * 0.8, box["y"] + box["height"] * 0.3)
    assert middle == pytest.approx(to, abs=1.5)
    moved = trace.keys[key].clone()
    moved[[one, other]] = torch.tensor([x, y], dtype=moved.dtype) / 150 * size
    line, bars = page.evaluate(WORKED)
    score = moved @ trace.queries[query]
    assert line[-1] == pytest.approx(float(score), abs=1e-3)
    assert line[0] * line[1] + line[2] == pytest.approx(float(score), abs=1e-3)
    scaled = trace.scaled[query].clone()
    scaled[key] = score * trace.problem.scale
    torch.testing.assert_close(
        torch.tensor(bars, dtype=torch.float64), scaled.softmax(-1).double(), atol=1e-3, rtol=0
    )
    # Where no tip is near, nothing is taken hold of.
    page.mouse.move(box["x"] + 3, box["y"] + 3)
    page.mouse.down()
    page.mouse.move(box["x"] + 60, box["y"] + 60)
    page.mouse.up()
    assert page.evaluate(WORKED) == [line, bars]


BOXES = """(plane, marks) => [...plane.querySelectorAll(marks)].map((mark) => {
  const { left, top, right, bottom } = mark.getBoundingClientRect();
  return [left, top, right, bottom];
})"""


def apart(one, other):
    return one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


def test_names_cover_no_other_and_no_tip_and_arrows_fill_their_plane(looking, serving):
    page = looking(serving().url).open("#steps?way=drag")
    page.wait_for_selector(".drag circle")
    for plane in page.locator(".drag svg").all():
        names, tips = (plane.evaluate(BOXES, marks) for marks in ("text", "circle"))
        [whole] = plane.evaluate("(plane) => [plane.getBoundingClientRect().toJSON()]")
        assert len(names) >= 3
        for at, name in enumerate(names):
            assert all(apart(name, other) for other in [*names[:at], *tips])
            left, top, right, bottom = name
            assert min(left - whole["left"], whole["right"] - right) >= 0
            assert min(top - whole["top"], whole["bottom"] - bottom) >= 0
        # All its numbers are above 0.
        top = plane.locator(".axes").get_attribute("d").split()[1].partition("H")[0]
        assert float(top) > 30
    # The query and the key of the word are one vector at first.
    name = page.locator(".drag svg").first.locator("text:not(.axis)").first
    assert name.inner_html() == "q(shiny), k(shiny)"
    # The numbers that the plane omits have a part in the score, of which its caption speaks.
    assert " + " in page.locator(".drag p.line").inner_text()
    assert "two numbers of each vector" in page.locator(".drag figcaption").first.inner_text()


@pytest.mark.parametrize("where", quickly("live", ["live", "report"]))
def test_exercises_need_no_server(looking, tmp_path, where):
    file = tmp_path / "page.html"
    if where == "live":
        file.write_text(live_page(), encoding="utf-8")
    else:
        gh.Report(None, SENTENCE).save(file)
    look = looking(file.as_uri())
    for way, name in (("predict", "Show the score"), ("drag", "Reset")):
        page = look.open(f"#steps?{urlencode({'way': way, 'frame': 1})}")
        page.get_by_role("button", name=name).click()
    page = look.open("#steps?way=nothing&frame=1")
    assert page.get_by_label("Watch").is_checked()


@pytest.mark.slow
def test_a_head_of_a_model_is_predicted(looking, serving, folder):
    page = looking(serving(folder).url).open("#steps?layer=0&head=1&way=predict&said=a+big+dog+ran")
    page.wait_for_selector(".predict .bars")
    for _ in range(4):
        page.locator(".predict button.play").click()
    weight = page.evaluate(LINES)[-1][-1]
    shown = page.locator("table.cell td:last-child").evaluate_all(
        "(all) => all.map((one) => Number(one.dataset.value))"
    )
    assert min(abs(weight - one) for one in shown) < 1e-9


def test_each_round_with_a_head_asks_for_a_weight_of_another_query(looking, serving, folder):
    # A round shows all weights of its query in the end.
    page = looking(serving(folder).url).open(
        "#steps?layer=0&head=1&way=predict&query=6&said=a+big+dog+ran+to+the+big+park"
    )
    page.wait_for_selector(".predict .bars")
    go, queries = page.locator(".predict button.play"), []
    for turn in range(5):
        assert page.locator(".predict .count").inner_text() == f"Round {turn + 1} of 5"
        queries.append(page.locator(".predict .query").inner_text())
        # The query of the round is the one that is selected.
        place = page.get_by_label("Query", exact=True)
        expect(place.locator("option:checked")).to_have_text(re.compile(rf" {queries[-1][2:-1]}$"))
        assert "how the other keys would share the rest" in page.locator(".head").inner_text()
        for _ in range(4):
            go.click()
        assert page.locator(".predict .head").inner_text() == "Weights"
        go.click()
    assert page.locator(".predict .said").inner_text().startswith("Mean difference over 5 rounds")
    assert len(set(queries)) > 3
    # Another one that is selected is asked about.
    place.select_option("2")
    expect(page.locator(".predict .count")).to_have_text("Round 1 of 5")
    word = place.locator("option:checked").inner_text().split()[-1]
    assert page.locator(".predict .query").inner_text() == f"q({word})"


def test_what_is_dragged_is_in_sight_on_a_telephone(looking, serving, folder):
    page = looking(serving(folder).url, width=390, height=844).open(
        "#steps?layer=0&head=1&way=predict&query=11&said=a+big+dog+ran+to+the+big+park+and+the+cat+sat"
    )
    slider = page.locator(".predict input[type=range]")
    expect(slider).to_be_in_viewport(ratio=1)
    # Its line follows the query's, and is above those of the others.
    tops = [page.locator(one).first.bounding_box()["y"] for one in (".predict .query", ".asked")]
    others = page.locator(".predict .word:not(.asked)").evaluate_all(
        "(all) => all.map((one) => one.getBoundingClientRect().top)"
    )
    assert tops[0] < tops[1] < min(others)
    assert len(others) > 7


def test_keys_that_are_all_hidden_are_no_part_of_a_sum(looking, serving, folder):
    said = "a+big+dog+ran+to+the+big+park+and+the+cat+sat+on+a+mat+and+the+dog+ran+to+the+park"
    page = looking(serving(folder).url).open(
        f"#steps?layer=0&head=1&way=predict&query=2&said={said}"
    )
    page.wait_for_selector(".predict .bars")
    for _ in range(3):
        page.locator(".predict button.play").click()
    (line,) = page.locator(".predict .sums .line", has_text="Σ").all_inner_texts()
    assert "…" not in line
    others = page.locator(".predict .bars > span", has_text="other keys").last
    assert others.is_visible()
    assert page.locator(".predict .bars output").last.inner_text() == "0"


def test_other_keys_and_an_equal_share_are_of_the_keys_that_a_query_sees(looking, serving, folder):
    served = serving(folder)
    said = "a big dog ran to the big park and the cat sat on a mat and the dog ran to the park"
    query = 12
    row = Cells(served.studio).row(served.studio.texts.add(said), 0, 1, query, None, Work())
    rest, seen = row["rest"], query + 1
    assert rest["hidden"] == len(row["tokens"]) - seen > 0
    place = {"layer": 0, "head": 1, "query": query, "said": said}
    look = looking(served.url)
    page = look.open(f"#steps?{urlencode(place | {'way': 'predict'})}")
    page.wait_for_selector(".predict .bars")
    assert float(page.locator(".predict [type=range]").input_value()) == round(1 / seen, 2)
    told = f"{seen - len(row['keys'])} other keys"
    assert (
        page.locator(".predict .bars > span", has_text="other keys").last.inner_text()
        == f"{told} (sum)"
    )
    assert page.locator("table.cell th", has_text="other keys").inner_text() == told
    page = look.open(f"#steps?{urlencode(place | {'way': 'drag'})}")
    page.wait_for_selector(".drag circle")
    assert page.locator(".drag .bars > span", has_text="other keys").inner_text() == told


def test_a_formula_of_a_plane_says_what_it_leaves_out(looking, serving):
    look = looking(serving().url)
    line = exercise(look, "drag").locator(".drag p.line")
    assert "= |q|·r + … =" in line.inner_text()
    # A head of two numbers has both in its plane.
    page = exercise(look, "drag", heads=2)
    assert page.locator(".drag figcaption").first.inner_text() == ""
    assert "= |q|·r =" in page.locator(".drag p.line").inner_text()


# The planes do not lie along coordinates; the ends of a slider state the scale of its plane.
HELD = """() => [...document.querySelectorAll(".drag svg")].map((svg) =>
  [svg.ariaLabel, (svg.ariaValueMax - svg.ariaValueMin) / 2])"""
SAID = "Lily had a red ball. The dog and the ball ran to the park. Lily"


def head_of_the_story(studio, query):
    name = studio.texts.add(SAID)
    cells = Cells(studio)
    row = cells.row(name, 1, 2, query, None, Work())
    return row, cells.vectors(name, 1, 2, query, Work()).double()


def test_the_arrows_of_a_head_are_dragged_and_all_its_keys_count(looking, serving):
    served = serving(FOLDER)
    query = 13
    row, vectors = head_of_the_story(served.studio, query)
    shown = [key["place"] for key in row["keys"]]
    assert len(shown) < query
    q = torch.tensor(row["q"], dtype=torch.float64)
    keys, values, bias = vectors.split([len(q), len(q), 1], -1)
    place = {"layer": 1, "head": 2, "query": query, "way": "drag", "said": SAID}
    page = looking(served.url).open(f"#steps?{urlencode(place)}")
    page.wait_for_selector(".drag circle")
    bars = page.evaluate(WORKED)[1]
    weights = torch.tensor(row["weights"], dtype=torch.float64)
    close(bars[:-1], weights[shown])
    assert bars[-1] == pytest.approx(float(weights.sum() - weights[shown].sum()), abs=1e-6)
    # The key of the largest weight is held, and its value.
    (label, size), (value, _) = page.evaluate(HELD)
    strongest = max(row["keys"], key=lambda key: key["weight"])["word"]
    assert label.startswith(f"k({strongest}")
    assert value[1:] == label[1:]
    for plane in page.locator(".drag svg").all():
        boxes = plane.evaluate(BOXES, "text:not(.axis)")
        # Of a line's height, letters take the middle.
        names = [(left, top + 4, right, bottom - 4) for left, top, right, bottom in boxes]
        assert all(apart(one, other) for at, one in enumerate(names) for other in names[:at])
    # The plane holds the query: its tip stands on the first axis, as far out as the query is long.
    page.get_by_role("combobox", name="Query and keys").select_option(index=0)
    x, y = page.locator(".drag .q circle").evaluate(PLACE)
    assert (x, y) == pytest.approx((float(q.norm()) / size * 150, 0), abs=0.02)
    # A step to the right makes the query longer, and each score in the same ratio.
    plane = page.locator(".drag svg").first
    plane.press("ArrowRight")
    tips = torch.stack([q, *keys[shown]]).norm(dim=-1)
    step = float(plane.get_attribute("aria-valuenow")) - float(q.norm())
    assert 0 < step <= 0.05 * tips.max() + 1e-6
    longer = q * (1 + step / q.norm())
    scores = keys @ longer
    weights = (scores * row["beta"] + bias[:, 0]).softmax(-1)
    line, bars = page.evaluate(WORKED)
    close(bars[:-1], weights[shown])
    # The numbers of a line make its score, to which nothing is added from outside of the plane.
    assert len(line) == 3
    assert line[0] * line[1] == pytest.approx(line[2], abs=1e-6)
    assert line[0] == pytest.approx(float(longer.norm()), abs=1e-6)
    said = page.locator(".drag figcaption").all_inner_texts()
    assert "each score is exact" in said[0]
    assert "Gray dots" in said[1]
    context = weights @ values
    x, y = page.locator(".drag circle.context").evaluate(PLACE)
    size = page.evaluate(HELD)[1][1]
    share = (x**2 + y**2) * (size / 150) ** 2 / float(context.square().sum())
    assert float(said[1].split("\u00a0%")[0].split()[-1]) == pytest.approx(100 * share, abs=0.6)
    page.get_by_role("button", name="Reset").click()
    close(page.evaluate(WORKED)[1][:-1], torch.tensor(row["weights"])[shown])


def test_planes_wait_for_the_vectors_of_all_keys(looking, serving):
    look = looking(serving(FOLDER).url)
    held = []
    look.page.route("**/api/steps/vectors?**", lambda *one: held.extend(one[:1]))
    place = {"layer": 1, "head": 2, "query": 13, "way": "drag", "said": SAID}
    with look.page.expect_request("**/api/steps/vectors?**"):
        page = look.open(f"#steps?{urlencode(place)}")
    expect(page.locator(".drag")).to_have_count(1)
    assert page.locator(".drag :is(svg, p):visible").count() == 0
    held[0].continue_()
    page.wait_for_selector(".drag circle")
    assert page.locator(".drag svg:visible").count() == 2


def test_the_arrows_of_a_key_change_the_others_in_the_same_ratio(looking, serving):
    served = serving(FOLDER)
    place = {"layer": 1, "head": 2, "query": 13, "way": "drag", "said": SAID}
    page = looking(served.url).open(f"#steps?{urlencode(place)}")
    page.wait_for_selector(".drag circle")
    before = page.evaluate(WORKED)[1]
    page.get_by_role("combobox", name="Query and keys").select_option(index=3)
    page.locator(".drag svg").first.press("ArrowLeft")
    after = page.evaluate(WORKED)[1]
    assert after[2] < before[2]
    ratio = [one / other for one, other in zip(after, before, strict=True) if other > 0]
    del ratio[2]
    close(ratio, [(1 - after[2]) / (1 - before[2])] * len(ratio))


@pytest.mark.slow
def test_the_page_without_a_server_drags_the_arrows_of_a_head(looking, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(live_page(), encoding="utf-8")
    look = looking(file.as_uri())
    place = {"layer": 1, "head": 2, "query": 13, "way": "drag", "said": SAID}
    page = look.open(f"#steps?{urlencode(place)}")
    page.wait_for_selector(".drag circle")
    row, _ = head_of_the_story(Studio(FOLDER), 13)
    shown = [key["place"] for key in row["keys"]]
    bars = page.evaluate(WORKED)[1]
    assert bars[:-1] == pytest.approx([row["weights"][at] for at in shown], abs=1e-4)
    for width in (390, 768, 1440):
        look.resize(width)
        assert look.overflow() == 0
    assert look.violations() == []


@pytest.mark.slow
def test_weights_that_do_not_follow_are_not_dragged(looking, serving):
    look = looking(serving(FOLDER).url)
    page = look.page

    def other(route):
        answer = route.fetch()
        row = answer.json()
        row["beta"] *= 1.5
        route.fulfill(response=answer, json=row)

    page.route("**/api/steps/cell?**", other)
    place = {"layer": 1, "head": 2, "query": 13, "way": "drag", "said": SAID}
    look.open(f"#steps?{urlencode(place)}")
    page.get_by_text("do not follow from its queries and keys alone").wait_for()
    assert page.locator(".drag svg:visible").count() == 0


@pytest.mark.parametrize(("width", "height"), [(390, 844), (375, 667), (360, 640)])
def test_the_numbers_below_an_arrow_cover_none_of_its_plane_on_a_telephone(
    looking, serving, width, height
):
    look = looking(serving().url, width=width, height=height)
    page = exercise(look, "drag", text="Hello shiny sun")
    plane, below = (
        page.locator(one).first.bounding_box() for one in (".drag svg", ".worked > :last-child")
    )
    assert plane["y"] + plane["height"] <= below["y"]


@pytest.mark.parametrize(("words", "stays"), [(5, True), (17, False)])
def test_few_weights_stay_in_sight_of_the_arrows_on_a_telephone(looking, serving, words, stays):
    look = looking(serving().url, width=390, height=844)
    page = exercise(look, "drag", text=" ".join(f"word{at}" for at in range(words)))
    page.locator(".drag svg").first.evaluate("(one) => one.scrollIntoView()")
    box = page.locator(".drag .bars").bounding_box()
    assert (box["y"] + box["height"] <= 844) == stays
    # They cover none of the controls that follow the arrows.
    reset = page.locator(".drag .controls button")
    reset.evaluate("(one) => one.scrollIntoView({ block: 'center' })")
    reset.click(timeout=3000)


def test_the_formula_is_that_of_the_plane_whose_arrow_is_held(looking, serving):
    page = exercise(looking(serving().url), "drag", text="Hello shiny sun!")
    line = page.locator(".drag p.line")
    expect(line).to_contain_text("s(shiny) = |q|·r")
    context = computed(StepsRequest(text="Hello shiny sun!"), Limits()).trace.context[1]
    page.get_by_role("combobox", name="Values and context").select_option("v(Hello)")
    expect(line).to_contain_text("c(shiny) = Σ p·v = [")
    numbers = line.locator("data").evaluate_all("(all) => all.map((one) => Number(one.value))")
    close(numbers, context)
    # No number of a vector is its result.
    weights = line.locator("data").evaluate_all(
        "(all) => all.map((one) => getComputedStyle(one).fontWeight)"
    )
    assert set(weights) == {"400"}
    page.get_by_role("combobox", name="Query and keys").select_option("k(Hello)")
    expect(line).to_contain_text("s(Hello) = |q|·r")


def test_a_telephone_shows_the_plane_that_is_chosen(looking, serving):
    page = exercise(looking(serving().url, width=390, height=844), "drag")
    keys, values = page.locator(".drag svg").all()
    expect(keys).to_be_visible()
    expect(values).to_be_hidden()
    page.locator(".one-plane label", has_text="Values and context").click()
    expect(values).to_be_visible()
    expect(keys).to_be_hidden()


def test_the_projection_of_a_key_is_drawn_from_the_origin_to_its_foot(looking, serving):
    page = exercise(looking(serving().url), "drag")
    page.get_by_role("combobox", name="Query and keys").select_option(index=2)
    (origin, foot), (query, _) = page.evaluate("""() => {
      const ends = (name) => {
        const [path] = document.querySelectorAll(`.drag figure:first-child ${name}`);
        const at = (far) => path.getPointAtLength(far);
        return [at(0), at(path.getTotalLength())].map(({ x, y }) => [x, y]);
      };
      return [ends(".shadow"), ends(".q path").toReversed()];
    }""")
    along = [query[0] - origin[0], query[1] - origin[1]]
    shadow = [foot[0] - origin[0], foot[1] - origin[1]]
    # The foot lies on the line of the query.
    assert along[0] * shadow[1] - along[1] * shadow[0] == pytest.approx(0, abs=1)
    line, _ = page.evaluate(WORKED)
    share = math.hypot(*shadow) / math.hypot(*along)
    assert share == pytest.approx(abs(line[1]) / line[0], abs=0.01)


def test_a_shared_picture_names_both_planes(looking, serving, tmp_path):
    page = exercise(looking(serving().url), "drag")
    with page.expect_download() as download:
        share(page, "SVG")
    download.value.save_as(tmp_path / "arrows.svg")
    text = (tmp_path / "arrows.svg").read_text(encoding="utf-8")
    for name in ("Query and keys", "Values and context"):
        assert name in text


@pytest.mark.slow
def test_exercises_are_accessible_and_fit_in_every_language(looking, serving):
    look = looking(serving().url)
    for way in ("predict", "drag"):
        page = exercise(look, way, mask="causal")
        for language in LANGUAGES:
            look.speak(language)
            page.wait_for_selector(f".{way} :is(.bars, figure)")
            for width in widths_of(language, (390, 820, 1440, 1920)):
                look.resize(width)
                assert look.overflow() == 0, (way, language, width)
            assert look.violations(contrast=language == "en") == []


@pytest.mark.slow
def test_a_head_names_the_heads_that_share_its_keys(looking, serving, tmp_path):
    model = llama_folder(tmp_path / "model", num_attention_heads=6, num_key_value_heads=2)
    place = {"layer": 1, "head": 4, "said": "ab abc a c b"}
    page = looking(serving(model).url).open(f"#steps?{urlencode(place)}")
    assert "heads 3–5 share their keys and values" in page.locator(".made").inner_text()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["predict", "drag"])
def test_keys_of_the_same_word_have_their_places(looking, serving, way):
    served = serving(FOLDER)
    row, _ = head_of_the_story(served.studio, 16)
    words = [key["word"] for key in row["keys"]]
    assert len(set(words)) < len(words)
    place = {"layer": 1, "head": 2, "query": 16, "way": way, "said": SAID}
    page = looking(served.url).open(f"#steps?{urlencode(place)}")
    page.wait_for_selector(f".{way} .bars .word")
    named = page.locator(".bars .word").all_inner_texts()[: len(words)]
    twice = [word for word in words if words.count(word) > 1]
    expected = [
        f"{key['word']} {key['place']}" if key["word"] in twice else key["word"]
        for key in row["keys"]
    ]
    assert named == expected
