"""Tables in a terminal and in HTML.

Lines of text: paragraphs, formulas, headings, notes.
"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from glasshead.drawing import Formula, Heading, Note, Paragraph, Table, Words, printable
from glasshead.drawing.pooling import truncate_places
from glasshead.drawing.printable import chunks, wrap

cells = st.text(max_size=40)


def wide(columns, rows=3):
    heads = ["token", *(f"d{place}" for place in range(columns))]
    body = [[f"t{row}", *("0.1234" for _ in range(columns))] for row in range(rows)]
    return heads, body


@st.composite
def tables(draw):
    columns = draw(st.integers(1, 12))
    heads = draw(st.lists(cells, min_size=columns, max_size=columns))
    row = st.lists(cells, min_size=columns, max_size=columns)
    body = draw(st.lists(row, max_size=5))
    here = draw(st.none() | st.integers(0, len(body) - 1)) if body else None
    return Table(heads, body, caption=draw(st.none() | cells), highlight_row=here)


@given(tables(), st.integers(20, 130))
def test_no_line_is_wider_than_the_terminal(table, width):
    for line in table.as_text(width).split("\n"):
        assert cell_len(line) <= width


def test_a_table_is_drawn_in_columns():
    table = Table(
        ["word", "score"], [["陽光", "0.78"], ["sun!", "1.357"]], caption="Scores", highlight_row=1
    )
    assert table.as_text() == ("Scores\n  word  score\n  ───────────\n  陽光  0.78\n▸ sun!  1.357")


def test_columns_stand_as_told():
    table = Table(["a", "b"], [["x", "y"], ["long", "long"]], align=["right", "center"])
    assert table.as_text().split("\n")[2:] == ["   x   y", "long  long"]


def test_numbers_line_up_by_their_points():
    rows = [["a", "2.96"], ["b", "-12.9295"], ["c", "1"], ["d", ""], ["e", "∞"], ["f", "1.8e-5"]]
    table = Table(["key", "s"], rows)
    drawn = [line[5:] for line in table.as_text().split("\n")[2:]]
    assert drawn == ["  2.96", "-12.9295", "  1", "", "  ∞", "  1.8e-5"]
    assert '<td class="right short">2.96\u2007\u2007</td>' in table.html()
    assert '<td class="right short">1\u2008\u2007\u2007\u2007\u2007</td>' in table.html()
    assert Table(["key", "s"], rows[2:5]).html().count("\u2007") == 0


def test_words_on_the_right_are_not_padded():
    table = Table(["a", "b"], [["x", "0.5"], ["y", "0.25 or so"]], align=["left", "right"])
    assert table.as_text().split("\n")[2:] == ["x         0.5", "y  0.25 or so"]


def test_values_stand_below_their_names_where_no_two_columns_have_room():
    rows = [["a name of many words", "a value of many words"], ["short", "x · y"]]
    drawn = Table(["choice", "here"], rows, highlight_row=1).as_text(20).split("\n")
    assert drawn[:3] == ["  choice", "    here", "─" * 20]
    assert drawn[3:] == [
        "  a name of many",
        "  words",
        "    a value of many",
        "    words",
        "▸ short",
        "    x · y",
    ]


def test_several_values_below_a_name_say_which_they_are():
    heads = ["name", "first value", "second value"]
    rows = [["what is looked for", "0.123456789012", "0.123456789012"], ["x", "", "1"]]
    drawn = Table(heads, rows).as_text(20)
    assert "…" not in drawn
    assert "  first value:\n  0.123456789012\n  second value:\n" in drawn
    assert drawn.endswith("x\n  second value: 1")


@pytest.mark.parametrize("width", [20, 40, 80])
def test_middle_columns_are_left_out_and_counted(width):
    heads, body = wide(100)
    lines = Table(heads, body).as_text(width).split("\n")
    shown = lines[0].split()
    counted = int(re.search(r"Columns omitted: (\d+)\.", " ".join(lines)).group(1))
    assert shown[0] == "token"
    assert shown[-1] == "d99"
    assert shown.count("…") == 1
    assert len(shown) - 1 + counted == len(heads)
    assert {line.split()[1] for line in lines[2:5]} <= {"0.1234", "…"}


def test_long_text_is_wrapped_before_columns_are_left_out():
    text = "what a word is looking for among the others"
    drawn = Table(["term", "meaning"], [["query", text]]).as_text(30)
    assert "left out" not in drawn
    assert " ".join(drawn.split("\n")[2:]).split() == ["query", *text.split()]


def test_middle_rows_are_left_out_but_not_the_highlighted_one():
    heads, body = wide(1, rows=500)
    lines = Table(heads, body, highlight_row=250).as_text().split("\n")
    assert "▸ t250   0.1234" in lines
    assert lines[-1] == "Rows omitted: 459."
    assert sum("0.1234" in line for line in lines) == 500 - 459


@given(st.integers(1, 60), st.integers(1, 60), st.data())
def test_what_stays_is_in_order_and_has_both_ends(count, most, data):
    always = data.draw(st.none() | st.integers(0, count - 1))
    places = truncate_places(count, most, always)
    kept = [place for place in places if place is not None]
    assert kept == sorted(set(kept))
    assert kept[0] == 0
    assert always is None or always in kept
    assert len(kept) <= max(most, 1) + (always is not None)
    gaps = [b - a for a, b in zip([-1, *kept], [*kept, count], strict=True)]
    assert places.count(None) == sum(gap > 1 for gap in gaps)


def test_html_has_caption_and_scopes():
    html = Table(["word", "score"], [["sun!", "1.357"]], caption="Scores", highlight_row=0).html()
    assert "<caption><span>Scores</span></caption>" in html
    assert '<th scope="col">word</th><th scope="col" class="right">score</th>' in html
    assert '<tr class="here" aria-current="true"><th scope="row" class="short">sun!</th>' in html
    assert '<td class="right short">1.357</td>' in html
    # The head of the first column stands where its names do, which may be numbers.
    keys = Table(["key", "share"], [["0", "0.5"], ["13", "0.25"]]).html()
    assert '<th scope="col">key</th><th scope="col" class="right">share</th>' in keys


def test_html_of_a_huge_table_leaves_out_its_middle():
    heads, body = wide(99, rows=300)
    html = Table(heads, body).html(Words(rows_left_out="Satır: {count}"))
    assert "Columns omitted: 36. Satır: 100" in html
    assert html.count("<tr") == 1 + 200 + 1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([], []), ValueError, "at least one column, got none"),
        ((["a", "b"], [["1"]]), ValueError, r"rows\[0\] must have 2 cells, one a column, got 1"),
        ((["a"], [[0.5]]), TypeError, r"rows\[0\]\[0\] must be a string, got float.*number\(\)"),
        (("ab", []), TypeError, "columns must be a sequence of strings, got str"),
        ((["a"], "b"), TypeError, "rows must be a sequence of rows, got str"),
        ((["a"], ["b"]), TypeError, r"rows\[0\] must be a sequence of strings, got str"),
    ],
)
def test_what_is_no_table_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Table(*arguments)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"highlight_row": 1}, ValueError, "highlight_row must be at least 0 and below its 1 rows"),
        ({"highlight_row": "0"}, TypeError, "highlight_row must be an int or None, got str"),
        ({"align": ["up"]}, ValueError, 'align must be "left", "right" or "center" for each of 1'),
        ({"align": ["left"] * 2}, ValueError, "for each of 1 columns"),
        ({"caption": 1}, TypeError, "Table caption must be a string, got int"),
    ],
)
def test_options_of_a_table_are_checked(options, error, message):
    with pytest.raises(error, match=message):
        Table(["a"], [["1"]], **options)


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
    with pytest.raises(TypeError, match=r"text must be a string, got float\. .* number\(\)"):
        block(0.5)


@pytest.mark.parametrize("level", [-1, 6, "1", 1.5])
def test_heading_levels_are_checked(level):
    with pytest.raises(ValueError, match="Heading level must be 0 to 5"):
        Heading("Scores", level)


def test_a_terminal_has_a_least_width():
    with pytest.raises(ValueError, match="width must be at least 20 cells, got 19"):
        Paragraph("text").as_text(width=19)
