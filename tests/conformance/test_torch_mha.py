"""`torch.nn.MultiheadAttention` with the same weights agrees, masks of its polarity included."""

import pytest
import torch

import glasshead as gh


def by_hand(module, query, memory, mask, bias, engine):
    """The projections of `module` around `Attention`."""
    weights = module.in_proj_weight.chunk(3), module.in_proj_bias.chunk(3)
    q, k, v = (
        torch.nn.functional.linear(x, weight, shift).unflatten(-1, (module.num_heads, -1))
        for x, weight, shift in zip((query, memory, memory), *weights, strict=True)
    )
    q, k, v = (x.transpose(-3, -2) for x in (q, k, v))
    context = gh.Attention(engine=engine)(q, k, v, mask=mask, bias=bias)
    return module.out_proj(context.transpose(-3, -2).flatten(-2))


@pytest.mark.parametrize("engine", ["reference", "fused"])
@pytest.mark.parametrize("attn", [None, "boolean", "additive", "by head"])
@pytest.mark.parametrize("padding", [None, "boolean", "additive"])
def test_agrees_with_multihead_attention(engine, attn, padding):
    module = torch.nn.MultiheadAttention(6, 3, batch_first=True, dtype=torch.float64)
    query, memory = torch.randn(2, 5, 6).double(), torch.randn(2, 7, 6).double()
    hidden = torch.rand(5, 7) < 0.4
    attn_mask = {
        None: None,
        "boolean": hidden,
        "additive": torch.randn(5, 7).double().masked_fill(hidden, -torch.inf),
        "by head": torch.randn(6, 5, 7).double(),
    }[attn]
    padded = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
    key_padding_mask = {
        None: None,
        "boolean": padded,
        "additive": torch.zeros(2, 7).double().masked_fill(padded, -torch.inf),
    }[padding]
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask[:, 0] = False
    if attn == "additive":
        attn_mask[:, 0] = 0.5
    mask, bias = gh.from_torch_mha(attn_mask, key_padding_mask, num_heads=3)
    if {attn, padding} == {"boolean", "additive"}:
        # Of mixed kinds the module wants both as numbers; the converter takes either.
        attn_mask = _as_numbers(attn_mask)
        key_padding_mask = _as_numbers(key_padding_mask)
    if attn in ("additive", "by head") and padding == "boolean":
        key_padding_mask = _as_numbers(key_padding_mask)
    expected, _ = module(
        query, memory, memory, attn_mask=attn_mask, key_padding_mask=key_padding_mask
    )
    torch.testing.assert_close(by_hand(module, query, memory, mask, bias, engine), expected)


def _as_numbers(mask):
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape).double().masked_fill(mask, -torch.inf)
