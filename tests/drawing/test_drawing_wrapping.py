"""Lines of text: paragraphs, formulas, headings, notes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from glasshead.drawing import Formula, Heading, Note, Paragraph, printable
from glasshead.drawing.printable import chunks, wrap


@given(st.text(), st.integers(4, 60), st.integers(0, 1))
def test_no_line_is_wider_than_asked(text, width, hang):
    for line in wrap(printable(text), width, hang):
        assert cell_len(line) <= width


@given(st.text(alphabet="ab ,(注意。"), st.integers(4, 12))
def test_wrapping_loses_nothing_but_spaces(text, width):
    assert "".join(wrap(text, width)).replace(" ", "") == text.replace(" ", "")


@given(st.lists(st.sampled_from(["注意", "力，", "陽。", "「光」"])), st.integers(8, 20))
def test_no_chinese_line_begins_with_a_comma_or_ends_with_a_bracket(parts, width):
    for line in wrap("注" + "".join(parts), width):
        assert line[0] not in "，。」"
        assert line[-1] != "「"


def test_words_stay_whole():
    assert wrap("softmax(scores) is a row", 16) == ["softmax(scores)", "is a row"]


def test_what_is_longer_than_a_line_is_cut():
    assert wrap("abcdefgh", 4) == ["abcd", "efgh"]
    assert wrap("注意力機制", 5) == ["注意", "力機", "制"]


@pytest.mark.parametrize(
    ("text", "width", "most", "lines"),
    [
        ("translator", 4, 3, ["tran", "slat", "or"]),
        ("Hello", 4, 3, ["Hel", "lo"]),
        ("注意力", 2, 8, ["注", "意", "力"]),
        ("注意力", 1, 2, ["注", "…"]),
        ("", 4, 3, []),
    ],
)
def test_labels_are_cut_into_even_lines(text, width, most, lines):
    assert chunks(text, width, most) == lines


def test_a_paragraph_flows_and_stays_readable_on_a_wide_terminal():
    text = "one two\n three " * 30
    lines = Paragraph(text).as_text(width=200).split("\n")
    assert max(map(cell_len, lines)) <= 84
    assert " ".join(lines) == " ".join(text.split())


def test_a_formula_breaks_before_operators_below_its_equals_sign():
    drawn = Formula("score = 0.34·0.53 + 0.22·0.34 + 0.54·0.98").as_text(width=36)
    assert drawn == "    score = 0.34·0.53 + 0.22·0.34\n            + 0.54·0.98"


def test_a_formula_keeps_its_lines_and_spaces():
    text = "a   = 1\n    = 2"
    assert Formula(text).as_text() == "    a   = 1\n        = 2"
    assert f"<code>{text}</code>" in Formula(text).html()


def test_headings_have_levels():
    assert Heading("Scores").html() == "<h2>Scores</h2>"
    assert Heading("分數").as_text() == "分數\n────"
    assert Heading("Scores", 3).as_text() == "Scores"
    assert Note("Why").html() == '<p class="note">Why</p>'


@pytest.mark.parametrize("block", [Heading, Paragraph, Formula, Note])
def test_text_must_be_text(block):
    with pytest.raises(TypeError, match=r"text must be a string, got float; .* number\(\)"):
        block(0.5)


@pytest.mark.parametrize("level", [-1, 6, "1", 1.5])
def test_heading_levels_are_checked(level):
    with pytest.raises(ValueError, match="Heading level must be 0 to 5"):
        Heading("Scores", level)


def test_a_terminal_has_a_least_width():
    with pytest.raises(ValueError, match="width must be at least 20 cells, got 19"):
        Paragraph("text").as_text(width=19)
