"""Each fault that is planted in a mask is found, and its place is named.

Each fault in the numbers of a mask is found.
Each fault of padding is found, and the batch row is named.
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import glasshead as gh
from diagnosis.planted import CAUSAL, additive, found, kinds
from hypothesis_profiles import examples

# The future


@examples(60)
@given(
    cells=st.sets(
        st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 12)), min_size=1, max_size=5
    ),
    away=st.integers(1, 4),
    form=st.sampled_from(["attend", "hidden", "additive"]),
)
def test_a_leak_of_the_future_is_counted_and_named(cells, away, form):
    shown = torch.ones(2, 3, 17, 17, dtype=torch.bool).tril()
    for batch, head, query in cells:
        shown[batch, head, query, query + away] = True
    mask = {"attend": shown, "hidden": ~shown, "additive": additive(shown)}[form]
    finding = found(mask, "future", convention=form)
    assert finding.severity == "error"
    assert f"{len(cells)} cell" in finding.sentence
    places = sorted((batch, head, query, query + away) for batch, head, query in cells)
    assert finding.where == tuple(places[:4])
    batch, head, query, key = places[0]
    assert f"query {query}, key {key} (batch row {batch}, head {head})" in finding.sentence


def test_a_diagonal_that_is_one_too_far_shows_the_future():
    finding = found(CAUSAL.new_ones(7, 7).tril(1), "future")
    assert (finding.severity, finding.where) == ("error", ((0, 1),))
    assert "off by one: every query sees the key after its own" in finding.sentence


def test_a_diagonal_that_is_hidden_is_off_by_one():
    assert "no query sees its own key" in found(CAUSAL.tril(-1), "alignment").sentence
    finding = found(torch.ones(7, 7, dtype=torch.bool).triu(), "dead-rows")
    assert finding.where == ((0,),)


# Polarity of masks that are not of two values, or whose evidence does not decide


@pytest.mark.parametrize("low", [-torch.inf, -1e9, torch.finfo(torch.float32).min])
@pytest.mark.parametrize("stated", [None, "additive"])
@pytest.mark.parametrize("diagonal", [0, 1])
def test_an_additive_mask_that_hides_the_past_is_inverted(diagonal, stated, low):
    shown = CAUSAL.new_ones(7, 7).triu(diagonal)
    finding = found(additive(shown, low), "polarity", convention=stated)
    assert finding.severity == "error"
    assert "queries see only later positions. Hide those instead" in finding.sentence


@pytest.mark.parametrize("shown", [CAUSAL.mT, CAUSAL.mT & ~CAUSAL.triu(3).mT])
def test_a_mask_that_hides_the_past_as_stated_is_inverted(shown):
    assert found(shown, "polarity", convention="attend").severity == "error"
    assert found(~shown, "polarity", convention="hidden").severity == "error"
    assert found(gh.dense(shown), "polarity", queries=7, keys=7).severity == "error"


def test_the_batch_rows_and_heads_that_are_inverted_are_named():
    shown = CAUSAL.expand(2, 3, 7, 7).clone()
    shown[1, 2] = CAUSAL.mT & (torch.arange(7) < 5)
    finding = found(additive(shown), "polarity")
    assert "only later positions (batch row 1, head 2)." in finding.sentence
    assert finding.where == ((1, 2, 0, 0),)


@pytest.mark.parametrize("shown", [CAUSAL[:1].flip(1), CAUSAL.new_ones(7, 7), CAUSAL[4:]])
def test_one_query_a_full_mask_and_a_cache_are_not_inverted(shown):
    assert "polarity" not in kinds(shown, convention="attend")
    assert "polarity" not in kinds(additive(shown))


# Alignment


def test_a_causal_mask_at_the_top_left_of_a_cache_is_found():
    mask = torch.ones(3, 7, dtype=torch.bool).tril()
    finding = found(mask, "alignment")
    assert "begins at the top left: the last query sees 3 keys" in finding.sentence
    assert "should see all 7. Use gh.causal()" in finding.sentence
    assert gh.diagnose(mask, offset=0).healthy


def test_a_causal_mask_at_the_bottom_right_is_found_where_nothing_is_cached():
    mask = torch.ones(3, 7, dtype=torch.bool).tril(4)
    assert gh.diagnose(mask).healthy
    finding = found(mask, "alignment", offset=0)
    assert "ends at the bottom right, as if 4 keys were cached" in finding.sentence


def test_a_causal_mask_at_another_position_is_found():
    finding = found(torch.ones(3, 11, dtype=torch.bool).tril(5), "alignment")
    assert "stands at position 5 among the keys, but keys - queries says 8" in finding.sentence


# Emptiness


def test_dead_rows_are_counted_over_all_batch_rows_and_named():
    shown = torch.ones(2, 3, 7, 7, dtype=torch.bool).tril()
    shown[1, 0, 4] = shown[1, 2, 6] = False
    finding = found(shown, "dead-rows")
    assert (finding.severity, finding.where) == ("error", ((1, 0, 4), (1, 2, 6)))
    assert "2 queries see no key at all: query 4 (batch row 1, head 0)" in finding.sentence


def test_of_many_dead_rows_the_first_are_named_and_all_counted():
    shown = torch.ones(211, 211, dtype=torch.bool).tril()
    shown[11:111] = False
    finding = found(shown, "dead-rows", convention="attend")
    assert len(finding.where) == 4
    assert "100 queries see no key at all: query 11; " in finding.sentence
    assert "and 96 more" in finding.sentence


def test_dead_rows_of_left_padding_are_a_note_and_with_infinities_a_warning():
    shown = (CAUSAL & torch.tensor([0, 0, 1, 1, 1, 1, 1]).bool())[None, None]
    assert found(shown, "dead-rows").severity == "note"
    assert found(additive(shown, torch.finfo(torch.float32).min), "dead-rows").severity == "note"
    finding = found(additive(shown), "dead-rows")
    assert finding.severity == "warning"
    assert "their own keys are padding" in finding.sentence
    assert "NaN" in finding.sentence


def test_masks_that_hide_nothing_or_everything_are_told():
    assert found(CAUSAL.new_ones(5, 7), "hides-nothing").severity == "note"
    assert found(torch.zeros(5, 7), "hides-nothing").severity == "note"
    assert found(torch.full((5, 7), -torch.inf), "hides-everything").severity == "error"
    assert found(torch.zeros(3, 7).long(), "hides-everything").severity == "error"
    assert found(torch.ones(3, 7).long(), "hides-nothing").severity == "note"
    assert found(CAUSAL.new_zeros(5, 7), "ambiguous").severity == "warning"


# Shapes


def test_a_batch_of_as_many_rows_as_queries_is_a_trap():
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 0, 0, 0]])
    finding = found(mask, "layout", queries=3)
    assert "its batch of 3 is also the number of queries" in finding.sentence
    assert finding.severity == "warning"
    assert gh.diagnose(mask, queries=5).healthy
    assert gh.diagnose(mask).healthy


def test_the_heads_of_three_axes_are_told():
    finding = found(CAUSAL.expand(6, 7, 7), "layout")
    assert finding.severity == "note"
    assert "gh.from_torch_mha(mask, num_heads=…)" in finding.sentence


def test_a_mask_that_is_keys_by_queries_is_turned():
    mask = torch.ones(3, 7, dtype=torch.bool).tril(4).mT
    finding = found(mask, "transposed", queries=3, keys=7)
    assert "[keys, queries]" in finding.sentence
    assert gh.diagnose(mask, queries=3, keys=7).conversion == "mask = gh.causal()"


@pytest.mark.parametrize("sizes", [{"keys": 8}, {"queries": 5}, {"queries": 8, "keys": 8}])
def test_a_wrong_length_is_found(sizes):
    diagnosis = gh.diagnose(CAUSAL, **sizes)
    assert diagnosis.findings[0].kind == "length"
    assert "as the attention has, got 7 and 7." in diagnosis.findings[0].sentence
    assert (diagnosis.mask, diagnosis.conversion) == (None, None)


def test_a_tokenizers_mask_of_a_wrong_length_is_found():
    assert (
        "must have 5 keys, as the attention has"
        in found([[1, 1, 0], [1, 1, 1]], "length", keys=5).sentence
    )


# Polarity


@pytest.mark.parametrize(
    ("mask", "stated"), [(~CAUSAL, "attend"), (CAUSAL, "hidden"), (CAUSAL.mT, "attend")]
)
def test_a_polarity_that_contradicts_what_is_stated_is_found(mask, stated):
    finding = found(mask, "polarity", convention=stated)
    assert finding.severity == "error"
    assert "looks inverted" in finding.sentence


def test_four_axes_where_true_hides_are_found():
    assert found((~CAUSAL)[None, None], "polarity").severity == "warning"


def test_an_inverted_tokenizers_mask_is_found():
    finding = found(torch.tensor([[0, 0, 0, 0], [0, 0, 1, 1]]), "polarity")
    assert "1 - mask" in finding.sentence


@pytest.mark.parametrize(
    "mask",
    [
        np.random.default_rng(0).random((13, 17)) < 0.5,
        torch.tensor([[True, True, False], [True, False, False]]),
        torch.tensor([[False, True, True]]),
    ],
)
def test_what_may_be_read_in_two_ways_asks_for_the_convention(mask):
    diagnosis = gh.diagnose(mask)
    assert (diagnosis.convention, diagnosis.mask, diagnosis.conversion) == (None, None, None)
    assert 'State convention="attend"' in diagnosis.findings[0].sentence
    for stated in ("attend", "hidden"):
        diagnosis = gh.diagnose(mask, convention=stated)
        assert diagnosis.convention == stated
        assert diagnosis.mask is not None


@pytest.mark.parametrize(
    ("mask", "stated", "sentence"),
    [
        (CAUSAL, "additive", "An additive mask must have floats, got torch.bool"),
        (additive(CAUSAL), "attend", "must have 0 and 1 or False and True, got numbers"),
        (CAUSAL[None], "tokenizer", "must have a mask \\[batch, keys\\], got the shape"),
    ],
)
def test_a_convention_that_the_numbers_contradict_is_an_error(mask, stated, sentence):
    import re

    diagnosis = gh.diagnose(mask, convention=stated)
    assert re.search(sentence, diagnosis.findings[0].sentence)
    assert diagnosis.findings[0].severity == "error"
    assert diagnosis.mask is None


def test_nan_is_counted_and_named():
    finding = found(torch.ones(3, 3).triu(1) * -torch.inf, "nan")
    assert "6 cells of the mask have NaN" in finding.sentence
    assert finding.where == ((0, 0), (1, 0), (1, 1), (2, 0))
    assert gh.diagnose(torch.full((3, 3), torch.nan)).mask is None


def test_positive_infinity_is_found():
    assert found(additive(CAUSAL).masked_fill(CAUSAL.tril(-2), torch.inf), "infinity").where[0] == (
        2,
        0,
    )


@pytest.mark.parametrize("low", [-1e4, -1e9, -65504.0])
def test_finite_numbers_hide_only_almost(low):
    finding = found(additive(CAUSAL, low), "almost-hidden")
    assert (finding.severity, finding.where) == ("warning", ((0, 1),))
    assert ("float16" in finding.sentence) == (low == -65504.0)
    assert gh.diagnose(additive(CAUSAL, low)).conversion == "mask = gh.causal()"


@pytest.mark.parametrize(
    ("dtype", "other"), [(torch.float64, torch.float32), (torch.float32, torch.bfloat16)]
)
def test_the_lowest_number_of_another_dtype_is_found(dtype, other):
    finding = found(additive(CAUSAL, torch.finfo(other).min, dtype), "other-lowest")
    assert str(other).removeprefix("torch.") in finding.sentence
    assert gh.diagnose(additive(CAUSAL, torch.finfo(dtype).min, dtype)).healthy
    # Nobody chose the type of a list.
    assert gh.diagnose(additive(CAUSAL, torch.finfo(other).min, dtype).tolist()).healthy


def test_floats_to_multiply_by_are_found():
    finding = found(CAUSAL.float(), "multiplicative")
    assert finding.severity == "error"
    diagnosis = gh.diagnose(CAUSAL.float())
    assert (diagnosis.convention, diagnosis.conversion) == ("multiplicative", "mask = gh.causal()")
    assert "multiplicative" in kinds(torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]))


def test_zero_and_minus_one_are_found():
    assert found(CAUSAL.float() - 1, "unscaled").severity == "error"


def test_whole_numbers_and_bytes_are_found():
    assert "int64" in found(CAUSAL.long(), "integers").sentence
    assert ".bool()" in found(CAUSAL.to(torch.uint8), "bytes").sentence
    assert found(CAUSAL.long() * 10_000 - 10_000, "integers").severity == "error"
    assert "gh.documents" in found(torch.tensor([[1, 1, 2, 2, 3]]), "values").sentence


@pytest.mark.parametrize("low", [-1e4, torch.finfo(torch.float32).min])
def test_masks_that_were_added_to_each_other_are_found(low):
    padded = additive(torch.tensor([True] * 5 + [False] * 2), low)
    finding = found(additive(CAUSAL, low) + padded, "doubled")
    assert finding.where[0] == (0, 5)


def test_holes_in_a_tokenizers_mask_are_named():
    finding = found([[1, 1, 1, 1, 1], [1, 0, 1, 0, 0], [1, 1, 1, 0, 0]], "holes")
    assert finding.where == ((1, 1),)
    assert "key 1 (batch row 1)" in finding.sentence


def test_padding_on_both_sides_of_a_batch_is_found():
    finding = found([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1], [1, 1, 1, 1, 1]], "mixed-padding")
    assert finding.where == ((1,), (0,))


def test_left_padding_is_noted_with_the_keys_that_it_hides():
    finding = found([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]], "left-padding")
    assert finding.severity == "note"
    assert "the first 2 keys are hidden in batch row 1" in finding.sentence


def test_right_padding_hides_the_newest_token_of_a_cache():
    mask = [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    finding = found(mask, "padding-side", queries=1)
    assert finding.where == ((1, 4),)
    assert "the last query stands at key 4, which right padding hides (batch row 1)" in (
        finding.sentence
    )
    assert "padding-side" not in kinds(mask)
    assert "padding-side" not in kinds([row[::-1] for row in mask], queries=1)


def test_an_empty_batch_row_is_found():
    finding = found([[1, 1, 1], [0, 0, 0]], "dead-rows")
    assert finding.where == ((1,),)
    assert "1 batch row shows no key at all: batch row 1" in finding.sentence
