"""Heat maps: pooling, colours, terminal and HTML."""

import io
import math
import re
from itertools import pairwise
from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from glasshead.drawing import Canvas, HeatMap, Words
from glasshead.drawing.page import LEVELS, contrast, ink, level, paint, snapped
from glasshead.drawing.pooling import Grid, pooled

weights = st.none() | st.floats(0, 1e6)


@st.composite
def heat_maps(draw, most=24):
    rows, columns = draw(st.integers(1, most)), draw(st.integers(1, most))
    row = st.lists(weights, min_size=columns, max_size=columns)
    values = draw(st.lists(row, min_size=rows, max_size=rows))
    label = st.text(max_size=20)
    return HeatMap(
        values,
        draw(st.lists(label, min_size=rows, max_size=rows)),
        draw(st.lists(label, min_size=columns, max_size=columns)),
        caption=draw(st.none() | st.text(max_size=60)),
        highlight_row=draw(st.none() | st.integers(0, rows - 1)),
    )


def square(size, *, causal=False):
    values = [
        [None if causal and j > i else (1 + (i * 7 + j * 3) % 11) / 11 for j in range(size)]
        for i in range(size)
    ]
    names = [f"t{place}" for place in range(size)]
    return HeatMap(values, names, names)


@given(heat_maps(), st.integers(20, 130), st.sampled_from([0, 256, 2**24]))
def test_no_line_is_wider_than_the_terminal(heat_map, width, colors):
    for line in heat_map.lines(Canvas(width=width, colors=colors, height=8)):
        assert cell_len(line.plain) <= width


@pytest.mark.parametrize("width", [20, 40, 80, 120])
@pytest.mark.parametrize("size", [1, 3, 8, 40, 300])
def test_every_size_fits_width_and_height(size, width):
    lines = square(size).as_text(width).split("\n")
    assert max(map(cell_len, lines)) <= width
    assert len(lines) <= 40 + 8 + 4


@given(heat_maps(most=12), st.integers(1, 13), st.integers(1, 13))
def test_pooling_keeps_the_mass_of_rows(heat_map, most_rows, most_columns):
    grid = heat_map.grid
    small = pooled(grid, most_rows, most_columns)
    assert len(small.rows) <= most_rows
    assert len(small.columns) <= most_columns
    for place, row in enumerate(small.values):
        block = grid.values[place * small.row_block : (place + 1) * small.row_block]
        mass = fsum(value for values in block for value in values if value is not None)
        drawn = fsum(value for value in row if value is not None)
        assert drawn * len(block) == pytest.approx(mass)


def test_pooling_by_hand():
    grid = Grid(
        values=(
            (0.1, 0.2, 0.3, 0.4, 0.0),
            (0.5, 0.5, None, None, None),
            (1.0, 0.0, 0.0, 0.0, None),
        ),
        rows=("a", "b", "c"),
        columns=("p", "q", "r", "s", "t"),
        highlight=2,
    )
    small = pooled(grid, 2, 3)
    assert small.values[0] == pytest.approx((0.65, 0.35, 0.0))
    assert small.values[1] == (1.0, 0.0, None)
    assert small.rows == ("0–1", "2")
    assert small.columns == ("0–1", "2–3", "4")
    assert small.highlight == 1


def test_numbers_where_they_fit():
    drawn = HeatMap(
        [[0.406, None], [0.25, 0.75]], ["Hello", " sun"], ["k", "陽光"], highlight_row=1
    ).as_text()
    assert drawn.split("\n") == [
        "           k   陽光",
        "  Hello  0.41     ·",
        "▸ ␣sun   0.25  0.75",
        "· hidden",
    ]


def test_numbers_of_a_small_scale_have_more_decimals():
    drawn = HeatMap([[0.0114, 0.0036], [0.005, None]], ["a", "b"], ["k", "l"])
    assert drawn.as_text().split("\n") == [
        "      k       l",
        "a  0.0114  0.0036",
        "b  0.0050       ·",
        "· hidden",
    ]
    for figure in ("0.0114", "0.0036", "0.0050"):
        assert f"<span>{figure}</span>" in drawn.html()
    # A scale may be smaller than what a cell has room for.
    assert "<span>0.000001</span>" in HeatMap([[1.2e-6]], ["a"], ["k"]).html()
    assert "<span>0.01</span>" in HeatMap([[0.0114]], ["a"], ["k"], top=1).html()


def test_shades_where_numbers_do_not_fit():
    values = [[place / 8 for place in range(9)], [None] * 9]
    drawn = HeatMap(values, ["row", "none"], list("abcdefghi")).as_text(30).split("\n")
    assert drawn == [
        "      a b c d e f g h i",
        "row    ░░░░▒▒▒▒▓▓▓▓████",
        "none " + " ·" * 9,
        "0 ▕ ░▒▓█▏ 1   · hidden",
    ]


def test_pooled_maps_say_how():
    drawn = square(100, causal=True).as_text(60)
    assert "Each cell is the sum over 4 columns, averaged over ≤ 3 rows." in " ".join(drawn.split())
    assert "\n0–2 " in drawn
    assert "\n99 " in drawn
    assert "Positions are counted from 0." in drawn


def test_one_top_makes_two_maps_comparable():
    faint = HeatMap([[0.2]], ["a"], ["b"], top=1)
    assert 'class="w13"' in faint.html()
    assert 'class="w64"' in HeatMap([[0.2]], ["a"], ["b"]).html()
    assert 'class="w64"' in HeatMap([[3.0]], ["a"], ["b"], top=1).html()


def test_a_map_of_zeros_is_pale():
    assert 'class="w0"' in HeatMap([[0.0]], ["a"], ["b"]).html()


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("place", range(LEVELS + 1))
def test_numbers_are_read_on_every_colour(place, dark):
    color = paint(place, dark=dark)
    assert contrast(ink(color), color) >= 4.5


@pytest.mark.parametrize("place", range(LEVELS + 1))
def test_numbers_are_read_in_256_colours(place):
    color = snapped(paint(place))
    assert contrast(snapped(ink(color)), color) >= 4.5


def test_contrast_is_that_of_wcag():
    assert contrast((119, 119, 119), (255, 255, 255)) == pytest.approx(4.48, abs=0.005)
    assert contrast((0, 0, 255), (255, 255, 255)) == pytest.approx(8.59, abs=0.005)


@pytest.mark.parametrize("dark", [False, True])
def test_colours_are_even_and_go_one_way(dark):
    lightness = [_lightness(paint(place, dark=dark)) for place in range(LEVELS + 1)]
    steps = [b - a for a, b in pairwise(lightness)]
    mean = fsum(steps) / len(steps)
    assert (mean > 0) is dark
    assert all(0.3 < step / mean < 1.7 for step in steps)


def _lightness(color):
    """CIE L*, from another formula than the one that made the colours."""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (value / 255 for value in color)
    )
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return 116 * luminance ** (1 / 3) - 16


@given(st.floats(0, 1e300), st.floats(0, 1e300))
def test_levels_grow_with_weights(first, second):
    low, high = sorted((first, second))
    assert 0 <= level(low, high) <= level(high, high) <= LEVELS


def printed(block, **options):
    console = Console(file=io.StringIO(), force_terminal=True, width=60, **options)
    console.print(block)
    return console.file.getvalue()


def test_a_terminal_paints_cells():
    drawn = printed(HeatMap([[1.0, 0.0]], ["a"], ["b", "c"]), color_system="truecolor")
    red, green, blue = paint(LEVELS)
    assert f"38;2;255;255;255;48;2;{red};{green};{blue}m 1.00 " in drawn
    assert "48;5;" in printed(HeatMap([[1.0]], ["a"], ["b"]), color_system="256")


@pytest.mark.parametrize("options", [{"no_color": True}, {"color_system": "standard"}])
def test_without_colours_numbers_and_shades_speak(options):
    drawn = printed(HeatMap([[1.0, 0.25]], ["a"], ["b", "c"]), **options)
    assert "48;" not in drawn
    assert "1.00" in drawn
    assert "██" in printed(square(20), **options)


def test_html_names_every_pair():
    html = HeatMap([[0.40629, None]], ["shiny"], ["sun!", "Hello"], caption="Weights").html()
    assert '<td class="w64" title="shiny → sun!: 0.4063"><span>0.41</span></td>' in html
    assert '<td class="hidden" title="shiny → Hello: hidden"><span>·</span></td>' in html
    assert '<th scope="row">shiny</th>' in html
    assert '<th scope="col"><span>sun!</span></th>' in html
    assert "<caption><span>Weights</span></caption>" in html
    assert 'role="region" tabindex="0" aria-label="Weights"' in html


def test_one_row_of_many_weights_runs_on_like_text():
    names = [f"t{place}" for place in range(39)]
    html = HeatMap([[0.02] * 39 + [None]], ["<q>"], [*names, "<k>"], caption="Who").html()
    assert "<table" not in html
    assert html.count("<dt>") == html.count("</dd>") == 40
    assert (
        '<dt>t0</dt><dd class="w64" title="&lt;q&gt; → t0: 0.02"><span>0.0200</span></dd>' in html
    )
    assert '<dd class="hidden" title="&lt;q&gt; → &lt;k&gt;: hidden">' in html
    assert '<p class="said">Who</p>\n<p class="said of">&lt;q&gt;</p>' in html
    assert "<table" in HeatMap([[0.1] * 40] * 2, ["a", "b"], [*names, "k"]).html()


def test_html_pools_what_no_page_could_hold():
    html = square(130).html()
    assert len(re.findall(r"<td class=\"w", html)) == 44 * 44
    assert "averaged over ≤ 3 rows" in html
    assert "127–129" not in html
    assert "129" in html


def test_words_are_the_callers():
    words = Words(hidden="gizli", pooled_columns="{columns} sütunun toplamı.")
    assert "· gizli" in HeatMap([[None, 1.0]], ["a"], ["b", "c"]).as_text(words=words)
    assert "\n5 sütunun toplamı." in HeatMap([[1.0] * 65], ["a"], ["b"] * 65).as_text(30, words)


def test_values_may_be_anything_that_lists_itself():
    class Tensor:
        def tolist(self):
            return [[0.5, math.nan]]

    heat_map = HeatMap(Tensor(), ("a",), ("b", "c"))
    assert heat_map == HeatMap([[0.5, None]], ["a"], ["b", "c"])
    assert hash(heat_map) == hash(HeatMap([[0.5, None]], ["a"], ["b", "c"]))


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ([], ValueError, "at least one row and one column, got none"),
        ([[]], ValueError, "at least one row and one column, got none"),
        ([[1.0, 0.0], [1.0]], ValueError, "rows of one length, got 2 in row 0 and 1 in row 1"),
        ([[-0.1]], ValueError, "finite and at least 0, got -0.1 in row 0, column 0"),
        ([[math.inf]], ValueError, "finite and at least 0, got inf"),
        ([["1"]], TypeError, "must be numbers, got str in row 0, column 0"),
        ([[[1.0]]], TypeError, "must be numbers, got list .* weights of one head"),
        ([1.0], TypeError, "rows of numbers, got float as row 0"),
        (1.0, TypeError, "must be a matrix, got float"),
        ([[1.0]] * 2, ValueError, "a name for each of 2 rows and 1 columns, got 1 and 1"),
    ],
)
def test_what_is_no_matrix_is_refused(values, error, message):
    with pytest.raises(error, match=message):
        HeatMap(values, ["a"], ["b"])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"top": 0.0}, ValueError, "top must be above 0 and finite, got 0.0"),
        ({"top": math.nan}, ValueError, "top must be above 0 and finite, got nan"),
        ({"highlight_row": -1}, ValueError, "at least 0 and below its 1 rows, got -1"),
        ({"caption": 1}, TypeError, "HeatMap caption must be a string, got int"),
    ],
)
def test_options_of_a_map_are_checked(options, error, message):
    with pytest.raises(error, match=message):
        HeatMap([[1.0]], ["a"], ["b"], **options)
