"""The picture of a mask on a page: dead rows and the cells of findings are marked in it."""

import re

import pytest
import torch

import glasshead as gh
from glasshead.diagnosis.mask_map import cells_of


def marked(html):
    """The rows of the page's picture that are marked as dead."""
    return re.findall(r'<g class="dead">.*?<title>(.*?):', html)


def boxes(html):
    """How many cells or blocks are painted."""
    (svg,) = re.findall(r"<svg class=.mask.*?</svg>", html, re.DOTALL)
    return sum(path.count("M") for path in re.findall(r'<path d="([^"]*)"', svg))


def test_dead_rows_and_found_cells_are_marked():
    mask = torch.ones(7, 7, dtype=torch.bool).tril()
    mask[4], mask[1, 5] = False, True
    html = gh.diagnose(mask).html()
    assert marked(html) == ["query 4"]
    assert boxes(html) == int(mask.sum())
    assert "<title>query 1, key 5</title>" in html
    assert "a row that sees no key" in html
    assert html.count('class="verdict error"') == 2


def test_a_healthy_mask_has_no_mark():
    html = gh.diagnose(torch.ones(5, 5, dtype=torch.bool).tril()).html()
    assert marked(html) == []
    assert "a row that sees no key" not in html
    assert "verdict" not in re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)
    assert boxes(html) == 15


def test_rows_of_a_padding_mask_are_batch_rows():
    mask = torch.ones(3, 11, dtype=torch.long)
    mask[1, 4:], mask[2] = 0, 0
    assert marked(gh.diagnose(mask, convention="tokenizer").html()) == ["batch row 2"]


def test_a_long_mask_is_drawn_in_blocks_and_each_dead_row_is_named():
    mask = torch.ones(131, 131, dtype=torch.bool).tril()
    mask[61], mask[70:74] = False, False
    html = gh.diagnose(mask).html()
    # A block is of three rows: 69 to 71, and 72 to 74.
    assert marked(html) == ["query 61", "query 70–71", "query 72–73"]
    cells = cells_of(mask, ())
    assert (len(cells.shares), len(cells.shares[0]), cells.block) == (44, 44, (3, 3))
    assert cells.shares[0][0] == pytest.approx(6 / 9)
    assert boxes(html) == sum(share > 0 for row in cells.shares for share in row)


def test_the_second_head_is_drawn_where_it_has_the_finding():
    mask = torch.ones(1, 2, 5, 5, dtype=torch.bool).tril()
    mask[0, 1, 3] = False
    assert marked(gh.diagnose(mask).html()) == ["query 3"]


def test_the_terminal_has_the_picture_as_text():
    text = gh.diagnose(torch.ones(3, 3, dtype=torch.bool).tril()).text()
    assert "    ■··\n    ■■·\n    ■■■\n\n■ visible, · hidden;" in text
