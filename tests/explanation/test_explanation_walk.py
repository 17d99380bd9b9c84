"""The figure of the walk on the page of an explanation: a query, its scores and its context."""

import dataclasses
import re

import pytest
import torch

import glasshead as gh
from glasshead.explanation.walk import SHOWN

WORDS = ["a", "walk", "of", "five", "words"]


def traced(length=5, **attention):
    torch.manual_seed(5)
    query, key, value = (torch.randn(1, 2, length, width) for width in (3, 3, 2))
    return gh.Attention(**attention).trace(query, key, value)


def explained(query="of", **attention):
    trace = traced(**attention)
    return trace, gh.explain(trace, tokens=WORDS, query=query, index=(0, 1))


def figure(explanation):
    """The figure of a page, without what it is styled by."""
    (found,) = re.findall(r'<figure class="walk">.*?</figure>', explanation.html(), re.DOTALL)
    return found


def cells(row):
    return [re.sub("<[^>]+>", " ", cell).split() for cell in re.split("</t[dh]>", row)]


def rows(drawn):
    return [cells(row) for row in re.findall("<tr.*?</tr>", drawn, re.DOTALL)]


def two(numbers):
    # No zero has a sign.
    return [f"{round(number, 2) + 0.0:.2f}" for number in numbers.tolist()]


def test_a_page_shows_the_numbers_of_the_query():
    trace, explanation = explained()
    titles, query, *lanes, context = rows(figure(explanation))
    assert titles[1:5] == [["Keys"], ["Scaled"], ["Weights"], ["Values"]]
    assert query[:2] == [["q(of)"], two(trace.queries[0, 1, 2])]
    for place, (word, key, score, weight, value, _) in enumerate(lanes):
        assert word == [WORDS[place]]
        assert key == two(trace.keys[0, 1, place])
        assert score == two(trace.scaled[0, 1, 2, place : place + 1])
        assert weight == [f"{trace.weights[0, 1, 2, place].item():.3f}"]
        assert value == two(trace.values[0, 1, place])
    assert context[0] == ["c(of)"]
    assert context[3:5] == [["Σ", "p", "=", "1.000"], two(trace.context[0, 1, 2])]


@pytest.mark.parametrize("changed", [{"softcap": 0.5}, {"bias": gh.ALiBi(2)}], ids=str)
def test_scores_after_a_cap_or_a_bias_are_not_called_scaled(changed):
    trace, explanation = explained(**changed)
    titles, _, *lanes, _ = rows(figure(explanation))
    assert titles[2] == ["Masked"]
    for place, (_, _, score, *_) in enumerate(lanes):
        assert score == two(trace.masked[0, 1, 2, place : place + 1])


def test_bars_are_shares_of_the_largest():
    trace, explanation = explained()
    weights = trace.weights[0, 1, 2]
    bars = re.findall(r"--start: ([\d.]+); --stop: ([\d.]+)", figure(explanation))
    stops = [float(stop) for _, stop in bars[1::2]]
    assert stops == pytest.approx((weights / weights.max()).tolist(), abs=1e-4)
    scores = trace.scaled[0, 1, 2]
    low, high = min(0, scores.min().item()), max(0, scores.max().item())
    for (start, stop), score in zip(bars[::2], scores.tolist(), strict=True):
        ends = sorted([(0 - low) / (high - low), (score - low) / (high - low)])
        assert (float(start), float(stop)) == pytest.approx(ends, abs=1e-4)


def test_hidden_keys_have_no_score_and_no_weight():
    _, explanation = explained(mask=gh.causal())
    titles, _, *lanes, _ = rows(figure(explanation))
    assert titles[2] == ["Masked"]
    assert [score for _, _, score, *_ in lanes][3:] == [["−∞"], ["−∞"]]
    assert [weight for *_, weight, _, _ in lanes][3:] == [["0.000"], ["0.000"]]
    assert lanes[0][2] != ["−∞"]


def test_of_a_long_text_the_other_keys_are_one_line():
    trace = traced(length=29)
    drawn = rows(figure(gh.explain(trace, query=7, index=(0, 0))))
    shown = len(drawn) - 3 - 1
    assert shown in (SHOWN, SHOWN + 1)
    others = drawn[-2]
    assert others[0] == [str(29 - shown), "other", "keys"]
    assert others[1] == others[2] == []
    weights = trace.weights[0, 0, 7].sort(descending=True).values
    assert float(others[3][0]) <= weights[SHOWN:].sum().item() + 1e-3


def test_cross_attention_has_the_words_of_its_keys():
    torch.manual_seed(0)
    trace = gh.Attention().trace(torch.randn(3, 2), torch.randn(2, 2), torch.randn(2, 2))
    drawn = rows(figure(gh.explain(trace, tokens=["x", "y", "z"], keys=["le", "chat"], query=2)))
    assert [lane[0] for lane in drawn[2:-1]] == [["le"], ["chat"]]


@pytest.mark.parametrize("lang", ["tr", "es", "zh-Hant", "zh-Hans"])
def test_it_is_in_the_language_of_the_page(lang):
    drawn = figure(gh.explain(traced(), tokens=WORDS, query=2, index=(0, 1), lang=lang))
    assert not re.search("Keys|Scaled|Weights|Values|The context", drawn)


def test_a_terminal_and_a_notebook_have_the_tables_alone():
    _, explanation = explained()
    assert 'class="walk"' not in explanation._repr_html_()
    assert explanation.text() == dataclasses.replace(explanation, walk=None).text()
    assert 'class="walk"' in explanation.with_note("A note.").html()


def test_without_finite_numbers_or_with_dropout_there_is_none():
    torch.manual_seed(0)
    x = torch.randn(3, 2)
    x[1, 0] = torch.nan
    for trace in (gh.Attention().trace(x, x, x), traced(dropout=0.5)):
        assert 'class="walk"' not in gh.explain(trace, query=1).html()
