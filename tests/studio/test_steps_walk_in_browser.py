"""The walk of the view `steps` in a browser: played and scrubbed, and each number the trace's.

And the same walk of a head of a model, opened from the view `heads`.
"""

import re
from base64 import b64decode
from io import BytesIO
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

import pytest
import torch
from PIL import Image
from playwright.sync_api import expect

from glasshead.studio.background_jobs import Work
from glasshead.studio.shell import words
from glasshead.studio.studio import Limits
from glasshead.studio.views import heads
from glasshead.studio.views.steps import computed
from glasshead.studio.views.steps_cell import Cells
from glasshead.studio.views.steps_request import STEPS_NORMALIZERS, StepsRequest
from pretrained_folders import llama_folder
from studio.conftest import LANGUAGES, WIDTHS, address, letters, quickly, share, widths_of
from written import written

SENTENCE = "I do not like rain"
QUERY = 3
LONG = " ".join(["one two three four five six seven eight nine ten eleven twelve"] * 2)
TEXT = "ab abc a c b ab bc aa ca bab abc aab c b a a b c ab"

# The phase of the frame that is shown, and the numbers of its line.
FRAME = """() => {
  const line = document.querySelector(".walk .line");
  const numbers = [...line.querySelectorAll("data")].map((one) => Number(one.value));
  return [line.dataset.frame, numbers];
}"""
# What the stage writes, from now on, and in pixels of the page the smallest letters.
LISTEN = """() => {
  window.written = [];
  window.smallest = Infinity;
  const write = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
    window.written.push(String(text));
    const size = parseFloat(/[0-9.]+(?=px)/.exec(this.font)[0]);
    window.smallest = Math.min(window.smallest, (size * this.getTransform().a) / devicePixelRatio);
    return write.call(this, text, ...place);
  };
}"""


def walked(page):
    """The phase and the numbers of each frame, from the first one on."""
    scrubber = page.get_by_label("Frame", exact=True)
    scrubber.focus()
    page.keyboard.press("Home")
    frames = [page.evaluate(FRAME)]
    for _ in range(int(scrubber.get_attribute("max"))):
        page.keyboard.press("ArrowRight")
        frames.append(page.evaluate(FRAME))
    return frames


# The same of all frames, each as the scrubber is put to it.
FRAMES = f"""(scrubber) => Array.from({{ length: Number(scrubber.max) + 1 }}, (_, at) => {{
  scrubber.value = at;
  scrubber.dispatchEvent(new Event("input", {{ bubbles: true }}));
  return ({FRAME})();
}})"""


def close(numbers, expected):
    torch.testing.assert_close(
        torch.tensor(numbers, dtype=torch.float64),
        torch.as_tensor(expected, dtype=torch.float64),
        atol=1e-6,
        rtol=1e-5,
    )


@pytest.mark.parametrize("width", [360, 390])
def test_a_telephone_has_the_numbers_of_short_vectors_in_their_cells(looking, serving, width):
    look = looking(serving().url, width=width, height=844)
    page = look.open("#steps?text=Hello+shiny+sun!&query=1")
    page.evaluate(LISTEN)
    # A stage of another width is drawn again.
    look.resize(width - 1)
    trace = computed(StepsRequest(text="Hello shiny sun!"), Limits()).trace
    vectors = [trace.queries[1], *trace.keys, *trace.values]
    expected = {f"{number:.2f}" for vector in vectors for number in vector.tolist()}
    page.wait_for_function("() => window.written.length > 0")
    assert expected <= set(page.evaluate("window.written"))


# From now on, the boxes that the stage fills, and around each text, in the stage's own pixels.
DRAWN = """() => {
  window.boxes = [];
  window.texts = [];
  const { fillRect, fillText } = CanvasRenderingContext2D.prototype;
  Object.assign(CanvasRenderingContext2D.prototype, {
    fillRect(x, y, width, height) {
      window.boxes.push([x, y, x + width, y + height]);
      return fillRect.call(this, x, y, width, height);
    },
    fillText(text, x, y) {
      const { width } = this.measureText(text);
      window.texts.push([String(text), x, y - 5, x + width, y + 5]);
      return fillText.call(this, text, x, y);
    },
  });
}"""


def test_no_product_covers_the_number_of_its_score_on_a_telephone(looking, serving):
    look = looking(serving().url, width=390, height=844, fresh=True)
    look.page.add_init_script(f"({DRAWN})()")
    page = look.open("#steps?text=Hello+shiny+sun!&query=1&frame=1")
    expect(page.locator(".walk .line")).to_have_attribute("data-frame", "score")
    trace = computed(StepsRequest(text="Hello shiny sun!"), Limits()).trace
    told = f"{trace.scores[1, 0].item():.2f}"
    page.evaluate("() => { window.boxes = []; window.texts = []; }")
    look.resize(389)
    page.wait_for_function("(told) => window.texts.some(([text]) => text === told)", arg=told)
    texts, boxes = page.evaluate("() => [window.texts, window.boxes]")
    _, left, top, right, bottom = next(text for text in texts if text[0] == told)
    # The products are the boxes that are much lower than a line.
    products = [box for box in boxes if 1 < box[3] - box[1] < 14 and box[0] < right + 40]
    assert len(products) >= 3
    assert not any(
        box[0] < right and box[2] > left and box[1] < bottom and box[3] > top for box in products
    )


@pytest.mark.parametrize(
    ("place", "width", "height", "least"),
    [
        ("?present#steps?text=Hello+shiny+sun!", 1366, 768, 18),
        ("?present#steps?text=Hello+shiny+sun!", 1920, 1080, 26),
        ("?present#steps?layer=1&head=2", 1366, 768, 13.5),
        ("#steps?layer=1&head=2", 1440, 900, 12),
    ],
    ids=["projector", "large projector", "head on a projector", "head"],
)
def test_letters_of_a_stage_are_always_as_large_as_its_room(
    looking, serving, model, place, width, height, least
):
    # Its page is its own, because the script stays with it.
    look = looking(serving(model).url, width=width, height=height, fresh=True)
    look.page.add_init_script(f"({LISTEN})()")
    page = look.open(place)
    page.locator(".walk").get_by_role("slider").press("End")
    page.wait_for_function("() => window.written.length > 0")
    assert page.evaluate("window.smallest") >= least


def test_a_vector_of_one_number_has_a_sentence_of_its_own(looking, serving):
    page = looking(serving().url).open("#steps?text=Hello+shiny+sun!&heads=3&query=1")
    expect(page.locator(".walk .said")).to_have_text("“shiny” has a query, a vector of one number.")


@pytest.mark.parametrize("mask", quickly("causal", ["none", "causal", "window"]))
def test_each_frame_has_the_numbers_of_the_trace(looking, serving, mask):
    look = looking(serving().url)
    page = look.open(f"#steps?{urlencode({'text': SENTENCE, 'mask': mask, 'query': QUERY})}")
    trace = computed(StepsRequest(text=SENTENCE, mask=mask), Limits()).trace
    seen = trace.masked[QUERY].isfinite()
    weights, values = trace.weights[QUERY], trace.values
    keys = [at for at in range(5) if weights[at] > 0]
    frames = walked(page)
    masked = [] if mask == "none" else ["masked"]
    phases = ["query", *["score"] * 5, "scaled", *masked, "power", "weights", *["mix"] * len(keys)]
    assert [phase for phase, _ in frames] == [*phases, "context"]
    named = {phase: numbers for phase, numbers in frames if phase not in ("score", "mix")}
    close(named["query"], trace.queries[QUERY])
    for key, (_, numbers) in enumerate(frames[1:6]):
        assert len(numbers) == 2 * 4 + 1
        close(numbers[-1], trace.scores[QUERY, key])
        products = [one * other for one, other in zip(numbers[0:8:2], numbers[1:8:2], strict=True)]
        close(sum(products), trace.scores[QUERY, key])
    by_weight = weights.argsort(descending=True)
    first = int(by_weight[0])
    close(
        named["scaled"],
        [trace.problem.scale, trace.scores[QUERY, first], trace.scaled[QUERY, first]],
    )
    powers = trace.masked[QUERY].exp()
    close(named["power"][-1], powers[first])
    close(named["weights"], [powers[first], powers[seen].sum(), weights[first]])
    mixed = [numbers for phase, numbers in frames if phase == "mix"]
    for key, numbers in zip(keys, mixed, strict=True):
        close(numbers, [weights[key], *values[key]])
    close(named["context"], trace.context[QUERY])


@pytest.mark.slow
def test_each_normalizer_ends_in_its_weights(looking, serving):
    look = looking(serving().url)
    look.open("#steps")
    for normalizer in STEPS_NORMALIZERS:
        chosen = {"text": SENTENCE, "normalizer": normalizer, "query": QUERY}
        page = look.go(f"#steps?{urlencode(chosen)}")
        trace = computed(StepsRequest(text=SENTENCE, normalizer=normalizer), Limits()).trace
        named = dict(page.get_by_label("Frame", exact=True).evaluate(FRAMES))
        close(named["weights"][-1], trace.weights[QUERY].max())
        close(named["context"], trace.context[QUERY])
        assert ("power" in named) == normalizer.startswith("softmax"), normalizer


def test_what_is_drawn_is_the_frame(looking, serving):
    page = looking(serving().url).open("#steps?frame=0&beta=2")
    trace = computed(StepsRequest(beta="2"), Limits()).trace
    page.evaluate(LISTEN)
    drawn = {}
    for _ in range(10):
        page.evaluate("() => { window.written = []; }")
        page.get_by_label("Next frame").click()
        drawn[page.evaluate(FRAME)[0]] = page.evaluate("() => window.written")
    for at in range(3):
        assert f"{trace.scores[1, at]:.2f}" in drawn["score"]
        assert f"{trace.scaled[1, at]:.2f}" in drawn["scaled"]
        assert f"{trace.weights[1, at]:.3f}" in drawn["weights"]
        assert f"{trace.weights[1, at]:.3f}" not in drawn["score"]
        assert f"{trace.context[1, at]:.2f}" in drawn["context"]
    assert "Σ p = 1" in drawn["weights"]


@pytest.mark.slow
def test_still_where_motion_is_reduced(looking, serving):
    page = looking(serving().url).open("#steps?frame=2")
    assert page.get_by_role("button", name="Play").count() == 0
    page.evaluate(LISTEN)
    page.get_by_label("Next frame").click()
    assert page.evaluate(FRAME)[0] == "score"
    assert page.locator(".player output").inner_text() == "Frame 4 / 10"
    page.keyboard.press("Escape")
    page.locator("main").focus()
    page.keyboard.press("Space")
    count = page.evaluate("() => window.written.length")
    page.wait_for_timeout(400)
    assert page.evaluate("() => window.written.length") == count
    assert page.locator(".player output").inner_text() == "Frame 4 / 10"
    assert "frame=3" in address(page)


@pytest.mark.slow
def test_space_plays_and_pauses(looking, serving):
    look = looking(serving().url)
    look.page.emulate_media(reduced_motion="no-preference")
    page = look.open("#steps?frame=0")
    page.evaluate(LISTEN)
    page.locator("main").focus()
    page.keyboard.press("Space")
    page.get_by_role("button", name="Pause").wait_for()
    page.wait_for_function("() => document.querySelector('.walk .line').dataset.frame === 'score'")
    count = page.evaluate("() => window.written.length")
    page.wait_for_function(f"() => window.written.length > {count}")
    page.keyboard.press("Space")
    page.get_by_role("button", name="Play").wait_for()
    frame = page.locator(".player output").inner_text()
    page.wait_for_timeout(300)
    assert page.locator(".player output").inner_text() == frame
    # A letter in a field is a letter.
    field = page.get_by_label("A sentence of your own")
    field.fill("one")
    field.press("Space")
    assert field.input_value() == "one "
    assert page.get_by_role("button", name="Pause").count() == 0


@pytest.mark.slow
def test_it_plays_to_its_end_and_tells_each_phase_once(looking, serving):
    look = looking(serving().url)
    look.page.emulate_media(reduced_motion="no-preference")
    page = look.open("#steps?frame=5&mask=causal&beta=2")
    page.evaluate(
        """() => {
          window.shown = [];
          const said = document.querySelector(".walk .said");
          new MutationObserver(() => window.shown.push(said.textContent))
            .observe(said, { childList: true });
        }"""
    )
    page.get_by_role("button", name="Play").click()
    page.wait_for_function(
        "() => document.querySelector('.walk .line').dataset.frame === 'context'"
    )
    shown = page.evaluate("() => window.shown")
    assert len(shown) == len(set(shown)) == 4
    assert shown[-1] == "The context of “shiny” is the sum of the values, each times its weight."
    page.get_by_role("button", name="Play").wait_for()


def test_a_link_to_a_frame_opens_the_words_at_its_section(looking, serving):
    look = looking(serving().url)
    page = look.open("#steps?frame=7")
    page.wait_for_selector(".body[data-drawn]")
    # The next to last frame mixes the values.
    expect(page.locator(".words .here")).to_have_attribute("data-step", "context")
    page.wait_for_function("() => document.querySelector('.words').scrollTop > 0")
    page = look.open("#steps")
    page.wait_for_selector(".body[data-drawn]")
    assert page.locator(".words").evaluate("(words) => words.scrollTop") == 0


def test_another_word_and_a_link_keep_the_frame(looking, serving):
    page = looking(serving().url).open("#steps?frame=2&query=2")
    assert page.evaluate(FRAME)[0] == "score"
    trace = computed(StepsRequest(), Limits()).trace
    close(page.evaluate(FRAME)[1][-1], trace.scores[2, 1])
    page.get_by_label("Explained word").select_option("0")
    page.locator(".words h2", has_text="“Hello”").wait_for()
    close(page.evaluate(FRAME)[1][-1], trace.scores[0, 1])


def test_an_infinite_factor_is_told_in_the_weights(looking, serving):
    page = looking(serving().url).open("#steps?beta=inf&frame=4")
    summary = page.locator(".walk summary")
    assert summary.inner_text() == "Steps without effect here: softcap, bias, mask, dropout"
    said = page.locator(".walk .said")
    told = "β = ∞ gives all the weight to the largest score, as HardMax does."
    assert said.inner_text() == told
    # Neither does the explanation scale a score, nor a frame among the steps without effect.
    assert page.locator("[data-step=weights]").count() == 1
    assert page.locator("[data-step=scaled]").count() == 0
    summary.click()
    expect(page.locator(".player output")).to_have_text("Frame 8 / 11")
    expect(said).to_have_text(told)


def test_the_explanation_follows_to_the_weights_of_another_factor(looking, serving):
    page = looking(serving().url).open("#steps")
    title = page.locator("aside.words [data-step=weights] h3")
    expect(title).not_to_be_in_viewport()
    page.get_by_label("Inverse temperature").press("End")
    expect(title).to_be_in_viewport(ratio=1)


def test_another_normalizer_is_seen_in_the_weights(looking, serving):
    page = looking(serving().url).open("#steps?frame=0")
    page.get_by_label("Normalizer").select_option("sparsemax")
    expect(page.locator(".walk .line[data-frame=weights]")).to_be_visible()


def test_another_factor_is_seen_in_the_weights(looking, serving):
    page = looking(serving().url).open("#steps?frame=0")
    assert ", " in page.locator(".walk .line").evaluate("line => line.innerText")
    page.get_by_label("Inverse temperature").press("ArrowRight")
    expect(page.locator(".walk .line[data-frame=weights]")).to_be_visible()
    expect(page).to_have_url(re.compile("frame=6"))


@pytest.mark.parametrize(("place", "width", "frame"), [("", 820, 4), ("?present", 1366, 9)])
def test_each_number_of_the_vectors_of_a_head_is_written(
    looking, serving, model, place, width, frame
):
    look = looking(serving(model).url, width=width, height=1024, fresh=True)
    look.page.add_init_script(f"({LISTEN})()")
    page = look.open(f"{place}#steps?layer=1&head=2&frame={frame}")
    page.wait_for_function("() => window.written.length > 0")
    page.evaluate("window.written = []")
    page.get_by_label("Frame", exact=True).press("ArrowRight")
    page.wait_for_function("() => window.written.length > 0")
    q = page.evaluate("() => window.written.filter((one) => /^−?[0-9.]+$/.test(one)).length")
    assert q > 60


def shown_frame(page):
    return page.evaluate(FRAME)[0], page.locator(".player output").inner_text()


def test_steps_without_effect_are_folded_and_open_by_the_keyboard(looking, serving):
    look = looking(serving().url)
    page = look.open("#steps?beta=1&frame=3")
    fold = page.locator(".walk .fold")
    said = fold.locator("summary").inner_text()
    assert said == "Steps without effect here: β = 1, softcap, bias, mask, dropout"
    assert fold.locator("li:visible").count() == 0
    assert shown_frame(page) == ("score", "Frame 4 / 10")
    # The stepper skips them.
    page.get_by_label("Next frame").click()
    assert shown_frame(page) == ("power", "Frame 5 / 10")
    fold.locator("summary").press("Enter")
    page.locator(".player output", has_text="/ 15").wait_for()
    assert shown_frame(page) == ("power", "Frame 9 / 15")
    assert fold.locator("li:visible").count() == 5
    assert "idle=1" in address(page)
    assert "frame=8" in address(page)
    trace = computed(StepsRequest(beta="1"), Limits()).trace
    first = int(trace.weights[1].argmax())
    for phase, number, said in (
        ("masked", trace.masked[1, first], "No mask hides a key."),
        ("biased", trace.masked[1, first], "No bias changes the scores."),
        ("capped", trace.capped[1, first], "No softcap bends the scores."),
        ("scaled", trace.scaled[1, first], "β is 1, so each score stays as it is."),
    ):
        page.get_by_label("Previous frame").click()
        found, numbers = page.evaluate(FRAME)
        assert found == phase
        close(numbers[-1], number)
        assert page.locator(".walk .said").inner_text() == said
    # An address holds it.
    page = look.open("#steps?beta=1&frame=10&idle=1")
    assert shown_frame(page) == ("dropped", "Frame 11 / 15")
    close(page.evaluate(FRAME)[1], [trace.weights[1, first]])
    # What is folded gives way to the next step.
    fold.locator("summary").click()
    page.locator(".player output", has_text="/ 10").wait_for()
    assert shown_frame(page) == ("mix", "Frame 7 / 10")
    assert "idle" not in address(page)


def test_a_folded_step_gives_way_to_the_one_after_it_however_many_are_folded(looking, serving):
    page = looking(serving().url).open("#steps?beta=1&frame=7&idle=1")
    assert shown_frame(page) == ("masked", "Frame 8 / 15")
    page.locator(".walk .fold summary").click()
    page.locator(".player output", has_text="/ 10").wait_for()
    assert shown_frame(page) == ("power", "Frame 5 / 10")


def test_a_step_that_comes_to_have_an_effect_joins_the_walk(looking, serving):
    page = looking(serving().url).open("#steps?beta=1&frame=5")
    before, _ = shown_frame(page)
    page.locator("fieldset", has_text="Mask").get_by_text("causal").click()
    page.locator(".fold summary", has_text="β = 1, softcap, bias, dropout").wait_for()
    assert shown_frame(page)[0] == before == "weights"
    # The last word sees all others: its mask has no effect.
    page.get_by_label("Explained word").select_option("2")
    page.locator(".fold summary", has_text="mask").wait_for()
    assert shown_frame(page)[0] == "weights"


@pytest.mark.slow
def test_steps_without_effect_are_named_in_every_language(looking, serving):
    look = looking(serving().url, width=390)
    page = look.open("#steps?beta=1&idle=1")
    for language in LANGUAGES:
        look.speak(language)
        names = words(language)
        shown = page.locator(".walk .fold").inner_text()
        for phase in ("scaled", "capped", "biased", "masked", "dropped"):
            assert names[f"walk.idle.{phase}"] in shown
            assert phase == "scaled" or names[f"walk.step.{phase}"] in shown
        assert look.overflow() == 0
        assert look.violations(contrast=language == "en") == []


# What a page of a long sentence must be at a width, and where the weights of the word stand in it.
FITS = """async () => {
  document.querySelector("table[data-matrix=scores]").scrollIntoView({ block: "nearest" });
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  const { width, height } = document.querySelector(".stage").getBoundingClientRect();
  return [width, height, document.querySelector(".sum .strip").getBoundingClientRect().y];
}"""


@pytest.mark.slow
def test_a_long_sentence_fits_each_width_in_each_language(looking, serving):
    look = looking(serving().url)
    page = look.open(f"#steps?{urlencode({'text': LONG, 'frame': 27, 'mask': 'causal'})}")
    page.evaluate(LISTEN)
    for language in LANGUAGES:
        look.speak(language)
        for width in reversed(widths_of(language, sorted({*WIDTHS, 820, 1440}))):
            look.resize(width)
            assert look.overflow() == 0, (language, width)
            wide, high, strip = page.evaluate(FITS)
            assert high < 700
            assert wide <= width
            # The weights of the word stay in sight while one scrolls through the tables.
            assert 0 <= strip < 900
        # Where the tables have to be scrolled.
        if language == "en":
            assert look.violations(contrast=False) == []
        drawn = page.evaluate("() => window.written.splice(0)")
        assert not any(re.search(r"\b(steps|walk)\.[a-z]", word) for word in drawn)


def test_powers_of_large_scores_are_relative_to_the_largest_which_the_page_says(looking, serving):
    chosen = {"text": SENTENCE, "beta": "50", "query": QUERY}
    page = looking(serving().url).open(f"#steps?{urlencode({**chosen, 'frame': 7})}")
    assert page.evaluate(FRAME)[0] == "power"
    trace = computed(StepsRequest(text=SENTENCE, beta="50"), Limits()).trace
    scores = trace.masked[QUERY].sort(descending=True).values
    close(page.evaluate(FRAME)[1][-1], (scores[1] - scores[0]).exp())
    said = page.locator(".walk .said").inner_text()
    assert "The largest score m = " in said
    assert f"{scores[0]:.4f}".rstrip("0") in said


def test_titles_stand_above_the_keys_and_a_mask_changes_none(looking, serving):
    page = looking(serving().url).open("#steps?mask=causal&beta=2&frame=0")
    page.evaluate("""() => {
      const draw = CanvasRenderingContext2D.prototype.fillText;
      window.placed = {};
      CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
        window.placed[text] = y;
        return draw.call(this, text, x, y);
      };
    }""")
    page.get_by_label("Frame", exact=True).evaluate(FRAMES)
    placed = page.evaluate("() => window.placed")
    assert "Masked" not in placed
    query = next(y for text, y in placed.items() if text.startswith("q("))
    assert query < placed["Keys"] == placed["Scaled"] < placed["Hello"]


@pytest.mark.slow
def test_titles_of_the_stage_are_whole_on_a_telephone(looking, serving):
    look = looking(serving().url, width=390)
    page = look.open("#steps?mask=causal&frame=0&beta=2")
    page.evaluate(LISTEN)
    for language in LANGUAGES:
        look.speak(language)
        names = words(language)
        page.get_by_label(names["walk.at"], exact=True).evaluate(FRAMES)
        written = page.evaluate("() => window.written.splice(0)")
        for name in ("keys", "scores", "scaled", "weights", "values"):
            assert names[f"steps.{name}"] in written


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return llama_folder(tmp_path_factory.mktemp("models") / "llama")


@pytest.mark.slow
def test_a_cell_of_a_head_is_opened_in_steps(looking, serving, model):
    served = serving(model)
    look = looking(served.url, width=1440)
    name = served.studio.texts.add(TEXT)
    page = look.open(f"#heads?text={name}&layer=1&head=2&query=13&key=4")
    page.get_by_role("link", name="Open this cell in Steps").click()
    page.wait_for_selector(".view.steps .body[data-drawn]")
    held = address(page)
    for part in ("layer=1", "head=2", "query=13", "key=4", f"text={name}"):
        assert part in held
    row = Cells(served.studio).row(name, 1, 2, 13, 4, Work())
    reading = heads.reading_of(served.studio, name, Work())
    weights = heads.whole_map(reading, 1, 2)[13].abs()
    rows = page.locator("table.cell tbody tr")
    assert rows.count() == len(row["keys"]) + 1
    for at, key in enumerate(sorted(row["keys"], key=lambda key: -key["weight"])):
        cells = (
            rows.nth(at).locator("td").evaluate_all("(all) => all.map((one) => one.dataset.value)")
        )
        close(float(cells[0]), key["score"])
        close(float(cells[1]), key["scaled"])
        close(float(cells[-1]), weights[key["place"]])
        written = rows.nth(at).locator("td").last.inner_text()
        assert written == ("<0.0001" if key["weight"] < 0.00005 else f"{key['weight']:.4f}")
    # The strip names the key that gets most.
    most = max(range(len(row["weights"])), key=row["weights"].__getitem__)
    assert page.locator(".strip small").inner_text() == row["tokens"][most]
    frames = walked(page)
    close(dict(frames)["query"], row["q"])
    scores = [numbers for phase, numbers in frames if phase == "score" and numbers]
    for numbers, key in zip(scores, row["keys"], strict=True):
        close(numbers[-1], key["score"])
        pairs = zip(numbers[0:8:2], numbers[1:8:2], strict=True)
        close(sum(one * other for one, other in pairs) + numbers[8], key["score"])
    close(dict(frames)["context"], row["context"])
    # The frame of all other keys, which follows those of the keys.
    page.get_by_label("Frame", exact=True).fill(str(len(row["keys"]) + 1))
    expect(page.locator(".walk .line")).to_have_text("s = q·k")
    assert look.violations() == []
    for width in (390, 820, 1440):
        look.resize(width)
        assert look.overflow() == 0
    # And it goes back with what is selected.
    page.get_by_role("link", name="Attention heads").click()
    page.wait_for_selector(".view.heads .body[data-drawn]")
    assert "layer=1" in address(page)


@pytest.mark.slow
def test_the_controls_of_a_cell_choose_another(looking, serving, model):
    served = serving(model)
    look = looking(served.url, expected=("400",))
    name = served.studio.texts.add(TEXT)
    page = look.open(f"#steps?text={name}&layer=0&head=0&frame=99")
    page.get_by_label("Layer, from 0").select_option("1")
    page.locator("h2 code", has_text="layers.1").wait_for()
    page.get_by_label("Query", exact=True).focus()
    page.get_by_label("Query", exact=True).select_option("5")
    page.wait_for_selector(".view.steps .body[data-drawn]")
    assert page.evaluate("() => document.activeElement.labels[0].textContent") == "Query"
    row = Cells(served.studio).row(name, 1, 0, 5, None, Work())
    close(page.evaluate(FRAME)[1], row["context"])
    look.open(f"#steps?text={name}&layer=7&head=0")
    assert "Layer must be from 0 to 1, got 7" in page.locator(".refused").inner_text()
    look.open(f"#steps?text={name}&layer=1&head=0")
    page.get_by_role("link", name="The worked example").click()
    page.wait_for_selector("table[data-matrix=weights]")
    assert page.locator("table[data-matrix]").count() == 8


@pytest.mark.slow
def test_without_a_model_the_example_is_shown(looking, serving):
    page = looking(serving().url).open("#steps?layer=1&head=2&query=13")
    assert page.locator("table[data-matrix]").count() == 8


@pytest.mark.slow
def test_twelve_heads_are_chosen_from(looking, serving, tmp_path):
    folder = written(tmp_path / "run", "num_heads=12", "d_model=48").path
    look = looking(serving(folder).url, width=390)
    page = look.open("#steps?layer=0&head=11&said=a+big+red+dog")
    assert page.get_by_label("Head, from 0").input_value() == "11"
    assert page.get_by_label("Head, from 0").locator("option").count() == 12
    assert look.overflow() == 0


@pytest.mark.slow
def test_a_weight_has_one_color_on_the_stage_and_in_the_table(looking, serving):
    page = looking(serving().url).open("#steps?frame=10")
    seen, cells = page.evaluate("""() => {
      const canvas = document.querySelector("canvas.stage");
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      const seen = new Set();
      for (let at = 0; at < data.length; at += 4) {
        seen.add(`rgb(${data[at]}, ${data[at + 1]}, ${data[at + 2]})`);
      }
      const row = document.querySelectorAll("table[data-matrix=weights] tr.here td[data-cell]");
      return [[...seen], [...row].map((cell) => getComputedStyle(cell).backgroundColor)];
    }""")
    assert len(set(cells)) == 3
    assert set(cells) <= set(seen)


# The longest bar right of the keys: pixels of a row that are alike, and not as light as the page.
LONGEST = """() => {
  const canvas = document.querySelector("canvas.stage");
  const { data, width } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const pixels = new Uint32Array(data.buffer);
  let longest = 0;
  for (let at = 1, run = 1; at < pixels.length; at += 1) {
    run = at % width > width / 4 && pixels[at] === pixels[at - 1] ? run + 1 : 1;
    if (data[4 * at] < 180 && data[4 * at + 3] === 255) longest = Math.max(longest, run);
  }
  return longest;
}"""


@pytest.mark.parametrize(("beta", "grows"), [(20, True), (0.5, False)])
def test_bars_of_scores_grow_with_a_larger_factor_and_shrink_with_a_smaller(
    looking, serving, beta, grows
):
    look = looking(serving().url)
    before, after = (
        look.open(f"#steps?text=Hello+shiny+sun!&beta={beta}&frame={frame}").evaluate(LONGEST)
        for frame in (3, 4)
    )
    assert min(before, after) > 50
    assert (after > 1.3 * before) if grows else (after < before / 1.3)


def assert_saves_the_walk(page):
    """The picture has the frame that is shown and its sentences."""
    with page.expect_download() as saved:
        share(page, "SVG")
    svg = ET.parse(saved.value.path()).getroot()
    said = page.locator(".walk .told > *").evaluate_all("all => all.map((one) => one.textContent)")
    assert all(said)
    assert all("".join(each.split()) in letters(svg) for each in said)
    folded = page.locator(".walk .fold:not([open]) li").all_text_contents()
    assert folded
    assert not any("".join(each.split()) in letters(svg) for each in folded)
    (image,) = (one for one in svg.iter() if one.tag.endswith("image"))
    stage = page.locator("canvas.stage")
    with Image.open(BytesIO(b64decode(image.get("href").partition(",")[2]))) as painted:
        shown = stage.evaluate("({clientWidth: x, clientHeight: y}) => [x, y]")
        assert painted.size == tuple(3 * side for side in shown)
    # The page is as it was.
    assert stage.evaluate("(canvas) => canvas.width / canvas.clientWidth") == 1
    return said, image.get("href")


@pytest.mark.slow
def test_the_picture_has_the_frame_of_the_walk(looking, serving):
    page = looking(serving().url).open("#steps?mask=causal&frame=2")
    page.wait_for_selector(".view.steps .body[data-drawn]")
    before = assert_saves_the_walk(page)
    page.get_by_label("Frame", exact=True).press("End")
    after = assert_saves_the_walk(page)
    assert all(one != other for one, other in zip(before, after, strict=True))


@pytest.mark.slow
def test_the_picture_of_a_head_has_its_walk(looking, serving, model):
    served = serving(model)
    name = served.studio.texts.add(TEXT)
    page = looking(served.url).open(f"#steps?text={name}&layer=1&head=2&query=5")
    page.wait_for_selector(".view.steps .body[data-drawn]")
    assert_saves_the_walk(page)
