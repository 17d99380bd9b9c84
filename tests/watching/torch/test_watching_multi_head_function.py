"""`F.multi_head_attention_forward`, called by a module of one's own."""

import torch
from torch import nn
from torch.nn import functional as F

from watching.torch.explicit import check, undisturbed, weights
from watching.torch.multi_heads import (
    BATCH,
    HEAD_DIM,
    HEADS,
    KEYS,
    KEYS_HIDDEN,
    PAIRS,
    QUERIES,
    TOLERANCE,
    WIDTH,
    by_head,
    expected_of,
    loud,
    projected,
)


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
