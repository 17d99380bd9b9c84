"""Why a head gives a key its weight: the parts of a score, and the page that draws them."""

import re
from itertools import pairwise

import pytest
import torch
from fastapi.testclient import TestClient
from playwright.sync_api import expect

import glasshead as gh
from glasshead.studio.app import application
from glasshead.tasks.write import Writer
from studio.conftest import LANGUAGES, WIDTHS, address, together
from studio.heads.heads_seen import FIELD, OPEN, TEXT

CELL = {"layer": 1, "head": 2, "query": 5, "key": 3}


@pytest.fixture(scope="module")
def client(studio):
    return TestClient(application(studio), base_url="http://127.0.0.1")


@pytest.fixture(scope="module")
def scores(folder, reading):
    """The parts of the scores of a query, by the library."""
    model = Writer.load(folder).model
    with torch.no_grad(), gh.watch(model, keep="parts") as seen:
        model(reading.tokens[None])
    return gh.score_parts(seen, "blocks.1.attention", head=2, query=5)


def asked(client, studio, **changes):
    cell = CELL | {"text": studio.texts.add(TEXT)} | changes
    return client.get("/api/heads/why", params=cell)


def test_the_parts_are_those_of_the_contrast(client, studio, scores):
    told = asked(client, studio).json()
    assert told["score"] == pytest.approx(float(scores.score[3]), rel=1e-5)
    # A causal query sees itself and all before it.
    assert told["others"] == 5
    mean = float(scores.score[[0, 1, 2, 4, 5]].mean())
    assert told["contrast"] == pytest.approx(float(scores.score[3]) - mean, abs=1e-5)
    for side in ("key", "query"):
        right = dict(zip(scores.names, scores.contrast(3, side=side).tolist(), strict=True))
        parts = told[side]["parts"]
        assert [part["part"] for part in parts] == pytest.approx(
            [right[part["name"]] for part in parts], abs=1e-5
        )
        sizes = [abs(part["part"]) for part in parts]
        assert sizes == sorted(sizes, reverse=True)
        total = sum(part["part"] for part in parts) + told[side]["rest"]
        assert total == pytest.approx(told["contrast"], abs=1e-5)
        assert len(parts) + told[side]["count"] == len(scores.components)
        for part in parts:
            of_head = f"blocks.0.attention head {part['head']}"
            assert (part["layer"] == 0) == (part["name"] == of_head)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"layer": 2}, "layer must be from 0 to 1, got 2"),
        ({"head": 3}, "head must be from 0 to 2, got 3"),
        ({"query": 999}, "query must be from 0 to"),
        ({"key": 999}, "key must be from 0 to"),
    ],
)
def test_a_cell_that_is_not_there_is_refused(client, studio, changes, sentence):
    answer = asked(client, studio, **changes)
    assert answer.status_code == 400
    assert sentence in answer.text


def opened(looking, place):
    url, view = place
    return looking(url).open(view + OPEN)


def ask(page):
    page.locator(".why .ask").click()
    expect(page.locator(".why .waterfall")).to_be_visible()


def test_an_answer_goes_with_its_text(looking, place):
    page = opened(looking, place)
    ask(page)
    page.route("**/heads/why*", lambda _: None)
    page.get_by_text("Choose a text").click()
    page.locator(FIELD).fill("a dog")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator(".said")).to_contain_text("Tokens: 5.")
    expect(page.locator(".why .answer")).to_have_text(re.compile("Splitting the score"))
    page.unroute_all()


def test_the_waterfall_leads_to_the_head_that_wrote_a_part(looking, place, client, studio):
    page = opened(looking, place)
    expect(page.locator(".why .waterfall")).to_have_count(0)
    ask(page)
    assert "why=key" in address(page)
    told = asked(client, studio).json()
    values = [float(cell.get_attribute("data-value")) for cell in page.locator(".why .part").all()]
    parts = [part["part"] for part in told["key"]["parts"]]
    rest = [told["key"]["rest"]] if told["key"]["count"] else []
    assert values == pytest.approx([*parts, *rest, told["contrast"]], abs=1e-5)
    # Each bar begins where the one before it ends.
    ends = page.locator(".why tr:not(.sum) .bar").evaluate_all(
        "bars => bars.map((bar) => [bar.offsetLeft, bar.offsetLeft + bar.offsetWidth, "
        "bar.classList.contains('less')])"
    )
    for (left, right, less), (next_left, next_right, next_less) in pairwise(ends):
        assert abs((left if less else right) - (next_right if next_less else next_left)) <= 3
    heads = page.locator(".why .waterfall button")
    name = heads.first.inner_text()
    heads.first.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".one .head h2")).to_contain_text(name)
    assert "layer=0" in address(page)
    assert "query=3" in address(page)


def test_another_cell_and_side_are_answered_and_closed_again(looking, place):
    page = opened(looking, place)
    ask(page)
    title = page.locator(".why h3").inner_text()
    page.locator(".why .choice label").last.click()
    assert "why=query" in address(page)
    page.locator(".map canvas").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".why h3")).not_to_have_text(title)
    page.reload()
    expect(page.locator(".why .waterfall")).to_be_visible()
    expect(page.locator(".why input[value=query]")).to_be_checked()
    page.locator(".why .ask").click()
    expect(page.locator(".why .waterfall")).to_have_count(0)
    assert "why=" not in address(page)


def test_a_link_leads_to_the_answer(looking, place):
    url, view = place
    page = looking(url, width=1280, height=720).open(view + OPEN + "&why=key")
    expect(page.locator(".why .waterfall")).to_be_in_viewport(ratio=0.9)


@pytest.mark.parametrize("height", [620, 768])
def test_a_presentation_begins_at_the_answer_with_its_sum_in_sight(looking, place, height):
    url, view = place
    page = looking(url, width=1366, height=height).open(f"?present{view}{OPEN}&why=key")
    expect(page.locator(".why .waterfall")).to_be_visible()
    expect(page.locator(".presenting [role=status]")).to_have_text("Panel 3 / 4")
    said = page.get_by_text("Weights depend on differences of scores alone.")
    assert said.is_visible() == (height == 768)
    total = page.locator(".why tr.sum").bounding_box()
    bar = page.locator(".presenting").bounding_box()
    assert total["y"] + total["height"] <= bar["y"]


def test_a_query_that_sees_one_key_has_no_parts(looking, place):
    url, view = place
    page = looking(url).open(f"{view}&layer=1&head=2&query=0&key=0&why=key")
    expect(page.locator(".why .answer")).to_contain_text("sees no other key")


@pytest.mark.parametrize("languages", together("en", LANGUAGES))
def test_the_answer_is_accessible_and_fits_every_width(looking, place, languages):
    url, view = place
    for language in languages:
        look = looking(url, language=language)
        page = look.open(view + OPEN + "&why=key")
        expect(page.locator(".why .waterfall")).to_be_visible()
        assert look.violations() == []
        for width in WIDTHS:
            look.resize(width)
            assert look.overflow() == 0, (language, width)
