"""Bad input: one sentence of what was expected, what came, and what to do."""

import numpy as np
import pytest
import torch

import glasshead as gh


def inputs(**shapes):
    """Query, key and value of shapes that fit, but for those given."""
    fitting = {"query": (2, 6, 5, 7), "key": (2, 3, 11, 7), "value": (2, 3, 11, 13)}
    return [torch.zeros(shape) for shape in (fitting | shapes).values()]


@pytest.mark.parametrize(
    ("shapes", "match"),
    [
        ({"query": (2, 5, 5, 7)}, "multiple of the key heads.*5 query heads and 3 key heads"),
        ({"key": (2, 0, 11, 7), "value": (2, 0, 11, 7)}, "multiple of the key heads.*0 key heads"),
        ({"value": (2, 6, 11, 13)}, "same heads"),
        ({"key": (2, 3, 11, 8)}, "same width.*got 7 and 8.*Project one"),
        ({"value": (2, 3, 10, 13)}, "each key must have one value.*11 keys and 10 values"),
        ({"query": (4, 6, 5, 7)}, "same batch axes"),
        ({"query": (6, 5, 7)}, "same number of axes"),
        (
            {"query": (7,), "key": (7,), "value": (7,)},
            r"query must be \[length, dim\].*got shape \[7",
        ),
        ({"query": (2, 5, 7), "key": (3, 5, 7), "value": (3, 5, 7)}, "same batch"),
    ],
)
def test_shapes_that_do_not_meet(shapes, match):
    with pytest.raises(ValueError, match=match):
        gh.Attention()(*inputs(**shapes))


def test_dtypes_and_kinds_that_do_not_meet():
    query, key, value = inputs()
    with pytest.raises(TypeError, match=r"query must be float16.*int64.*query\.float\(\)"):
        gh.Attention()(query.long(), key, value)
    with pytest.raises(TypeError, match="one dtype.*key torch.float64.*Convert them"):
        gh.Attention()(query, key.double(), value)
    with pytest.raises(TypeError, match=r"key must be a torch\.Tensor, got list"):
        gh.Attention()(query, key.tolist(), value)
    rows = torch.nested.nested_tensor([query[0, 0], query[1, 0, :3]], layout=torch.jagged)
    with pytest.raises(
        TypeError, match=r"query must have rows of one length.*to_padded_tensor\(query"
    ):
        gh.Attention()(rows, key, value)
    with pytest.raises(ValueError, match="one device.*value meta"):
        gh.Attention()(query, key, value.to("meta"))


@pytest.mark.parametrize(
    ("mask", "error", "match"),
    [
        (torch.ones(5, 11), TypeError, "boolean tensor, got torch.float32. Pass a float mask"),
        (torch.ones(5, 11).int(), TypeError, r"boolean tensor.*torch\.int32\. Convert it with"),
        ("causal", TypeError, r"mask= must be a mask such as causal\(\).*got str"),
        (
            torch.ones(5, 10).bool(),
            ValueError,
            r"dense\(tensor\).*\[2, 6, 5, 11\], got \[5, 10",
        ),
        (torch.ones(3, 5, 11).bool(), ValueError, r"dense.*\[2, 6, 5, 11\], got \[3, 5, 11\]"),
        (torch.ones(1, 2, 6, 5, 11).bool(), ValueError, "dense"),
        (gh.padding([1, 2, 3]), ValueError, r"padding.*broadcasts to \[2\], got \[3\]"),
        (gh.documents([0, 0, 1]), ValueError, r"documents\(ids\) must have.*\[2, 11\].*got \[3\]"),
        (gh.causal(torch.tensor([1, 2, 3])), ValueError, r"offset of causal.*\[2\], got \[3\]"),
        (gh.window(2, 0, torch.ones(5, 2).long()), ValueError, r"offset of window.*got \[5, 2\]"),
        (gh.causal() & gh.prefix([1, 2, 3]), ValueError, r"prefix.*got \[3\]"),
        (~gh.padding([1, 2, 3]) | gh.causal(), ValueError, r"padding.*got \[3\]"),
    ],
)
def test_masks_that_do_not_fit(mask, error, match):
    with pytest.raises(error, match=match):
        gh.Attention()(*inputs(), mask=mask)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: gh.window(before=-1), ValueError, r"window\(before=…\).*at least 0, got -1"),
        (lambda: gh.window(before=1.5), TypeError, "whole number"),
        (lambda: gh.window(after=True), TypeError, "whole number"),
        (lambda: gh.causal(offset=0.5), TypeError, r"causal\(offset=…\) must be a whole number"),
        (lambda: gh.padding([1.0, 2.0]), TypeError, "padding.*whole numbers"),
        (lambda: gh.padding([True]), TypeError, "padding.*whole numbers"),
        (lambda: gh.padding(None), TypeError, r"padding\(lengths\).*got NoneType None"),
        (lambda: gh.padding([[1], [2, 3]]), TypeError, "padding.*whole numbers, in a tensor or a"),
        (lambda: gh.padding(10**30), TypeError, "padding.*whole numbers"),
        (lambda: gh.window(10**30), ValueError, "whole number of 60 bits"),
        (lambda: gh.causal(torch.tensor([1, 2**61])), ValueError, "whole numbers of 60 bits"),
        (lambda: gh.causal(torch.ones(2)), TypeError, r"causal\(offset=…\) must be whole numbers"),
        (lambda: gh.Dot(beta=10**400), ValueError, "beta must be a finite number"),
        (lambda: gh.Dot(beta=float("inf")), ValueError, "beta must be a finite number, got inf"),
        (lambda: gh.SoftmaxOne(sink=float("nan")), ValueError, "sink must be a finite number"),
        (lambda: gh.causal().picture(0, 3), ValueError, r"picture\(queries\).*at least 1"),
        (lambda: gh.causal().picture(3, 3, width=0), ValueError, r"picture\(width\)"),
        (
            lambda: gh.padding([1, 2]).picture(3, 3, index=2),
            ValueError,
            "index must be below 2, got 2",
        ),
        (lambda: gh.documents([0, 1]).picture(3, 3), ValueError, "size that the mask was made for"),
        (lambda: gh.from_torch_mha([[True]]), TypeError, "must be a tensor, got list"),
        (lambda: gh.documents(torch.ones(3)), TypeError, "documents.*whole numbers"),
        (lambda: gh.dense([[True]]), TypeError, "boolean tensor, got list"),
        (lambda: gh.causal() & True, TypeError, "unsupported operand"),
        (lambda: gh.ALiBi(0), ValueError, r"ALiBi\(heads\).*at least 1, got 0"),
        (lambda: gh.RelativeBias(2, buckets=2), ValueError, "buckets.*at least 4"),
        (lambda: gh.RelativeBias(2, max_distance=8), ValueError, "max_distance.*at least 9"),
        (lambda: gh.Additive(0), ValueError, r"Additive\(dim\).*at least 1"),
        (lambda: gh.Dot(beta="sharp"), TypeError, "beta must be a number.*got str 'sharp'"),
        (lambda: gh.Dot(beta=torch.ones(2).int()), TypeError, "beta must be floating-point.*int32"),
        (
            lambda: gh.SoftmaxOne(sink="deep"),
            TypeError,
            "sink must be a number.*got str 'deep'",
        ),
        (lambda: gh.Attention(softcap=0), ValueError, "softcap.*above 0, got 0"),
        (lambda: gh.Attention(softcap=1e-31), ValueError, "softcap.*least 1e-30, got 1e-31"),
        (lambda: gh.Attention(softcap="x"), TypeError, "softcap must be.*'x'"),
        (lambda: gh.Attention(softcap=float("nan")), ValueError, "softcap.*finite"),
        (lambda: gh.Attention(dropout=1.0), ValueError, "dropout.*less than 1, got 1.0"),
        (lambda: gh.Attention(dropout=-0.1), ValueError, "dropout.*got -0.1"),
        (lambda: gh.Attention(dropout=None), TypeError, "dropout must be a number, got NoneType"),
        (
            lambda: gh.Attention(engine="flash"),
            ValueError,
            "'auto', 'fused', 'streaming' or 'reference', got",
        ),
        (lambda: gh.Attention(score=gh.Dot), TypeError, r"score must be a Score such as Dot\(\)"),
        (lambda: gh.Attention(normalizer="softmax"), TypeError, "normalizer must be a Normalizer"),
        (lambda: gh.Attention(bias=[0.0]), TypeError, "bias= must be.*got list"),
        (lambda: gh.Attention(bias=torch.ones(2).bool()), TypeError, "bias=.*goes to mask="),
    ],
)
def test_parts_that_cannot_be_made(make, error, match):
    with pytest.raises(error, match=match):
        make()


@pytest.mark.parametrize(
    ("options", "call", "match"),
    [
        ({"bias": torch.zeros(3, 5, 11)}, {}, r"bias=.*\[2, 6, 5, 11\], got \[3, 5, 11\]"),
        ({}, {"bias": torch.zeros(5, 10)}, r"bias=.*got \[5, 10\]"),
        ({"bias": gh.ALiBi(4)}, {}, "ALiBi must have 4 query heads, got 6"),
        ({"bias": gh.RelativeBias(4)}, {}, "RelativeBias must have 4 query heads, got 6"),
        ({"score": gh.Dot(beta=torch.ones(4))}, {}, r"beta.*one per head \(\[6\]\), got \[4\]"),
        ({"score": gh.Additive(8)}, {}, r"Additive\(dim=8\).*got 7"),
        ({"normalizer": gh.SoftmaxOne(torch.ones(4))}, {}, r"sink.*got \[4\]"),
        ({}, {"offset": torch.tensor([1, 2, 3])}, r"offset.*\[2\], got \[3\]"),
    ],
)
def test_recipes_that_do_not_fit_the_inputs(options, call, match):
    with pytest.raises(ValueError, match=match):
        gh.Attention(**options)(*inputs(), **call)


def test_two_axes_have_no_batch_to_count_offsets_by():
    x = torch.zeros(5, 7)
    with pytest.raises(ValueError, match=r"offset of causal.*broadcasts to \[\], got \[2\]"):
        gh.Attention(mask=gh.causal(torch.tensor([0, 1])))(x, x, x)


def test_a_mask_set_later_is_checked_as_one_given_at_once():
    attention = gh.Attention()
    attention.mask = torch.ones(5, 11).bool().tril()
    query, key, value = inputs()
    assert attention(query, key, value).shape == (2, 6, 5, 13)
    attention.mask = "causal"
    with pytest.raises(TypeError, match="mask= must be a mask"):
        attention(query, key, value)


def test_an_engine_set_later_is_checked_as_one_given_at_once():
    attention = gh.Attention()
    attention.engine = "flash"
    with pytest.raises(
        ValueError, match="engine must be 'auto', 'fused', 'streaming' or 'reference'"
    ):
        attention(*inputs())


def test_numbers_of_numpy_are_numbers():
    x = torch.randn(1, 1, 3, 2)
    offset, beta = np.int64(1), np.float32(0.5)
    found = gh.Attention(score=gh.Dot(beta=beta), mask=gh.causal())(x, x, x, offset=offset)
    expected = gh.Attention(score=gh.Dot(beta=0.5), mask=gh.causal(offset=1))(x, x, x)
    torch.testing.assert_close(found, expected)


def test_tensors_that_no_engine_takes():
    x = torch.zeros(3, 2)
    with pytest.raises(TypeError, match=r"query must be float16.*float8.*query\.float\(\)"):
        gh.Attention()(x.to(torch.float8_e4m3fn), x, x)
    with pytest.raises(TypeError, match="value must be a dense tensor.*to_dense"):
        gh.Attention()(x, x, x.to_sparse())
    with pytest.raises(TypeError, match="budget must be a whole number.*got NoneType"):
        gh.Attention().trace(x, x, x, budget=None)


def test_offsets_are_whole_numbers():
    with pytest.raises(TypeError, match="offset must be a whole number"):
        gh.Attention()(*inputs(), offset=1.5)
    with pytest.raises(TypeError, match="offset must be whole numbers.*float32"):
        gh.Attention()(*inputs(), offset=torch.ones(2))


def test_a_trace_beyond_its_budget_is_refused_before_it_is_made():
    x = torch.empty(1, 8, 2**17, 64, device="meta")
    with pytest.raises(
        ValueError, match=r"trace needs \d{13} bytes .*more than budget=2147483648\."
    ):
        gh.Attention().trace(x, x, x)
    small = torch.zeros(1, 1, 3, 2)
    needed = 3 * 9 * 4 + 3 * 2 * 4
    assert gh.Attention().trace(small, small, small, budget=needed).weights.shape == (1, 1, 3, 3)
    with pytest.raises(ValueError, match=f"trace needs {needed} bytes for scores of shape"):
        gh.Attention().trace(small, small, small, budget=needed - 1)


@pytest.mark.parametrize(
    ("value", "gradient", "error", "match"),
    [
        ([1.0], torch.zeros(2, 3), TypeError, r"WeightGradients\(value\).*got list"),
        (torch.zeros(2, 3), torch.zeros(2, 3).int(), TypeError, r"output_gradient\).*int32"),
        (torch.zeros(3), torch.zeros(3), ValueError, r"of one call, got \[3\] and \[3\]"),
        (torch.zeros(2, 3, 5), torch.zeros(2, 7, 3), ValueError, "of one call, got"),
        (torch.zeros(3, 3, 5), torch.zeros(4, 7, 5), ValueError, "of one call, got"),
        (torch.zeros(0, 3, 5), torch.zeros(4, 7, 5), ValueError, "of one call, got"),
        (torch.zeros(2, 1, 3, 5), torch.zeros(3, 1, 7, 5), ValueError, "of one call, got"),
    ],
)
def test_gradients_of_weights_that_no_call_has(value, gradient, error, match):
    with pytest.raises(error, match=match):
        gh.WeightGradients(value, gradient)
