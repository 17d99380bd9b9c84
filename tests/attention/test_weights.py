"""The lazy matrix of weights: each part of it is that of the matrix which a trace writes out."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import glasshead as gh
from cases import cases
from glasshead.engines import STREAMING
from hypothesis_profiles import examples

EXPONENTIALS = st.sampled_from([gh.Softmax, lambda: gh.SoftmaxOne(0.5)])


def close(found, expected, tolerance=1e-5):
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, check_dtype=False)


def whole(attention, query, key, **call):
    return attention.trace(query, key, key, **call).weights


def given_weights(*leading, queries=7, keys=11, dim=5, **options):
    query, key = torch.randn(*leading, queries, dim), torch.randn(*leading, keys, dim)
    attention = gh.Attention(mask=gh.causal(), **options)
    return attention.weights(query, key), whole(attention, query, key)


@given(cases(), EXPONENTIALS, st.data())
@examples(100)
def test_every_tile_is_that_of_the_trace(case, normalizer, data):
    query, key, _ = case.inputs()
    attention = gh.Attention(normalizer=normalizer())
    W, P = attention.weights(query, key, **case.call()), whole(attention, query, key, **case.call())
    assert W.shape == P.shape
    assert W.dtype == P.dtype
    assert W.device == P.device
    close(W.dense(), P)
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, case.queries)] * 2)))
    left, right = sorted(data.draw(st.tuples(*[st.integers(0, case.keys)] * 2)))
    close(W.tile(range(first, last), range(left, right)), P[..., first:last, left:right])
    seen = attention.observe(query, key, key, [gh.LogSumExp()], **case.call())
    close(W.logsumexp, seen.log_sum_exp)


@given(cases(), EXPONENTIALS, st.sampled_from([1, 3, 8, 9, 13]), st.data())
@examples(100)
def test_products_are_those_of_the_dense_matrix(case, normalizer, width, data):
    query, key, _ = case.inputs()
    W = gh.Attention(normalizer=normalizer()).weights(query, key, **case.call())
    P = W.dense()
    axes = ((), (1,), (case.heads,), (*case.batch, 1), (*case.batch, case.heads))
    leading = data.draw(st.sampled_from(axes))
    R = torch.randn(*leading, case.keys, width, dtype=torch.float64)
    L = torch.randn(*leading, case.queries, width, dtype=torch.float64)
    close(W @ R, P @ R.to(P))
    close(W.T @ L, P.mT @ L.to(P))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("leading", [(), (3,), (6,), (2, 1), (2, 6)])
def test_wide_products_run_as_values_and_are_the_same(dtype, leading, monkeypatch):
    query = torch.randn(2, 6, 7, 5).to(dtype)
    key = torch.randn(2, 3, 11, 5).to(dtype)
    W = gh.Attention(mask=gh.causal(), softcap=3.0).weights(query, key)
    R = torch.randn(*leading, 11, 13, dtype=torch.float64)
    if leading == (3,):
        with pytest.raises(ValueError, match=r"broadcasts to \[2, 6\], got \[3, 11, 13\]"):
            W @ R
        return
    run, ran = STREAMING.run, []
    monkeypatch.setattr(
        type(STREAMING), "run", lambda _, problem: ran.append(problem) or run(problem)
    )
    wide = W @ R
    assert len(ran) == 1
    assert ran[0].group == (1 if leading[-1:] == (6,) else 2)
    assert wide.dtype == W.dtype == torch.promote_types(dtype, torch.float32)
    narrow = torch.cat([W @ part for part in R.split(5, -1)], -1)
    close(wide, narrow)
    close(wide, W.dense() @ R.to(W.dtype))


@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (2, 5, 3)])
def test_indexes_are_those_of_a_tensor(leading):
    W, P = given_weights(*leading)
    indexes = [
        (..., 3, slice(None)),
        (..., -1, slice(None)),
        (..., slice(None), -11),
        (..., 2, 4),
        (..., slice(1, 6, 2), slice(-5, None, 3)),
        (..., slice(5, 2), slice(None)),
        (..., slice(3, 3), slice(3, 3)),
        (..., slice(-99, 99), slice(4, 99)),
        (..., np.int64(3), slice(np.int32(2), np.int64(9))),
        (..., torch.tensor(3), slice(None)),
        ...,
        (),
        (slice(None),) * len(P.shape),
    ]
    for index in indexes:
        found = W[index]
        assert found.shape == P[index].shape, index
        close(found, P[index])
    close(W[0], P[0])
    close(W[-1:], P[-1:])


@pytest.mark.parametrize(
    ("index", "error", "sentence"),
    [
        (
            (..., 7, slice(None)),
            IndexError,
            "must have an index within its 7 queries, counted from 0, got 7",
        ),
        (
            (..., -8, slice(None)),
            IndexError,
            "must have an index within its 7 queries, counted from 0, got -8",
        ),
        ((..., 11), IndexError, "must have an index within its 11 keys, counted from 0, got 11"),
        (
            (2, 0, 0, 0),
            IndexError,
            "within its 2 entries along a leading axis, counted from 0, got 2",
        ),
        ((0, 0, 0, 0, 0), IndexError, "at most 4 axes, got 5"),
        ((..., 0, ...), IndexError, "must have one ellipsis, got 2"),
        ((..., True, 0), TypeError, "whole numbers, slices or an ellipsis, got bool"),
        ((..., np.True_), TypeError, "got bool"),
        ((..., torch.tensor(True)), TypeError, "got a tensor of torch.bool"),
        ((..., [0, 1]), TypeError, "got list"),
        ((..., torch.tensor([0, 1])), TypeError, "got a tensor of torch.int64"),
        ((None, 0), TypeError, "got NoneType"),
        ((..., 1.0), TypeError, "got float"),
        ((..., slice(0.5, None)), TypeError, "got float"),
        ((..., slice(None, None, -1)), ValueError, "slices with steps above 0, got -1"),
        ((..., slice(None, None, 0)), ValueError, "slices with steps above 0, got 0"),
    ],
)
def test_another_index_is_refused(index, error, sentence):
    W, _ = given_weights(2, 3)
    with pytest.raises(error, match=sentence):
        W[index]


@pytest.mark.parametrize(
    ("rows", "columns", "error", "sentence"),
    [
        (range(0, 7, 2), range(11), ValueError, r"tile\(rows\) .* step 1 within 0 to 7"),
        (range(-1, 3), range(11), ValueError, r"tile\(rows\) .*range\(-1, 3\)"),
        (range(8), range(11), ValueError, r"tile\(rows\) .*range\(0, 8\)"),
        (range(7), range(3, 12), ValueError, r"tile\(columns\) .* within 0 to 11"),
        (slice(0, 7), range(11), TypeError, "must be a range such as .*, got slice"),
    ],
)
def test_another_tile_is_refused(rows, columns, error, sentence):
    W, _ = given_weights(2, 3)
    with pytest.raises(error, match=sentence):
        W.tile(rows, columns)
    assert W.tile(range(5, 2), range(3)).shape == (2, 3, 0, 3)


@pytest.mark.parametrize("leading", [(), (3,), (2, 3)])
def test_every_layout_multiplies_and_pools(leading):
    W, P = given_weights(*leading)
    for width in (2, 17):
        for R in (torch.randn(11, width), torch.randn(*leading, 11, width)):
            close(W @ R, P @ R)
        for L in (torch.randn(7, width), torch.randn(*leading, 7, width)):
            close(W.T @ L, P.mT @ L)
    assert W.T.shape == P.mT.shape
    assert W.T.T is W
    pooled = W.pooled(np.int64(2), 3)
    assert pooled.shape == (*leading, 2, 3)
    # Row 1 begins with query 7 // 2, column 1 with key 11 // 3.
    close(pooled[..., 0, 0], P[..., :3, :3].sum(-1).mean(-1))
    close(pooled[..., 1, 2], P[..., 3:, 7:].sum(-1).mean(-1))


@pytest.mark.parametrize(
    ("factor", "error", "sentence"),
    [
        ([1.0], TypeError, "W @ R must be a floating-point tensor, got list"),
        (torch.ones(11, 2, dtype=torch.int64), TypeError, "got torch.int64"),
        (torch.ones(11), ValueError, r"must be \[..., 11, n\] .*, got \[11\]"),
        (torch.ones(7, 2), ValueError, r"must be \[..., 11, n\] .*, got \[7, 2\]"),
        (torch.ones(5, 11, 2), ValueError, r"broadcasts to \[2, 3\], got \[5, 11, 2\]"),
        (torch.ones(1, 2, 3, 11, 2), ValueError, "broadcasts to"),
        (torch.ones(11, 2, device="meta"), ValueError, "a tensor on cpu, got one on meta"),
    ],
)
def test_what_cannot_be_multiplied_is_refused(factor, error, sentence):
    W, _ = given_weights(2, 3)
    with pytest.raises(error, match=sentence):
        W @ factor
    with pytest.raises(ValueError, match=r"W.T @ L must be \[..., 7, n\]"):
        W.T @ torch.ones(11, 2)


@pytest.mark.parametrize(
    ("sizes", "error", "sentence"),
    [
        ((8, 2), ValueError, r"pooled\(rows\) must be at most 7, got 8"),
        ((2, 12), ValueError, r"pooled\(columns\) must be at most 11, got 12"),
        ((0, 2), ValueError, r"pooled\(rows\) must be a whole number of at least 1"),
        ((True, 2), TypeError, r"pooled\(rows\) must be a whole number"),
    ],
)
def test_a_map_of_another_size_is_refused(sizes, error, sentence):
    W, _ = given_weights(2, 3)
    with pytest.raises(error, match=sentence):
        W.pooled(*sizes)


def test_a_part_too_large_is_refused_before_it_is_computed():
    x = torch.randn(1, 1, 30_011, 2)
    W = gh.Attention(mask=gh.window(before=1)).weights(x, x)
    with pytest.raises(
        ValueError, match=r"W.dense\(\) may take at most \d+ bytes, .*Raise budget="
    ):
        W.dense()
    with pytest.raises(ValueError, match=r"this part of W may take at most 2147483648 bytes"):
        W[...]
    assert W[..., 29_000, :].sum().item() == pytest.approx(1.0)
    with pytest.raises(
        ValueError, match=r"may take at most \d+ bytes, but needs 1024\. Raise budget="
    ):
        given_weights(queries=4, keys=16)[0].dense(budget=1000)


def test_there_is_no_gradient():
    query = torch.randn(2, 3, 7, 5, requires_grad=True)
    key = torch.randn(2, 3, 11, 5, requires_grad=True)
    attention = gh.Attention(
        score=gh.Dot(beta=torch.nn.Parameter(torch.ones(3))),
        bias=gh.RelativeBias(3),
        normalizer=gh.SoftmaxOne(torch.nn.Parameter(torch.zeros(3))),
    )
    W = attention.weights(query, key)
    R = torch.randn(11, 13, requires_grad=True)
    parts = (W.logsumexp, W.dense(), W[..., 0, :], W @ R, W @ R[:, :2], W.T @ R[:7], W.pooled(2, 2))
    assert not any(part.requires_grad for part in parts)
    assert query.grad is None


def test_half_precision_is_computed_in_full():
    x = torch.randn(2, 3, 7, 5).bfloat16()
    W = gh.Attention().weights(x, x)
    exact = gh.Attention().weights(x.double(), x.double())
    assert W.dtype == torch.float32
    close(W.dense(), exact.dense(), 1e-5)
    R = torch.randn(7, 11).double()
    close(W @ R, exact @ R, 1e-5)


def test_rows_that_see_nothing_weigh_nothing_whatever_they_hold():
    query, key = torch.randn(2, 3, 7, 5), torch.randn(2, 3, 11, 5)
    query[:, :, 2], key[:, :, 4] = torch.nan, torch.inf
    mask = gh.dense((torch.arange(7) != 2)[:, None] & (torch.arange(11) != 4))
    W = gh.Attention(mask=mask).weights(query, key)
    assert W.logsumexp[..., 2].isneginf().all()
    assert not W[..., 2, :].any()
    assert not W[..., :, 4].any()
    assert not W[..., 1:3, 3:5][..., 1, :].any()
    for width in (2, 17):
        assert (W @ torch.ones(11, width))[..., 2, :].eq(0).all()
    close(W.dense().sum(-1)[..., :2], torch.ones(2, 3, 2))


def test_an_offset_may_differ_from_row_to_row():
    query, key = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7)
    offset = torch.tensor([0, 6])
    attention = gh.Attention(mask=gh.causal(), bias=gh.ALiBi(3))
    W = attention.weights(query, key, offset=offset)
    P = whole(attention, query, key, offset=offset)
    close(W.dense(), P)
    close(W[..., 2:4, 1:9], P[..., 2:4, 1:9])
    close(W @ torch.eye(11), P)
    assert not W[0, :, 0, 1:].any()


def test_a_product_with_nan_is_nan_however_wide():
    x = torch.randn(1, 1, 5, 3)
    W = gh.Attention(mask=gh.padding(3)).weights(x, x)
    for width in (2, 17):
        R = torch.ones(5, width)
        R[4, 0] = torch.nan
        product = W @ R
        assert product[..., 0].isnan().all()
        close(product[..., 1:], torch.ones(1, 1, 5, width - 1))


def test_there_may_be_no_key_and_no_column():
    W = gh.Attention(mask=gh.causal()).weights(torch.randn(2, 3, 7, 5), torch.randn(2, 3, 0, 5))
    assert W.dense().shape == W[...].shape == (2, 3, 7, 0)
    assert W.logsumexp.isneginf().all()
    assert torch.equal(W @ torch.ones(0, 13), torch.zeros(2, 3, 7, 13))
    W, _ = given_weights(2, 3)
    assert (W @ torch.ones(11, 0)).shape == (2, 3, 7, 0)
    assert (W.T @ torch.ones(7, 0)).shape == (2, 3, 11, 0)


def test_other_scores_go_through_rows_and_agree():
    query, key = torch.randn(2, 3, 7, 5), torch.randn(2, 3, 11, 5)
    for score in (gh.Gaussian(0.5), gh.Additive(5, 3), gh.Cosine(3.0)):
        attention = gh.Attention(score=score)
        W, P = attention.weights(query, key), whole(attention, query, key)
        close(W.dense(), P)
        close(W @ torch.eye(11), P)


def test_numbers_are_needed_and_exponentials():
    x = torch.empty(2, 3, 7, 5, device="meta")
    with pytest.raises(ValueError, match=r"got some on the meta device\. Create them on another"):
        gh.Attention(mask=gh.causal()).weights(x, x)
    x = torch.randn(7, 5)
    with pytest.raises(ValueError, match="weights needs a normalizer with a logsumexp"):
        gh.Attention(normalizer=gh.Sigmoid()).weights(x, x)


def test_it_is_shown_by_its_size():
    assert repr(given_weights(2, 3)[0]) == "Weights [2, 3, 7, 11], 1.85 kB if it were there"
    assert repr(given_weights()[0].T) == "Weights [7, 11], 308 B if it were there, transposed"
    x = torch.randn(1, 1, 2**20, 1)
    W = gh.Attention(mask=gh.window(before=0)).weights(x, x)
    assert repr(W) == "Weights [1, 1, 1048576, 1048576], 4.4 TB if it were there"


@pytest.mark.parametrize(("dtype", "least"), [(torch.float32, 5e-38), (torch.float64, 1e-307)])
def test_a_weight_is_exact_down_to_the_least_normal_number_and_0_below(dtype, least):
    keys = -torch.arange(0, 997, dtype=torch.float64)[:, None]
    exact = gh.Attention(score=gh.Dot()).trace(keys[1:2] * -1, keys, keys).weights[0]
    W = gh.Attention(score=gh.Dot()).weights(keys[1:2].to(dtype) * -1, keys.to(dtype))
    weights = W.tile(range(1), range(997))[0].double()
    torch.testing.assert_close(
        weights[exact > 1.1 * least], exact[exact > 1.1 * least], rtol=1e-5, atol=0
    )
    assert exact.numel() == 997
    assert (weights[exact < least / 1.1] == 0).all()
