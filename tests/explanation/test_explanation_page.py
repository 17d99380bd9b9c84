"""The forms an explanation takes: text, page, notebook, JSON."""

import dataclasses
import io
import json
import re
from html.parser import HTMLParser

import pytest
import rich
from explanation_told import LANGUAGES, traced, worked_example
from rich.console import Console

import glasshead as gh
from glasshead.drawing import Document
from glasshead.ladder.worked_example import HELLO_SHINY_SUN

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=y>',
    "[bold]x[/bold] {query}",
    "\x1b[31mred\n",
    "\u202eabc ${jndi} %s {0}",
)


class Page(HTMLParser):
    """The elements of a page, and what stands in it as text."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.attributes, self.texts = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.texts.append(data)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_page_has_nothing_from_outside_and_no_script(lang):
    page = worked_example(lang, printed=HELLO_SHINY_SUN).html()
    parsed = Page(page)
    assert page.startswith(f'<!doctype html>\n<html lang="{lang}">')
    assert not {"script", "link", "img", "iframe", "object", "base"} & set(parsed.elements)
    assert not [name for name, _ in parsed.attributes if name.startswith("on")]
    assert not [name for name, _ in parsed.attributes if name in ("src", "href", "action")]
    assert "http" not in page
    assert not re.search(r"@import|url\(", page)


def test_hostile_words_stay_words():
    explanation = gh.explain(traced(), tokens=HOSTILE, query=0)
    page, text = explanation.html(), explanation.text()
    assert not {"script", "img", "b"} & set(Page(page).elements)
    assert "<script>alert(1)" not in page
    assert "\x1b" not in text + page
    assert "\u202e" not in text + page
    assert "[bold]x[/bold]" in text
    assert json.loads(json.dumps(explanation.to_dict()))["tokens"] == list(HOSTILE)


def test_hostile_words_are_not_filled_in():
    explanation = gh.explain(traced(), tokens=["{query}", "{0}", "%s", "{", "{name"], query=0)
    assert "The query of “{query}” is compared" in explanation["scores"].intro[0]
    assert "“{query}” looks most at “" in explanation.text()


def test_the_terminal_shows_what_the_text_says():
    file = io.StringIO()
    explanation = worked_example()
    Console(file=file, width=80, no_color=True).print(explanation)
    assert [line.rstrip() for line in file.getvalue().splitlines()] == explanation.text(
        80
    ).splitlines()


def test_a_notebook_shows_it_by_itself():
    shown = worked_example()._repr_html_()
    assert shown.startswith('<div class="glasshead inset" lang="en">')
    assert "0.7842" in shown


@pytest.mark.parametrize("lang", LANGUAGES)
def test_json_has_every_step_in_full(lang):
    data = json.loads(json.dumps(worked_example(lang).to_dict(), allow_nan=False))
    assert data["language"] == lang
    assert data["recipe"]["score"] == "Dot"
    assert data["recipe"]["mask"] is None
    for step in data["steps"]:
        assert set(step) == {"name", "title", "text", "formula", "numbers", "why", "data"}
        assert step["data"]


def test_a_note_stands_below_the_opening():
    explanation = worked_example()
    noted = explanation.with_note("These numbers mean nothing. <b>")
    lines = noted.text().splitlines()
    note = next(place for place, line in enumerate(lines) if "mean nothing" in line)
    first = next(place for place, line in enumerate(lines) if line.startswith("1. "))
    assert note < first
    assert noted.notes == ("These numbers mean nothing. <b>",)
    assert explanation.notes == ()
    assert "&lt;b&gt;" in noted.html()
    assert noted.to_dict()["notes"] == ["These numbers mean nothing. <b>"]


def test_a_note_is_a_text():
    with pytest.raises(TypeError, match="with_note takes a text, and got int"):
        worked_example().with_note(1)


def test_it_is_frozen_and_says_what_it_is():
    explanation = worked_example()
    with pytest.raises(dataclasses.FrozenInstanceError):
        explanation.title = "x"
    assert repr(explanation).startswith("Explanation('Attention, step by step: “shiny”', steps: op")
    assert repr(explanation["scores"]) == ("Step('scores', 'Scores: how well does each key fit?')")


def test_it_can_be_part_of_a_larger_document():
    inner = worked_example().document()
    assert "Scores" in Document(inner.blocks, title="More").text()


def test_rich_prints_it_in_colour():
    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=True, color_system="truecolor")
    console.print(worked_example())
    assert "\x1b[" in file.getvalue()
    assert rich.get_console() is not console
