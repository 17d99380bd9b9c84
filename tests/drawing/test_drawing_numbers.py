"""Numbers, vectors and harmless text.

Formulas: indices and powers in HTML, and the text that they leave alone.
"""

import math
import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from glasshead.drawing import Formula, Table, Words, number, printable, vector, visible
from glasshead.drawing.document import subscripts
from glasshead.drawing.printable import shorten


@pytest.mark.parametrize(
    ("x", "written"),
    [
        (0.40629, "0.4063"),
        (1.35712, "1.357"),
        (-0.23958, "-0.2396"),
        (1.84e-35, "1.8e-35"),
        (0.39902, "0.3990"),
        (0.53, "0.53"),
        (0.5299999713897705, "0.53"),  # 0.53 as float32
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (2, "2"),
        (12345.678, "12346"),
        (1234567.8, "1.235e6"),
        (5e-324, "4.9e-324"),
        (math.inf, "∞"),
        (-math.inf, "-∞"),
        (math.nan, "NaN"),
    ],
)
def test_number_is_written_as_readers_want(x, written):
    assert number(x) == written


@given(st.floats(-1e300, 1e300))
def test_number_reads_back_to_two_digits(x):
    assert float(number(x)) == pytest.approx(x, rel=0.051)


@pytest.mark.parametrize("digits", [1, 2, 3, 6, 11])
def test_number_has_the_digits_asked(digits):
    assert len(number(math.pi, digits).replace(".", "")) == digits
    assert len(number(1 / 3, digits)) == digits + 2


@pytest.mark.parametrize("x", ["0.5", [1.0, 2.0], None])
def test_number_refuses_what_is_not_one_number(x):
    with pytest.raises(TypeError, match="number must be"):
        number(x)


def test_digits_and_limit_are_checked():
    with pytest.raises(ValueError, match="digits must be at least 1, got 0"):
        number(0.5, 0)
    with pytest.raises(ValueError, match="limit of vector must be at least 2, got 1"):
        vector([1.0, 2.0], limit=1)


@pytest.mark.parametrize(
    ("values", "written"),
    [
        ([0.39902, 0.38541, 0.86104], "[0.3990, 0.3854, 0.8610]"),
        ([0.53, 0.34, 0.98], "[0.53, 0.34, 0.98]"),
        ([0.95442, 1.49502, 1.47543], "[0.9544, 1.4950, 1.4754]"),
        ([1.0, 2.0], "[1, 2]"),
        ([1.0, -0.25], "[1.00, -0.25]"),
        ([0.5, 1e-35, -math.inf, 0.0], "[0.5, 1.0e-35, -∞, 0.0]"),
        ([], "[]"),
    ],
)
def test_vector_has_one_number_of_decimals(values, written):
    assert vector(values) == written


def test_long_vector_keeps_its_ends_and_counts():
    assert vector([i / 10 for i in range(9)], limit=3) == "[0.0, 0.1, …, 0.8] (9 numbers)"
    turkish = Words(count_of_numbers="{count} sayı")
    assert vector(range(9), limit=2, words=turkish) == "[0, …, 8] (9 sayı)"
    assert vector(range(8), limit=8) == "[0, 1, 2, 3, 4, 5, 6, 7]"


def test_vector_takes_anything_that_lists_itself():
    class Tensor:
        def tolist(self):
            return [0.25, 0.5]

    assert vector(Tensor()) == "[0.25, 0.50]"


def test_vector_refuses_a_matrix():
    with pytest.raises(TypeError, match=r"flat sequence of numbers, got list\. Pass one row"):
        vector([[1.0], [2.0]])


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\r\n\tb", "a\\r\\n\\tb"),
        ("abc\u202edef\u202c", "abc\\u202edef\\u202c"),
        ("\u2066x\u2069\u200f", "\\u2066x\\u2069\\u200f"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("x\u200d", "x\\u200d"),
        ("a\u200bb", "a\\u200bb"),
        ("\u0301", "◌\u0301"),
        ("e\u0301", "e\u0301"),
        ("👩\u200d💻", "👩\u200d💻"),
        ("[bold]", "[bold]"),
        ("陽光", "陽光"),
    ],
)
def test_hostile_text_is_made_harmless(hostile, harmless):
    assert printable(hostile) == harmless


@given(st.text())
def test_printable_text_can_be_written_and_stays_on_its_line(text):
    seen = printable(text)
    assert seen.encode("utf-8").decode("utf-8") == seen
    assert len(seen.splitlines()) <= 1
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in seen)
    assert printable(seen) == seen


@pytest.mark.parametrize(
    ("token", "shown"), [(" the", "␣the"), ("a b ", "a b␣"), ("  ", "␣␣"), ("", ""), ("\n", "\\n")]
)
def test_outer_spaces_of_a_token_are_seen(token, shown):
    assert visible(token) == shown


@given(st.text(), st.integers(1, 30))
def test_shortened_text_fits_and_says_so(text, width):
    seen = printable(text)
    cut = shorten(seen, width)
    assert cell_len(cut) <= width
    assert cut == seen or cut.endswith("…")


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
        "“a_b”",
        "«e^x»",
        "「a_b」",
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
