"""Formulas: indices and powers in HTML, and the text that they leave alone."""

import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glasshead.drawing import Formula, Table, printable
from glasshead.drawing.document import subscripts


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("e^s_j", "e<sup>s<sub>j</sub></sup>"),
        ("Σ_k e^-1.5,", "Σ<sub>k</sub> e<sup>-1.5</sup>,"),
        ("e^(s_j - 3.2)·p_i", "e<sup>s<sub>j</sub> - 3.2</sup>·p<sub>i</sub>"),
        ("∂p_i/∂s_j = δ_ij", "∂p<sub>i</sub>/∂s<sub>j</sub> = δ<sub>ij</sub>"),
        ("e^sink", "e<sup>sink</sup>"),
        ("e^0.5 < 2", "e<sup>0.5</sup> &lt; 2"),
    ],
)
def test_indices_and_powers_are_set(text, html):
    assert subscripts(text) == html
    assert html in Formula(text).html()


@pytest.mark.parametrize(
    "text",
    [
        "W_query",
        "the_cat",
        "a_bc",
        "s(a_b)",
        "p(e^x)",
        "x^y_the",
        "a^b^c",
        "a__b",
        "_j",
        "^2",
        "e^",
    ],
)
def test_names_stay_as_they_are(text):
    assert subscripts(text) == text


@given(st.text(st.sampled_from("a_^j(e1.)<&>-\u0301\u202e\u200d \x1b"), max_size=30))
def test_only_scripts_become_markup_and_no_character_is_lost(text):
    html = subscripts(text)
    assert not re.search("<(?!/?su[bp]>)", html)
    bare = unescape(re.sub("<[^>]*>", "", html))
    kept = re.sub(r"[_^()]", "", printable(text))
    assert re.sub(r"[_^()]", "", bare) == kept


def test_heads_of_a_table_have_scripts_and_the_terminal_has_none():
    table = Table(["key", "e^s"], [["e^x", "1"]])
    assert '<th scope="col" class="right">e<sup>s</sup></th>' in table.html()
    assert '<th scope="row" class="short">e^x</th>' in table.html()
    assert "e^s" in table.as_text()
    assert Formula("p_j = e^s_j").as_text() == "    p_j = e^s_j"
