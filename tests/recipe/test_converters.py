"""Masks of other libraries, turned into ours."""

import pytest
import torch

import glasshead as gh


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
        (lambda: gh.from_additive(torch.ones(2, 2).bool()), TypeError, "takes a floating-point"),
        (lambda: gh.from_additive([[0.0]]), TypeError, "got list"),
        (lambda: gh.from_huggingface(torch.ones(3)), ValueError, r"takes \[batch, keys\] or"),
        (lambda: gh.from_huggingface(torch.full((1, 2), 2)), ValueError, "takes 1 .real. and 0"),
        (lambda: gh.from_torch_mha(torch.ones(4, 2, 2).bool()), ValueError, "num_heads=None"),
        (
            lambda: gh.from_torch_mha(torch.ones(4, 2, 2).bool(), num_heads=3),
            ValueError,
            "num_heads=3",
        ),
        (lambda: gh.from_torch_mha(torch.ones(2, 2).int()), TypeError, "takes a floating-point"),
    ],
)
def test_what_is_no_such_mask_is_refused(call, error, match):
    with pytest.raises(error, match=match):
        call()
