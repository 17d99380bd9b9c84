"""Layouts of `scaled_dot_product_attention`: axes, shared heads, nothing at all, packed texts."""

import pytest
import torch

import glasshead as gh
from watching.torch.explicit import check, undisturbed, weights
from watching.torch.sdpa_blocks import BATCH, DIM, HEADS, KEYS, QUERIES, Model, inputs, seen_of


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
