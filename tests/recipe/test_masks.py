"""Masks: what they show, how they combine, and what they say of a range of queries.

Masks of other libraries, turned into ours.
"""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import glasshead as gh
from cases import Case, EverySecond, cases, masks
from glasshead.recipe.masks.kinds import Band
from hypothesis_profiles import examples

DRAWN = {
    "causal()": (gh.causal(), "■■■··\n■■■■·\n■■■■■"),
    "causal(offset=0)": (gh.causal(offset=0), "■····\n■■···\n■■■··"),
    "window(before=1)": (gh.window(before=1), "·■■··\n··■■·\n···■■"),
    "window(before=0, after=1)": (gh.window(before=0, after=1), "··■■·\n···■■\n····■"),
    "window(before=1, offset=0)": (gh.window(before=1, offset=0), "■····\n■■···\n·■■··"),
    "padding(tensor[1])": (gh.padding([2]), "■■···\n■■···\n■■···"),
    "prefix(1)": (gh.prefix(1), "■····\n■····\n■····"),
    "causal(offset=0) | prefix(2)": (gh.causal(offset=0) | gh.prefix(2), "■■···\n■■···\n■■■··"),
    "~causal(offset=0)": (~gh.causal(offset=0), "·■■■■\n··■■■\n···■■"),
    "~window(before=1)": (~gh.window(before=1), "■··■■\n■■··■\n■■■··"),
    "causal() & every_second()": (gh.causal() & EverySecond(), "■·■··\n·■·■·\n■·■·■"),
    "documents(tensor[5]) & causal()": (
        gh.documents([0, 0, 0, 1, 1]) & gh.causal(),
        "■■■··\n···■·\n···■■",
    ),
}


@pytest.mark.parametrize("text", DRAWN)
def test_masks_are_read_and_drawn(text):
    mask, picture = DRAWN[text]
    assert repr(mask) == text
    assert mask.picture(queries=3, keys=5) == picture


def test_long_masks_are_drawn_in_shaded_blocks():
    picture = gh.causal().picture(queries=60, keys=60, width=4).splitlines()
    assert picture == ["▒···", "■▒··", "■■▒·", "■■■▒"]


def test_a_picture_has_one_column_at_least():
    assert gh.causal().picture(queries=8, keys=8, width=1) == "▒"


@pytest.mark.parametrize("text", DRAWN)
def test_masks_by_distance_look_alike_along_diagonals(text):
    mask, picture = DRAWN[text]
    rows = picture.splitlines()
    follows = all(above[:-1] == below[1:] for above, below in pairwise(rows))
    # An offset of its own places a mask among the keys, and not around the query.
    bands = {"causal()", "window(before=1)", "window(before=0, after=1)"}
    assert mask.is_band is (text in bands)
    assert mask.by_distance is (text in {*bands, "~window(before=1)", "causal() & every_second()"})
    assert follows or not mask.by_distance


def test_a_mask_of_a_batch_is_drawn_row_by_row():
    mask = gh.padding([1, 3])
    assert mask.picture(queries=1, keys=3, index=0) == "■··"
    assert mask.picture(queries=1, keys=3, index=1) == "■■■"


def everything(case: Case) -> gh.Tile:
    offset = case.keys - case.queries if case.offset is None else case.offset
    return gh.Tile(range(case.queries), range(case.keys), offset)


@st.composite
def tiles(draw, case: Case) -> gh.Tile:
    rows = sorted(draw(st.lists(st.integers(0, case.queries), min_size=2, max_size=2)))
    columns = sorted(draw(st.lists(st.integers(0, case.keys), min_size=2, max_size=2)))
    return gh.Tile(range(*rows), range(*columns), everything(case).offset)


@given(cases(), st.data())
@examples(300)
def test_a_tile_is_cut_from_the_whole(case, data):
    mask = data.draw(masks(case.batch, case.heads, case.queries, case.keys))
    tile = data.draw(tiles(case))
    shape = (*case.batch, case.heads, case.queries, case.keys)
    whole = mask.visible(everything(case)).expand(shape)
    cut = whole[..., tile.queries.start : tile.queries.stop, tile.keys.start : tile.keys.stop]
    assert torch.equal(mask.visible(tile).expand_as(cut), cut)


@given(cases(), st.data())
@examples(300)
def test_the_key_range_holds_every_visible_key(case, data):
    mask = data.draw(masks(case.batch, case.heads, case.queries, case.keys))
    tile = data.draw(tiles(case))
    shape = (*case.batch, case.heads, len(tile.queries), len(tile.keys))
    columns = mask.visible(tile).expand(shape).flatten(0, -2).any(0).nonzero().flatten()
    told = mask.key_range(tile)
    assert tile.keys.start <= told.start <= told.stop <= tile.keys.stop
    assert {tile.keys.start + int(column) for column in columns} <= set(told)


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (gh.causal(), range(40)),
        (gh.causal(offset=0), range(20)),
        (gh.window(before=3), range(27, 40)),
        (gh.window(before=3, after=2), range(27, 42)),
        (gh.padding([7, 12]), range(12)),
        (gh.prefix(5) | gh.window(before=3), range(40)),
        (gh.window(before=3) & gh.padding([33]), range(27, 33)),
        (gh.documents([0] * 28 + [1] * 4 + [2] * 18), range(28, 50)),
        (gh.dense(torch.arange(50) >= 44), range(44, 50)),
    ],
    ids=str,
)
def test_the_key_range_is_tight_where_it_can_be(mask, expected):
    tile = gh.Tile(range(10, 20), range(50), offset=20)
    assert mask.key_range(tile) == expected


def test_a_key_range_is_told_without_the_matrix():
    tile = gh.Tile(range(10**9, 10**9 + 64), range(10**10), offset=0)
    mask = gh.window(before=255) & gh.causal()
    assert mask.key_range(tile) == range(10**9 - 255, 10**9 + 64)


@given(cases(), st.data())
@examples(300)
def test_the_simplified_mask_says_the_same(case, data):
    mask = data.draw(masks(case.batch, case.heads, case.queries, case.keys))
    tile = everything(case)
    simple = mask.simplified(tile)
    shape = (*case.batch, case.heads, case.queries, case.keys)
    shown = torch.ones(shape, dtype=torch.bool) if simple is None else simple.visible(tile)
    assert torch.equal(shown.expand(shape), mask.visible(tile).expand(shape))


def test_a_window_within_a_causal_mask_becomes_one_band():
    tile = gh.Tile(range(9), range(9))
    assert repr((gh.causal() & gh.window(before=3, after=2)).simplified(tile)) == "window(before=3)"
    assert gh.window(before=8, after=8).simplified(tile) is None


@pytest.mark.parametrize("offset", [torch.tensor([0, 2]), torch.tensor([5, 5])])
def test_an_offset_in_a_mask_wins_over_the_call(offset):
    x = torch.randn(2, 1, 5, 3)
    within = gh.Attention(mask=gh.causal(offset=offset))
    assert torch.equal(within(x, x, x, offset=4), within(x, x, x))
    at_call = gh.Attention(mask=gh.causal())(x, x, x, offset=offset)
    torch.testing.assert_close(within(x, x, x), at_call)


def test_a_ragged_cache_is_one_argument():
    query, key, value = torch.randn(2, 1, 1, 3), torch.randn(2, 1, 7, 3), torch.randn(2, 1, 7, 3)
    context = gh.Attention(mask=gh.causal())(query, key, value, offset=torch.tensor([3, 6]))
    alone = gh.Attention()(query[:1], key[:1, :, :4], value[:1, :, :4])
    torch.testing.assert_close(context[:1], alone)


def test_masks_leave_the_module_and_its_state_alone():
    attention = gh.Attention(mask=gh.padding(torch.tensor([3, 2])) & gh.causal())
    assert attention.state_dict() == {}
    assert not list(attention.buffers())


class Apart(Band):
    """A band of which nothing is known."""


def test_masks_of_positions_tell_their_numbers():
    make = [
        gh.causal,
        lambda: gh.causal(offset=2),
        lambda: gh.window(before=3),
        lambda: gh.window(before=3, after=5),
        lambda: gh.window(before=3) & gh.causal(offset=2),
    ]
    numbers = [one().of_positions for one in make]
    assert None not in numbers
    assert len({*numbers}) == len(make)
    assert [one().of_positions for one in make] == numbers
    for other in (
        gh.causal(offset=torch.tensor([2, 0])),
        gh.padding(3),
        gh.causal() & gh.padding(3),
        gh.causal() | gh.window(before=3),
        gh.dense(torch.ones(5, 7, dtype=torch.bool)),
        Apart(None, 0),
        Apart(None, 0) & gh.causal(),
    ):
        assert other.of_positions is None


def test_a_mask_tells_what_it_is_of():
    some, keys = gh.dense(torch.ones(5, 7, dtype=torch.bool)), gh.padding(3)
    masks = [gh.causal(), some, keys, ~keys, ~gh.causal(), some & keys, keys | gh.causal()]
    of_keys = [mask.of_keys for mask in masks]
    assert of_keys == [False, False, True, True, False, False, False]
    compares = [mask.compares_positions for mask in masks]
    assert compares == [True, False, False, False, True, False, True]
    assert [mask.shows_own_key for mask in masks] == [True] + [False] * 6
    assert [len(mask.conjuncts) for mask in masks] == [0, 0, 0, 0, 0, 2, 0]


def test_a_key_that_is_hidden_from_all_is_found_where_a_mask_is_written_out():
    shown = torch.ones(2, 1, 5, 7, dtype=torch.bool)
    assert not gh.dense(shown).hides_a_key(7)
    shown[1, 0, :, 3] = False
    assert gh.dense(shown).hides_a_key(7)
    assert not gh.dense(shown[1, 0]).hides_a_key(7)  # it is of no batch
    assert not gh.padding([3, 7]).hides_a_key(7)


def test_additive_masks_split_into_mask_and_bias():
    mask, bias = gh.from_additive(torch.tensor([[0.5, -torch.inf], [0.0, -2.0]]))
    assert mask.picture(queries=2, keys=2) == "■·\n■■"
    torch.testing.assert_close(bias, torch.tensor([[0.5, 0.0], [0.0, -2.0]]))
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    expected = torch.nn.functional.scaled_dot_product_attention(
        x, y, y, attn_mask=torch.tensor([[0.5, -torch.inf], [0.0, -2.0]])
    )
    torch.testing.assert_close(gh.Attention()(x, y, y, mask=mask, bias=bias), expected)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float32])
def test_a_tokenizers_mask_pads_on_either_side(dtype):
    given = torch.tensor([[0, 0, 1], [1, 1, 0]]).to(dtype)
    mask, bias = gh.from_huggingface(given)
    assert bias is None
    assert mask.picture(queries=1, keys=3, index=0) == "··■"
    assert mask.picture(queries=1, keys=3, index=1) == "■■·"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("hides", ["lowest", "infinity"])
def test_a_models_float_mask_hides_by_the_lowest_number(dtype, hides):
    lowest = torch.finfo(dtype).min if hides == "lowest" else -torch.inf
    given = torch.tensor([[[[0.0, lowest], [0.0, 0.0]]]], dtype=torch.float64).to(dtype)
    mask, bias = gh.from_huggingface(given)
    assert not bias.any()
    assert mask.picture(queries=2, keys=2) == "■·\n■■"


def test_a_models_boolean_mask_is_ours():
    mask, bias = gh.from_huggingface(torch.tensor([[[[True, False]]]]))
    assert (mask.picture(queries=1, keys=2), bias) == ("■·", None)


def test_torch_mha_booleans_mean_the_opposite():
    mask, bias = gh.from_torch_mha(key_padding_mask=torch.tensor([[False, True, True]]))
    assert (mask.picture(queries=1, keys=3), bias) == ("■··", None)
    assert gh.from_torch_mha() == (None, None)


@pytest.mark.parametrize("layout", [(2, 3, 5, 4), (2, 5, 4)])
def test_masks_of_keys_fit_inputs_of_any_layout(layout):
    x = torch.randn(layout)
    real = torch.tensor([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]])
    visible = real.bool()[:, None, None] if len(layout) == 4 else real.bool()[:, None]
    found = gh.Attention()(x, x, x, mask=gh.from_huggingface(real)[0])
    torch.testing.assert_close(found, gh.Attention()(x, x, x, mask=visible))
    opposite = gh.from_torch_mha(key_padding_mask=real == 0)[0]
    torch.testing.assert_close(gh.Attention()(x, x, x, mask=opposite), found)


def test_a_learned_bias_that_starts_at_zero_is_kept():
    tensor = torch.zeros(3, 3, requires_grad=True)
    for mask, bias in (gh.from_additive(tensor), gh.from_torch_mha(tensor)):
        x = torch.randn(3, 2)
        gh.Attention()(x, x, x, mask=mask, bias=bias).square().sum().backward()
        assert tensor.grad.any()
        tensor.grad = None


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: gh.from_additive(torch.ones(2, 2).bool()), TypeError, "must be a floating-point"),
        (lambda: gh.from_additive([[0.0]]), TypeError, "got list"),
        (lambda: gh.from_huggingface(torch.ones(3)), ValueError, r"must be \[batch, keys\] or"),
        (
            lambda: gh.from_huggingface(torch.full((1, 2), 2)),
            ValueError,
            "must contain only 1 .real. and 0",
        ),
        (lambda: gh.from_torch_mha(torch.ones(4, 2, 2).bool()), ValueError, "num_heads=None"),
        (
            lambda: gh.from_torch_mha(torch.ones(4, 2, 2).bool(), num_heads=3),
            ValueError,
            "num_heads=3",
        ),
        (lambda: gh.from_torch_mha(torch.ones(2, 2).int()), TypeError, "must be a floating-point"),
    ],
)
def test_what_is_no_such_mask_is_refused(call, error, match):
    with pytest.raises(error, match=match):
        call()
