"""Blocks that call `scaled_dot_product_attention`: what an explicit softmax says is seen."""

import math
from functools import partial

import pytest
import torch
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention as bound_before

import glasshead as gh
from watching.torch.explicit import check, lower, undisturbed, weights
from watching.torch.sdpa_blocks import (
    BATCH,
    HEADS,
    KEYS,
    QUERIES,
    Block,
    Model,
    inputs,
    seen_of,
)

HIDDEN = torch.rand(QUERIES, KEYS, generator=torch.Generator().manual_seed(5)) < 0.4
HIDDEN[:, 0] = False
NUMBERS = torch.randn(HEADS, QUERIES, KEYS, generator=torch.Generator().manual_seed(5))
MASKS = {
    "booleans": (~HIDDEN, {"visible": ~HIDDEN}),
    "infinities": (torch.zeros(HIDDEN.shape).masked_fill(HIDDEN, -math.inf), {"visible": ~HIDDEN}),
    "lowest numbers": (HIDDEN * torch.finfo(torch.float32).min, {"visible": ~HIDDEN}),
    "numbers": (NUMBERS, {"bias": NUMBERS}),
    "both": (
        NUMBERS.masked_fill(HIDDEN, -math.inf),
        {"bias": NUMBERS, "visible": ~HIDDEN},
    ),
}


@pytest.mark.parametrize("scale", [None, 0.7])
@pytest.mark.parametrize("kind", MASKS)
def test_masks_of_every_kind(kind, scale):
    mask, means = MASKS[kind]
    given = inputs(BATCH, HEADS)
    seen = seen_of(Model(attn_mask=mask, scale=scale), given)
    # The last key that the mask shows tells where the queries stand.
    check(seen, weights(*given[:2], scale=scale, **means), offset=KEYS - QUERIES)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_numbers_of_every_kind(dtype):
    given = inputs(BATCH, HEADS, queries=KEYS, dtype=dtype)
    seen = seen_of(Model(is_causal=True), given)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-4
    check(seen, weights(*given[:2], visible=lower(KEYS)), tolerance=tolerance)
    assert seen.entropy.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


@pytest.mark.parametrize("queries", [1, QUERIES, KEYS, 13])
def test_is_causal_counts_from_the_top_left(queries):
    given = inputs(BATCH, HEADS, queries=queries)
    seen = seen_of(Model(is_causal=True), given, statistics=[gh.Entropy(), gh.Received()])
    expected = weights(*given[:2], visible=lower(queries, KEYS))
    near = {"rtol": 1e-5, "atol": 1e-5, "check_dtype": False}
    torch.testing.assert_close(seen.entropy, torch.special.entr(expected).sum(-1), **near)
    # Keys after the last query are of no text so far.
    received = expected.sum(-2)[..., : min(queries, KEYS)]
    torch.testing.assert_close(seen.received, received, **near)


def test_without_a_mask_fewer_queries_than_keys_are_of_another_text():
    given = inputs(BATCH, HEADS)
    seen = seen_of(Model(), given)
    check(seen, weights(*given[:2]), offset=0)
    assert (seen[0].position, seen[0].keys) == (0, KEYS)


@pytest.mark.parametrize("batch", [1, BATCH])
def test_a_mask_of_keys_alone_is_of_another_text_too(batch):
    lengths = torch.tensor([3, 6])[:batch]
    visible = (torch.arange(KEYS) < lengths[:, None])[:, None, None]
    given = inputs(batch, HEADS)
    seen = seen_of(Model(attn_mask=visible), given)
    check(seen, weights(*given[:2], visible=visible), offset=0)
    assert (seen[0].position, seen[0].keys) == (0, KEYS)


def test_one_query_is_a_step_with_a_cache():
    given = inputs(BATCH, HEADS, queries=1)
    seen = seen_of(Model(), given)
    check(seen, weights(*given[:2]), offset=KEYS - 1)
    assert seen[0].position == KEYS - 1


def test_values_of_another_width():
    given = inputs(BATCH, HEADS, value_dim=13)
    check(seen_of(Model(attn_mask=~HIDDEN), given), weights(*given[:2], visible=~HIDDEN), offset=2)


def test_dropout_is_not_in_what_is_seen():
    given = inputs(BATCH, HEADS)
    seen = seen_of(Model(attn_mask=~HIDDEN, dropout_p=0.4), given)
    check(seen, weights(*given[:2], visible=~HIDDEN), offset=KEYS - QUERIES)


def test_the_function_may_have_been_bound_before_the_watch():
    given = inputs(BATCH, HEADS, queries=KEYS)
    seen = seen_of(Model(bound_before, is_causal=True), given)
    check(seen, weights(*given[:2], visible=lower(KEYS)))


def test_arguments_may_be_named():
    class Named(Block):
        def forward(self, query, key, value):
            return F.scaled_dot_product_attention(query=query, key=key, value=value)

    given = inputs(BATCH, HEADS)
    check(undisturbed(Named(), *given)[""], weights(*given[:2]))


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize(
    "function",
    [None, bound_before, partial(bound_before, dropout_p=0.0)],
    ids=["looked up", "bound", "partial"],
)
def test_without_gradients_and_in_inference_mode(function, inference):
    given = inputs(BATCH, HEADS, queries=KEYS)
    with torch.inference_mode(inference), torch.no_grad():
        seen = undisturbed(Model(function, is_causal=True), *given)["attn"]
    check(seen, weights(*given[:2], visible=lower(KEYS)))


def test_a_query_that_sees_nothing_has_zeros():
    visible = ~HIDDEN
    visible[2] = False
    given = inputs(BATCH, HEADS)
    seen = seen_of(Model(attn_mask=visible), given)
    check(seen, weights(*given[:2], visible=visible), offset=KEYS - QUERIES)
    assert not seen.entropy[..., 2].any()
    assert (seen.top.keys[..., 2, :] == -1).all()


def test_a_key_that_nobody_sees_may_hold_anything():
    visible = (torch.arange(KEYS) != 4).repeat(QUERIES, 1)
    given = inputs(BATCH, HEADS)
    with torch.no_grad():
        given[1][..., 4, :] = math.nan
    seen = undisturbed(Model(attn_mask=visible), *given)["attn"]
    key = given[1].detach().nan_to_num(0.0)
    # All queries see the same, so that the keys are those of another text.
    check(seen, weights(given[0], key, visible=visible))


@pytest.mark.filterwarnings("ignore:watch saw keys of .* as of padding")
@pytest.mark.parametrize("kind", ["causal", "padding", "booleans", "numbers"])
def test_a_long_text_whose_statistics_are_taken_by_blocks(kind):
    length = 211
    lengths = torch.tensor([length, 67])
    padded = (torch.arange(length) < lengths[:, None])[:, None, None]
    random = torch.randn(1, HEADS, length, length)
    asked, means = {
        "causal": ({"is_causal": True}, {"visible": lower(length)}),
        "padding": ({"attn_mask": padded}, {"visible": padded}),
        "booleans": ({"attn_mask": random < 1}, {"visible": random < 1}),
        "numbers": ({"attn_mask": random}, {"bias": random}),
    }[kind]
    given = inputs(BATCH, HEADS, queries=length, keys=length)
    seen = seen_of(Model(**asked), given)
    check(seen, weights(*given[:2], **means), tolerance=5e-5)
