"""`nn.MultiheadAttention`, whatever it is asked: what is seen is what an explicit softmax says.

`F.multi_head_attention_forward`, called by a module of one's own.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from watching.torch.explicit import check, lower, undisturbed, weights
from watching.torch.multi_heads import (
    BATCH,
    HEAD_DIM,
    HEADS,
    KEYS,
    KEYS_HIDDEN,
    MASKS,
    PAIRS,
    QUERIES,
    TOLERANCE,
    WIDTH,
    Model,
    bias_of,
    by_head,
    expected_of,
    loud,
    projected,
)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("masks", MASKS)
def test_masks_of_every_kind(masks, need_weights):
    masks = MASKS[masks]
    model = Model(
        nn.MultiheadAttention(WIDTH, HEADS, batch_first=True), need_weights=need_weights, **masks
    )
    query, memory = torch.randn(BATCH, QUERIES, WIDTH), torch.randn(BATCH, KEYS, WIDTH)
    seen = undisturbed(model, query, memory, memory, gradient=True)["attention"]
    expected = expected_of(model.attention, query, memory, masks)
    # Without a mask of pairs, the keys are of another text.
    offset = KEYS - QUERIES if "attn_mask" in masks else 0
    check(seen, expected, offset=offset, tolerance=TOLERANCE)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_layouts_and_projections(need_weights, batch_first, bias):
    module = nn.MultiheadAttention(
        WIDTH, HEADS, bias=bias, batch_first=batch_first, kdim=11, vdim=13
    )
    model = Model(module, need_weights=need_weights)
    shapes = (QUERIES, WIDTH), (KEYS, 11), (KEYS, 13)
    query, key, value = (torch.randn(BATCH, *shape) for shape in shapes)
    given = [x if batch_first else x.transpose(0, 1) for x in (query, key, value)]
    seen = undisturbed(model, *given, gradient=True)["attention"]
    check(seen, weights(*projected(module, query, key)), tolerance=TOLERANCE)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("average", [True, False])
def test_inputs_without_a_batch(need_weights, average):
    module = nn.MultiheadAttention(WIDTH, HEADS)
    model = Model(
        module,
        need_weights=need_weights,
        average_attn_weights=average,
        key_padding_mask=KEYS_HIDDEN[1],
    )
    query, memory = torch.randn(QUERIES, WIDTH), torch.randn(KEYS, WIDTH)
    seen = undisturbed(model, query, memory, memory)["attention"]
    visible = ~KEYS_HIDDEN[1]
    check(seen, weights(*projected(module, query, memory), visible=visible)[None])


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_is_causal(need_weights, padded):
    model = Model(
        nn.MultiheadAttention(WIDTH, HEADS, batch_first=True),
        need_weights=need_weights,
        is_causal=True,
        attn_mask=~lower(KEYS),
        key_padding_mask=KEYS_HIDDEN if padded else None,
    )
    x = torch.randn(BATCH, KEYS, WIDTH)
    seen = undisturbed(model, x, x, x)["attention"]
    visible = lower(KEYS) & ~KEYS_HIDDEN[:, None, None] if padded else lower(KEYS)
    expected = weights(*projected(model.attention, x, x), visible=visible)
    check(seen, expected, tolerance=TOLERANCE)


@pytest.mark.parametrize("masks", ["none", "pairs", "numbers of both"])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("added", ["bias", "zero", "both"])
def test_keys_of_its_own_stand_after_those_of_the_text(added, need_weights, masks):
    module = nn.MultiheadAttention(
        WIDTH,
        HEADS,
        batch_first=True,
        add_bias_kv=added != "zero",
        add_zero_attn=added != "bias",
    )
    masks = MASKS[masks]
    model = Model(module, need_weights=need_weights, **masks)
    query, memory = torch.randn(BATCH, QUERIES, WIDTH), torch.randn(BATCH, KEYS, WIDTH)
    seen = undisturbed(model, query, memory, memory, gradient=True)["attention"]
    q, k = projected(module, query, memory)
    rows = [] if added == "zero" else [module.bias_k.view(1, HEADS, 1, HEAD_DIM)]
    rows += [] if added == "bias" else [torch.zeros(1, HEADS, 1, HEAD_DIM)]
    k = torch.cat([k, *(row.expand(BATCH, -1, -1, -1) for row in rows)], -2)
    bias = bias_of(masks, KEYS)
    expected = weights(q, k, bias=F.pad(bias, (0, len(rows))))
    offset = KEYS - QUERIES if "attn_mask" in masks else 0
    check(seen, expected, offset=offset, tolerance=TOLERANCE)


@pytest.mark.parametrize("need_weights", [True, False])
def test_dropout_is_not_in_what_is_seen(need_weights):
    module = nn.MultiheadAttention(WIDTH, HEADS, dropout=0.4, batch_first=True)
    model = Model(module, need_weights=need_weights).train()
    x = torch.randn(BATCH, KEYS, WIDTH)
    seen = undisturbed(model, x, x, x, gradient=True)["attention"]
    check(seen, weights(*projected(module, x, x)), tolerance=TOLERANCE)


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_query_that_sees_nothing_has_zeros_where_pytorch_has_nan(need_weights):
    hidden = PAIRS[0].clone()
    hidden[2] = True
    model = Model(
        nn.MultiheadAttention(WIDTH, HEADS, batch_first=True),
        need_weights=need_weights,
        attn_mask=hidden,
    )
    query, memory = torch.randn(BATCH, QUERIES, WIDTH), torch.randn(BATCH, KEYS, WIDTH)
    seen = undisturbed(model, query, memory, memory)["attention"]
    expected = weights(*projected(model.attention, query, memory), visible=~hidden)
    check(seen, expected, offset=KEYS - QUERIES, tolerance=TOLERANCE)
    assert not seen.entropy[..., 2].any()


@pytest.mark.parametrize("heads", [2, 3])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("masks", ["none", "pairs", "keys", "both"])
@pytest.mark.parametrize("gradients", ["none", "inference"])
def test_the_fast_path_of_even_heads_and_the_slow_one_of_odd(heads, need_weights, masks, gradients):
    masks = {name: mask[..., :KEYS] for name, mask in MASKS[masks].items()}
    if "attn_mask" in masks:
        masks["attn_mask"] = torch.cat([masks["attn_mask"], masks["attn_mask"][:2]])
    module = nn.MultiheadAttention(6 * heads, heads, batch_first=True)
    model = Model(module, need_weights=need_weights, **masks).eval()
    x = torch.randn(BATCH, KEYS, 6 * heads)
    with torch.inference_mode(gradients == "inference"), torch.no_grad():
        seen = undisturbed(model, x, x, x)
    assert list(seen) == ["attention"]
    expected = expected_of(module, x, x, masks)
    check(seen["attention"], expected, tolerance=TOLERANCE)


def test_bfloat16():
    module = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).bfloat16()
    x = torch.randn(BATCH, KEYS, WIDTH).bfloat16()
    seen = undisturbed(Model(module), x, x, x)["attention"]
    check(seen, weights(*projected(module, x, x)), tolerance=5e-2)
    assert seen.entropy.dtype == torch.float32


def test_the_function_may_be_called_by_places():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.own = loud(nn.MultiheadAttention(WIDTH, HEADS))

        def forward(self, query, key):
            own = self.own
            return F.multi_head_attention_forward(
                query.transpose(0, 1), key.transpose(0, 1), key.transpose(0, 1), WIDTH, HEADS,
                own.in_proj_weight, own.in_proj_bias, None, None, False, 0.0,
                own.out_proj.weight, own.out_proj.bias, True, KEYS_HIDDEN, True, PAIRS,
            )  # fmt: skip

    model = Functional()
    query, key = torch.randn(BATCH, QUERIES, WIDTH), torch.randn(BATCH, KEYS, WIDTH)
    seen = undisturbed(model, query, key)[""]
    masks = {"attn_mask": PAIRS, "key_padding_mask": KEYS_HIDDEN}
    expected = expected_of(model.own, query, key, masks)
    check(seen, expected, offset=KEYS - QUERIES, tolerance=TOLERANCE)


def test_keys_that_were_projected_before_take_the_place_of_its_own():
    class Static(nn.Module):
        def __init__(self):
            super().__init__()
            self.own = loud(nn.MultiheadAttention(WIDTH, HEADS))

        def forward(self, query, static):
            own, x = self.own, query.transpose(0, 1)
            return F.multi_head_attention_forward(
                x, x, x, WIDTH, HEADS, own.in_proj_weight, own.in_proj_bias, None, None, False,
                0.0, own.out_proj.weight, own.out_proj.bias, static_k=static, static_v=static,
            )  # fmt: skip

    model = Static()
    query, static = torch.randn(BATCH, QUERIES, WIDTH), torch.randn(BATCH * HEADS, KEYS, HEAD_DIM)
    seen = undisturbed(model, query, static)[""]
    q, _ = projected(model.own, query, query)
    check(seen, weights(q, by_head(static)), tolerance=TOLERANCE)
