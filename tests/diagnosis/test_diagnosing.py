"""What `diagnose` takes and refuses, and how a diagnosis is drawn.

Rows: what each query sees, and the first few places of some cells.
"""

import dataclasses
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import glasshead as gh
from glasshead.diagnosis.mask_input import RowSummary, last_edge, places, total
from hypothesis_profiles import examples

CAUSAL = torch.ones(7, 7, dtype=torch.bool).tril()


with warnings.catch_warnings():
    # torch says that nested tensors are a prototype.
    warnings.simplefilter("ignore")
    NESTED = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


@pytest.mark.parametrize(
    ("mask", "stated", "error", "sentence"),
    [
        ("causal", {}, TypeError, "must be a tensor, an array, nested lists .* got str"),
        (None, {}, TypeError, "got NoneType"),
        (torch.tensor(True), {}, ValueError, r"with at least one cell, got shape \[\]"),
        (torch.ones(0, 3), {}, ValueError, r"got shape \[0, 3\]"),
        ([], {}, ValueError, "got shape"),
        ([[1, 0], [1]], {}, ValueError, "lists of one length"),
        ([["a"]], {}, TypeError, "got an array of <U1"),
        (np.array([[None]]), {}, TypeError, "got an array of object"),
        (torch.ones(3, 3, dtype=torch.complex64), {}, TypeError, "got torch.complex64"),
        (torch.ones(3, 3).to_sparse(), {}, TypeError, "dense tensor"),
        (torch.ones(3, 3, device="meta"), {}, TypeError, "on meta"),
        (CAUSAL.to(torch.uint16), {}, TypeError, r"got torch.uint16\. Convert it with .long\(\)"),
        (CAUSAL.to(torch.uint64), {}, TypeError, "got torch.uint64"),
        (NESTED, {}, TypeError, "rows of one length, got a nested tensor"),
        (np.array([[2**63]], dtype=np.uint64), {}, ValueError, "below 2.63, got 9223372036854"),
        (
            torch.ones(1, 1, 2, 1),
            {"queries": 2, "keys": 2**30},
            ValueError,
            "got 2,147,483,648 from",
        ),
        (
            CAUSAL,
            {"convention": "sdpa"},
            ValueError,
            "must be one of attend, hidden, additive, tok",
        ),
        (CAUSAL, {"queries": 0}, ValueError, r"diagnose\(queries=…\) must be a whole number of at"),
        (CAUSAL, {"keys": 1.5}, TypeError, r"diagnose\(keys=…\) must be a whole number"),
        (CAUSAL, {"offset": "x"}, TypeError, r"diagnose\(offset=…\) must be a whole number"),
        (gh.causal(), {}, ValueError, "needs queries= and keys= for a glasshead mask such as"),
        (
            gh.dense(CAUSAL),
            {"queries": 3, "keys": 5},
            ValueError,
            "must be diagnosed with the size that it was made for, got 3 queries and 5",
        ),
    ],
)
def test_what_is_no_mask_is_refused_in_one_sentence(mask, stated, error, sentence):
    with pytest.raises(error, match=sentence):
        gh.diagnose(mask, **stated)


def test_the_mask_is_not_changed():
    mask = torch.zeros(5, 5).masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
    before = mask.clone()
    gh.diagnose(mask)
    assert torch.equal(mask, before)


def test_keys_without_a_batch_may_be_read_in_two_ways():
    assert gh.diagnose([True, True, False]).findings[0].kind == "ambiguous"


def test_zeros_to_multiply_by_hide_everything_where_that_is_stated():
    assert gh.diagnose(torch.zeros(3, 5), convention="attend").findings[0].severity == "error"


def test_a_glasshead_mask_is_never_a_list_of_keys():
    diagnosis = gh.diagnose(
        gh.dense(torch.tensor([[True, True], [True, False]])), queries=2, keys=2
    )
    assert diagnosis.sdpa is None
    assert "query" in diagnosis.portrait.legend


def test_a_diagnosis_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        gh.diagnose(CAUSAL).convention = "hidden"


def test_errors_come_first():
    mask = torch.zeros(2, 1, 7, 7).masked_fill(~CAUSAL, -1e9)
    mask[0, 0, 2, 5] = 0.0
    assert [finding.severity for finding in gh.diagnose(mask).findings] == ["error", "warning"]


def test_the_report_says_it_in_words_with_a_picture():
    mask = CAUSAL.expand(2, 3, 7, 7).clone()
    mask[1, 2, 0, 3] = True
    text = str(gh.diagnose(mask))
    assert text.startswith("A mask with 1 error\n")
    assert "    ■··■···\n    ■■·····\n" in text
    assert "(batch row 1, head 2)" in text
    assert "mask = gh.dense(mask)" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_notebook_shows_it_and_a_page_is_whole():
    diagnosis = gh.diagnose(CAUSAL.float())
    assert "multiplicative" in diagnosis._repr_html_()
    assert diagnosis.html().startswith("<!doctype html>")
    assert repr(diagnosis) == (
        "Diagnosis(convention='multiplicative', healthy=False, findings=multiplicative)"
    )


def test_a_long_mask_is_looked_at_cell_by_cell():
    mask = torch.ones(3001, 3001, dtype=torch.bool).tril()
    mask[2, 3000] = True
    diagnosis = gh.diagnose(mask)
    assert diagnosis.findings[0].where == ((2, 3000),)
    assert len(diagnosis.portrait.drawing.splitlines()) <= 16


@examples(150)
@given(data=st.data())
def test_any_mask_is_told_and_converted_exactly(data):
    """What is stated is what is converted, whatever the shape, the type and the cells."""
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    stated = data.draw(st.sampled_from(["attend", "hidden", "additive", None]))
    count = int(np.prod(shape))
    if stated == "additive":
        numbers = st.sampled_from([0.0, -torch.inf, torch.finfo(torch.float32).min, 0.5, -1e4])
        mask = torch.tensor(data.draw(st.lists(numbers, min_size=count, max_size=count)))
    else:
        dtype = data.draw(st.sampled_from([torch.bool, torch.int64, torch.uint8, torch.float32]))
        bits = st.integers(0, 1)
        mask = torch.tensor(data.draw(st.lists(bits, min_size=count, max_size=count))).to(dtype)
    mask = mask.reshape(shape)
    diagnosis = gh.diagnose(mask, convention=stated)
    str(diagnosis)
    if diagnosis.conversion is None:
        assert stated is None or not diagnosis.healthy
        return
    names = {"gh": gh, "torch": torch, "mask": mask}
    exec(diagnosis.conversion, names)
    queries, keys = (1, *shape)[-2:]
    tile = gh.Tile(range(queries), range(keys), keys - queries)
    seen, made = (one.visible(tile) for one in (diagnosis.mask, names["mask"]))
    assert torch.equal(*torch.broadcast_tensors(seen, made))
    if stated == "additive":
        shown = mask > -1e3
    elif stated is not None:
        shown = (mask != 0) == (stated == "attend")
    else:
        return
    assert bool(seen.any()) == bool(shown.any())
    assert bool(seen.all()) == bool(shown.all())
    assert torch.equal(
        *torch.broadcast_tensors(seen.sum() * shown.numel(), shown.sum() * seen.numel())
    )


CELLS = torch.tensor(
    [
        [False, True, True, False, True],
        [False, False, False, False, False],
        [False, False, True, True, False],
    ]
)


def test_rows_have_a_count_and_two_ends_and_dead_ones_zeros():
    rows = RowSummary.of(CELLS)
    assert rows.count.tolist() == [3, 0, 2]
    assert rows.first.tolist() == [1, 0, 2]
    assert rows.last.tolist() == [4, 0, 3]
    assert rows.alive.tolist() == [True, False, True]


def test_the_edge_is_where_most_queries_end_that_do_not_see_the_last_key():
    cells = torch.ones(5, 7, dtype=torch.bool).tril(1)
    cells[3] = False
    edge = last_edge(RowSummary.of(cells))
    assert (edge.lag, edge.share, edge.count) == (1, 1.0, 3)
    assert last_edge(RowSummary.of(torch.ones(3, 5, dtype=torch.bool))) is None


def test_places_are_the_first_few_and_the_total_is_of_all():
    assert places(CELLS) == ((0, 1), (0, 2), (0, 4), (2, 2))
    assert places(CELLS.any(-1)) == ((0,), (2,))
    assert total(CELLS) == 5
    assert total(torch.ones(2049, 4099, dtype=torch.bool)) == 2049 * 4099
