"""Blocks that call `scaled_dot_product_attention`: what an explicit softmax says is seen.

Layouts of `scaled_dot_product_attention`: axes, shared heads, nothing at all, packed texts.
"""

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
    DIM,
    HEADS,
    KEYS,
    QUERIES,
    Block,
    Model,
    inputs,
    seen_of,
)

PAIRS = torch.rand(QUERIES, KEYS, generator=torch.Generator().manual_seed(5)) < 0.4


PAIRS[:, 0] = False


NUMBERS = torch.randn(HEADS, QUERIES, KEYS, generator=torch.Generator().manual_seed(5))


MASKS = {
    "booleans": (~PAIRS, {"visible": ~PAIRS}),
    "infinities": (
        torch.zeros(PAIRS.shape).masked_fill(PAIRS, -math.inf),
        {"visible": ~PAIRS},
    ),
    "lowest numbers": (PAIRS * torch.finfo(torch.float32).min, {"visible": ~PAIRS}),
    "numbers": (NUMBERS, {"bias": NUMBERS}),
    "both": (
        NUMBERS.masked_fill(PAIRS, -math.inf),
        {"bias": NUMBERS, "visible": ~PAIRS},
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
    check(
        seen_of(Model(attn_mask=~PAIRS), given),
        weights(*given[:2], visible=~PAIRS),
        offset=2,
    )


def test_dropout_is_not_in_what_is_seen():
    given = inputs(BATCH, HEADS)
    seen = seen_of(Model(attn_mask=~PAIRS, dropout_p=0.4), given)
    check(seen, weights(*given[:2], visible=~PAIRS), offset=KEYS - QUERIES)


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
    visible = ~PAIRS
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


@pytest.mark.parametrize("leading", [(), (BATCH,), (BATCH, HEADS), (BATCH, 5, HEADS)])
def test_inputs_of_two_axes_and_more(leading):
    mask = torch.rand(*leading[:-2], *leading[-1:], QUERIES, KEYS) < 0.8
    given = inputs(*leading)
    seen = seen_of(Model(attn_mask=mask if len(leading) < 3 else mask.unsqueeze(-4)), given)
    expected = weights(*given[:2], visible=mask if len(leading) < 3 else mask.unsqueeze(-4))
    while expected.ndim < 4:
        expected = expected.unsqueeze(-3 if expected.ndim > 2 else 0)
    check(seen, expected, offset=KEYS - QUERIES)


@pytest.mark.parametrize("leading", [(BATCH,), ()])
@pytest.mark.parametrize("kv_heads", [1, 2, 6])
def test_grouped_heads(leading, kv_heads):
    given = inputs(*leading, 6, kv_heads=kv_heads)
    seen = seen_of(Model(enable_gqa=True), given)
    expected = weights(*given[:2])
    check(seen, expected if leading else expected[None])


@pytest.mark.parametrize(("kv_heads", "value_heads"), [(6, 2), (2, 6), (2, 3)])
def test_values_grouped_in_another_way_than_keys(kv_heads, value_heads):
    query, key, _ = inputs(BATCH, 6, kv_heads=kv_heads)
    value = torch.randn(BATCH, value_heads, KEYS, DIM, requires_grad=True)
    seen = seen_of(Model(enable_gqa=True), [query, key, value])
    check(seen, weights(query, key))


@pytest.mark.parametrize("single", [0, 1, 2])
@pytest.mark.parametrize("axis", [0, 1])
def test_one_batch_row_or_head_stands_for_all(axis, single):
    given = inputs(BATCH, HEADS)
    given[single] = given[single].detach().narrow(axis, 0, 1).clone().requires_grad_()
    query, key, _ = (x.expand(BATCH, HEADS, -1, -1) for x in given)
    check(seen_of(Model(), given), weights(query, key))


@pytest.mark.parametrize("empty", ["batch", "queries", "keys"])
def test_there_may_be_nothing_to_attend(empty):
    given = inputs(
        0 if empty == "batch" else BATCH,
        HEADS,
        queries=0 if empty == "queries" else QUERIES,
        keys=0 if empty == "keys" else KEYS,
    )
    seen = undisturbed(Model(), *given, statistics=[gh.Entropy(), gh.Received()])["attn"]
    assert seen.entropy.shape == given[0].shape[:-1]
    assert seen.received.shape == given[1].shape[:-1]
    assert not seen.entropy.any()


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
@pytest.mark.parametrize("keys", [(5, 3, 7), (2, 6, 1)])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_packed_texts_are_filled_up_with_what_is_neither_query_nor_key(layout, keys):
    def packed(lengths):
        if layout == torch.strided:
            return torch.nested.nested_tensor([torch.randn(HEADS, n, 8) for n in lengths])
        texts = [torch.randn(n, HEADS, 8) for n in lengths]
        return torch.nested.nested_tensor(texts, layout=layout).transpose(1, 2)

    queries = (5, 3, 7)
    query = packed(queries)
    key, value = packed(keys), packed(keys)
    if layout == torch.jagged:
        value = key * 1.5
    seen = undisturbed(Model(), query, key, value)["attn"]
    expected = torch.zeros(3, HEADS, max(queries), max(keys), dtype=torch.float64)
    for row, (q, k) in enumerate(zip(query.unbind(), key.unbind(), strict=True)):
        expected[row, :, : q.shape[-2], : k.shape[-2]] = weights(q, k)
    check(seen, expected)
