"""The forms an explanation takes: text, page, notebook, JSON.

Every layout of a trace, long and wide ones too.
"""

import dataclasses
import io
import json
import re
from html.parser import HTMLParser

import pytest
import rich
import torch
from explanation_told import LANGUAGES, all_text, sides, traced, worked_example
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
    with pytest.raises(TypeError, match="with_note must be given a text, got int"):
        worked_example().with_note(1)


def test_it_is_frozen_and_says_what_it_is():
    explanation = worked_example()
    with pytest.raises(dataclasses.FrozenInstanceError):
        explanation.title = "x"
    assert repr(explanation).startswith(
        "Explanation('Self-attention, step by step: “shiny”', steps: op"
    )
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


def test_heads_and_batch_are_chosen_by_index():
    trace = traced(leading=(2, 3), mask=gh.causal())
    explanation = gh.explain(trace, index=(1, 2), query=3)
    assert explanation.index == (1, 2)
    torch.testing.assert_close(explanation["scores"].data["scores"], trace.scores[1, 2])
    torch.testing.assert_close(explanation["heads"].data["weights"], trace.weights[1, :, 3])
    assert "3 heads; explained above is head 2" in explanation["heads"].intro[0]


def test_one_head_has_no_section_of_heads():
    assert "heads" not in {step.name for step in gh.explain(traced(leading=(2, 1))).steps}


def test_grouped_heads_read_the_right_keys():
    query, key = torch.rand(1, 6, 4, 3), torch.rand(1, 2, 4, 3)
    trace = gh.Attention(score=gh.Dot()).trace(query, key, key)
    for head in range(6):
        data = gh.explain(trace, index=(0, head))["inputs"].data
        torch.testing.assert_close(data["keys"], key[0, head // 3])
        torch.testing.assert_close(data["queries"] @ data["keys"].T, trace.scores[0, head])


def test_a_batch_without_heads_has_one_leading_axis():
    trace = traced(leading=(3,))
    torch.testing.assert_close(
        gh.explain(trace, index=2)["weights"].data["weights"], trace.weights[2]
    )


def test_cross_attention_has_words_of_two_kinds():
    trace = traced(queries=2, keys=3, mask=gh.padding(2))
    explanation = gh.explain(trace, tokens=["le", "chat"], keys=["the", "cat", "."], query="le")
    assert "two different lists" in explanation["opening"].intro[0]
    assert [line[:6] for line in explanation["scores"].numbers] == ["s(the)", "s(cat)", "s(.)  "]
    assert explanation.keys == ("the", "cat", ".")


def test_queries_that_stand_after_cached_keys_are_told():
    explanation = gh.explain(traced(queries=2, keys=5, mask=gh.causal()), tokens=["d", "e"])
    assert "“e” sees all of the keys; some other words do not." in explanation["masked"].intro
    assert explanation.keys == ("1", "2", "3", "4", "5")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_told_as_it_was_computed(dtype):
    x = torch.rand(4, 3, dtype=dtype)
    trace = gh.Attention().trace(x, x, x)
    explanation = gh.explain(trace)
    assert trace.weights.dtype == torch.float32
    torch.testing.assert_close(explanation["weights"].data["weights"], trace.weights)
    json.dumps(explanation.to_dict(), allow_nan=False)
    assert all_text(explanation)


def test_inputs_with_gradients_are_told():
    x = torch.rand(3, 2, requires_grad=True)
    assert all_text(gh.explain(gh.Attention(score=gh.Additive(2)).trace(x, x, x)))


def test_what_fills_padding_does_not_spoil_what_is_written():
    x = torch.rand(4, 3)
    x[3] = torch.nan
    explanation = gh.explain(gh.Attention().trace(x, x, x, mask=gh.padding(3)), query=0)
    *seen, filled = explanation["scores"].numbers
    assert "NaN" not in "".join(seen)
    assert filled.endswith("·0 = 0")
    assert "hidden from every query" in all_text(explanation)


def test_vectors_without_numbers_are_told():
    empty = torch.zeros(3, 0)
    explanation = gh.explain(gh.Attention().trace(empty, empty, empty))
    assert explanation["scores"].numbers[0] == "s(1) = 0 = 0"
    assert all_text(explanation)


@pytest.mark.parametrize("width", [20, 30, 60, 120])
def test_a_long_text_keeps_within_the_width_and_within_reason(width):
    trace = traced(leading=(1, 3), queries=60, keys=60, dim=32, value_dim=32, mask=gh.causal())
    explanation = gh.explain(trace, index=(0, 1), query=40)
    lines = explanation.text(width).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) < 420 * max(1, 60 / width)


def test_tables_of_many_keys_add_up_the_others():
    trace = traced(queries=40, keys=40)
    explanation = gh.explain(trace, query=7)
    table = next(part for part in explanation["weights"].figures if hasattr(part, "rows"))
    assert len(table.rows) == 12
    *shown, others, together = table.rows
    assert others[0] == "… and 30 more"
    weights = trace.weights[7]
    assert float(others[-1]) == pytest.approx(weights.sort().values[:30].sum().item(), abs=1e-4)
    assert together[-1] == "1"
    best = sorted(weights.sort(descending=True).indices[:10].tolist())
    assert [row[0] for row in shown] == [str(key + 1) for key in best]


def test_the_data_are_complete_even_where_the_text_is_short():
    data = gh.explain(traced(queries=40, keys=40, dim=20)).to_dict()
    scores = next(step for step in data["steps"] if step["name"] == "scores")["data"]["scores"]
    assert len(scores) == 40
    assert {len(row) for row in scores} == {40}


def test_numbers_are_those_of_the_trace_to_the_last_bit():
    trace = traced(leading=(2,), normalizer=gh.Entmax15())
    explanation = gh.explain(trace, index=1)
    for name in ("scores", "scaled", "weights", "context"):
        assert torch.equal(explanation[name].data[name], getattr(trace, name)[1])


def test_keys_that_only_some_cannot_see_are_scored_as_they_are():
    trace = traced(leading=(1, 2), mask=gh.causal())
    for query in range(5):
        for line, score in zip(
            gh.explain(trace, index=(0, 1), query=query)["scores"].numbers,
            trace.scores[0, 1, query].tolist(),
            strict=True,
        ):
            assert sides(line)[0] == pytest.approx(score, abs=1e-9)


def test_a_key_that_one_head_sees_is_scored_in_the_others_too():
    seen = torch.ones(2, 1, 5, dtype=torch.bool)
    seen[1, :, 1:] = False
    trace = traced(leading=(1, 2), mask=gh.dense(seen))
    line = gh.explain(trace, index=(0, 1), query=0)["scores"].numbers[4]
    assert sides(line)[0] == pytest.approx(trace.scores[0, 1, 0, 4].item(), abs=1e-9)
    assert sides(line)[0] != 0
