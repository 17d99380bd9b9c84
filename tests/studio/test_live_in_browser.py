"""The page without a server: its numbers are those of the library, and it asks for nothing."""

import itertools
import random

import pytest
import torch

from glasshead.studio.background_jobs import Work
from glasshead.studio.live import live_page
from glasshead.studio.studio import Limits, Studio
from glasshead.studio.views import heads
from glasshead.studio.views.heads_compared import compared, difference
from glasshead.studio.views.prompt import Prompts
from glasshead.studio.views.prompt_compared import ComparedPrompts
from glasshead.studio.views.steps import steps_data
from glasshead.studio.views.steps_cell import Cells
from glasshead.studio.views.steps_request import BETAS, MASKS, STEPS_NORMALIZERS, StepsRequest
from glasshead.tasks.data.stories import held_out
from glasshead.tasks.story_model import FOLDER
from studio.conftest import LANGUAGES, WIDTHS, together, widths_of

STORIES = held_out(200, seed=7)
ODD = [
    "x",
    "cup Tom river red key pond cup Tom river red key pond",
    "Ünïcode ☀ 注意力 é\tand\n tabs <end> it's, they've; 3.14 -- ...",
    " ".join(STORIES[:3]),  # longer than the context
]


@pytest.fixture(scope="module")
def studio():
    return Studio(FOLDER)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    file = tmp_path_factory.mktemp("live") / "index.html"
    file.write_text(live_page(), encoding="utf-8")
    return file


@pytest.fixture
def look(page, looking):
    return looking(page.as_uri())


ASK = """async ([kind, path, params]) => {
  const answer = await glasshead.sources[0][kind](path, params);
  return answer?.values ? { values: [...answer.values], shape: answer.shape,
    hidden: [...answer.values].map((each) => Object.is(each, -0)) } : answer;
}"""


class Live:
    """What the page itself answers."""

    def __init__(self, look):
        self.page = look.open()

    def __call__(self, path, **params):
        return self.page.evaluate(ASK, ["json", path, params])

    def numbers(self, path, **params):
        found = self.page.evaluate(ASK, ["numbers", path, params])
        tensor = torch.tensor(found["values"]).reshape(found["shape"])
        return tensor, torch.tensor(found["hidden"]).reshape(found["shape"])

    def send(self, text):
        return self.page.evaluate("(text) => glasshead.sources[0].send(text)", text)


def close(found, expected, within=1e-4):
    """Whether two answers are equal, their numbers nearly."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        return all(close(found[name], expected[name], within) for name in expected)
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(
            close(one, other, within) for one, other in zip(found, expected, strict=True)
        )
    if isinstance(expected, float) and isinstance(found, float | int):
        return abs(found - expected) <= within
    return found == expected


def near(found, expected):
    (values, hidden), expected = found, expected.float()
    assert values.shape == expected.shape
    assert (values - expected).abs().max() < 1e-4
    return torch.equal(hidden, (expected == 0) & expected.signbit())


def check_prompt(live, studio, text, without):
    prompts, work = Prompts(studio), Work()
    listed = ",".join(f"{layer}.{head}" for layer, head in without)
    expected = prompts.predictions(text, without, 10, 0.7, work)
    found = live("prompt", text=text, without=listed, temperature=0.7)
    assert close(found, expected)
    assert near(
        live.numbers("prompt/maps", text=text, without=listed), prompts.maps(text, without, work)
    )
    shown = [(0, 3), (2, 1)]
    weights = live.numbers("prompt/weights", text=text, without=listed, heads="0.3,2.1")
    assert near(weights, prompts.weights(text, without, shown, work))


def check_heads(live, studio, text):
    name, own = live.send(text), studio.texts.add(text)
    reading = heads.reading_of(studio, own, Work())
    found, expected = live("heads/reading", text=name), heads.summary(reading)
    assert close(found, expected)
    layer, head = expected["first"]
    place = {"text": name, "layer": layer, "head": head}
    assert near(live.numbers("heads/weights", **place), heads.whole_map(reading, layer, head))
    assert (
        live.numbers("heads/along", **place)[0] - heads.along(reading, layer, head)
    ).abs().max() < 1e-3
    query = reading.length // 2
    cell = Cells(studio).row(own, layer, head, query, 0, Work())
    assert close(live("steps/cell", **place, query=query, key=0), cell)
    found, _ = live.numbers("steps/vectors", **place, query=query)
    expected = Cells(studio).vectors(own, layer, head, query, Work())
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_its_numbers_are_those_of_the_library(look, studio):
    live = Live(look)
    for text, without in zip(
        [*ODD, STORIES[0]], [[], [(1, 3)], [(0, 0), (2, 2)], [], []], strict=True
    ):
        check_prompt(live, studio, text, without)
        check_heads(live, studio, text)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_its_numbers_are_those_of_the_library_over_200_prompts(look, studio):
    live, drawn = Live(look), random.Random(11)
    every = [*itertools.product(range(3), range(4))]
    for number, story in enumerate(STORIES):
        text = story[: drawn.randint(3, len(story))]
        check_prompt(live, studio, text, drawn.sample(every, number % 4))
        if number % 5 == 0:
            check_heads(live, studio, text)


@pytest.mark.parametrize("without", [[], [(1, 2), (2, 0)]], ids=["whole", "ablated"])
def test_two_prompts_are_compared_as_the_library_compares_them(look, studio, without):
    live, work = Live(look), Work()
    for texts in [("Lily had a red ball. The", "Lily had a blue kite. The"), (ODD[1], ODD[0])]:
        expected = ComparedPrompts(studio).compared(texts, without, 5, 0.7, work)
        listed = ",".join(f"{layer}.{head}" for layer, head in without)
        asked = {"text": texts[0], "minus": texts[1], "without": listed}
        found = live("prompt/compared", **asked, top=5, temperature=0.7)
        assert found["changed"]["parts"]
        assert close(found, expected, within=1e-3)


def test_two_texts_are_compared_as_the_library_compares_them(look, studio):
    live = Live(look)
    texts = ["Lily had a red ball.", "Lily had a blue kite."]
    names = [live.send(text) for text in texts]
    one, other = (heads.reading_of(studio, studio.texts.add(text), Work()) for text in texts)
    asked = {"text": names[0], "minus": names[1]}
    assert close(live("heads/compared", **asked), compared(one, other) | {"refused": None})
    maps = [heads.whole_map(reading, 1, 2) for reading in (one, other)]
    assert near(live.numbers("heads/weights", **asked, layer=1, head=2), difference(*maps))


REQUESTS = [
    {},
    {"beta": "inf"},
    {"beta": "5", "mask": "causal", "normalizer": "softmax-one"},
    {
        "text": "Your journey starts with one step",
        "source": "B",
        "mask": "causal",
        "heads": 2,
        "head": 1,
    },
    {"text": "Your journey starts with one step", "source": "C", "normalizer": "entmax15"},
    {"text": "Hello shiny sun!", "source": "D", "mask": "window", "normalizer": "hardmax"},
    {
        "text": "İstanbul'da 3.14'ten söz ettik... değil mi? 注意",
        "mask": "window",
        "heads": 4,
        "head": 3,
    },
    {"text": "a a b ☀️ don't!", "normalizer": "sparsemax", "decimals": 7},
    {"text": "sun", "normalizer": "sigmoid", "beta": "0.3"},
]


def check_steps(live, request):
    expected = steps_data(StepsRequest(**request), Limits())
    assert close(live("steps", **request), expected, within=1e-9)


def test_the_worked_example_is_that_of_the_library(look):
    live = Live(look)
    for request in REQUESTS:
        check_steps(live, request)


@pytest.mark.slow
def test_the_worked_example_is_that_of_the_library_with_every_setting(look):
    live = Live(look)
    texts = [None, "Your journey starts with one step", "A sentence of my own, with (7) words."]
    for text, beta, mask, normalizer in itertools.product(texts, BETAS, MASKS, STEPS_NORMALIZERS):
        request = StepsRequest(text=text, beta=beta, mask=mask, normalizer=normalizer)
        try:
            steps_data(request, Limits())
        except ValueError:
            continue
        check_steps(live, request.parameters() | ({} if text is None else {"text": text}))


def test_the_page_draws_before_its_model_has_arrived(page, look):
    whole = page.read_text(encoding="utf-8")
    page.with_name("cut.html").write_text(
        whole.partition('<script type="application/json" id="story"')[0]
    )
    look.url = page.with_name("cut.html").as_uri()
    look.expected = ("textContent",)
    shown = look.open()
    assert shown.locator(".arcs path").count() > 0
    assert shown.locator(".bars .number").count() == 10


def test_a_head_is_ablated_and_its_steps_are_walked(look, studio):
    page = look.open("#prompt?text=cup+Tom+river+cup+Tom")
    page.get_by_text("ablates it").click()
    page.locator('.grid [data-layer="1"][data-head="3"]').click()
    page.wait_for_selector("p.away:not(:empty)")
    told = Prompts(studio).predictions("cup Tom river cup Tom", [(1, 3)], 10, 1.0, Work())
    assert float(page.locator(".loss").get_attribute("data-value")) == pytest.approx(
        told["loss"], abs=1e-4
    )
    page = look.open("#steps?layer=1&head=3&said=cup+Tom+river+cup+Tom")
    assert page.locator("h2").first.inner_text().startswith("Layer 1, head 3")
    # Without a server nobody explains in words, and the page says so.
    page = look.open("#steps")
    assert (
        page.locator(".words")
        .inner_text()
        .endswith("explains each step of this sentence in words.")
    )


@pytest.mark.parametrize("views", together("prompt", ["prompt", "steps", "heads"]))
def test_it_is_accessible_and_fits_in_every_language(look, views):
    for view in views:
        for language in LANGUAGES:
            look.open(f"#{view}")
            if language != "en":
                look.speak(language)
            for width in widths_of(language, WIDTHS):
                look.resize(width)
                assert look.overflow() == 0
            assert look.violations(contrast=language == "en") == []
