"""The lazy matrix and statistics where scores are large, or a finite number masks a whole row."""

import math
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import glasshead as gh
from glasshead.attention.weights import Weights

SCALES = [1.0, 1e2, 1e4, 1e6]
CONSTANTS = [-1e4, -3e5, -1e7, -1e9, torch.finfo(torch.float32).min]
TOLERANCE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}
ONES: dict[str, Any] = {"rtol": 0, "atol": 1e-6}
QUERIES, KEYS = 67, 127


def at_scale(scale, *, dim=13, heads=(4, 2), queries=QUERIES, keys=KEYS, dtype=torch.float32):
    """Queries and keys whose scores lie near to each other, around the scale."""
    torch.manual_seed(5)
    common = math.sqrt(scale / math.sqrt(dim))
    spread = 1 / max(common, 1.0)
    query = common + spread * torch.randn(2, heads[0], queries, dim)
    return query.to(dtype), (common + torch.randn(2, heads[1], keys, dim) * spread).to(dtype)


def masked_rows(constant):
    """A bias that adds a finite number to some whole rows, and to a part of others."""
    bias = torch.zeros(QUERIES, KEYS)
    bias[[3, 4, 40]] = constant
    bias[7, 5:] = bias[50:, 100:] = constant
    return bias


def check(W, P):
    """Every part of the lazy matrix is that of the dense one."""
    close = lambda found, expected: torch.testing.assert_close(found, expected, **TOLERANCE)  # noqa: E731
    *leading, queries, keys = P.shape
    assert W.shape == P.shape
    close(W.dense(), P)
    torch.testing.assert_close(W.dense().sum(-1), torch.ones(*leading, queries), **ONES)
    for row in (0, 3, 40, queries - 1):
        close(W[..., row, :], P[..., row, :])
        close(W[..., row, 5], P[..., row, 5])
    for key in (0, 5, keys - 1):
        close(W[..., key], P[..., key])
    for rows, columns in (
        (range(3, 5), range(2, 9)),
        (range(1, 60), range(keys)),
        (range(queries), range(11, 14)),
        (range(37, 66), range(50, keys)),
    ):
        tile = W.tile(rows, columns)
        close(tile, P[..., rows.start : rows.stop, columns.start : columns.stop])
    halves = [W.tile(range(queries), part).sum(-1) for part in (range(53), range(53, keys))]
    torch.testing.assert_close(sum(halves), torch.ones(*leading, queries), rtol=0, atol=3e-6)
    torch.testing.assert_close(W @ torch.ones(keys, 1), torch.ones(*leading, queries, 1), **ONES)
    for width in (3, 11):
        R, L = torch.randn(keys, width), torch.randn(queries, width)
        close(W @ R, W.dense() @ R)
        close(W @ R, P @ R)
        close(W.T @ L, P.mT @ L)
    blocks = [part.sum(-1) for part in P.tensor_split([KEYS // 3, 2 * KEYS // 3], -1)]
    means = [part.mean(-2) for part in torch.stack(blocks, -1).tensor_split([QUERIES // 2], -2)]
    close(W.pooled(2, 3), torch.stack(means, -2))


ATTENTIONS = ({}, {"mask": gh.causal()}, {"softcap": 50.0})
SCORES = (gh.ScaledDot(), gh.Dot(0.3), gh.Cosine(7.0))


# Every pair of two of the three.
@pytest.mark.parametrize(
    ("score", "attention", "scale"),
    [
        (score, ATTENTIONS[(i + j) % 3], scale)
        for i, score in enumerate(SCORES)
        for j, scale in enumerate(SCALES)
    ],
)
def test_every_part_agrees_with_the_trace_however_large_the_scores(score, attention, scale):
    query, key = at_scale(scale)
    attention = gh.Attention(score=score, **attention)
    W = attention.weights(query, key)
    check(W, attention.trace(query, key, key).weights)


@pytest.mark.parametrize("constant", CONSTANTS)
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_rows_that_a_finite_number_masks_sum_to_one(scale, constant):
    query, key = at_scale(scale)
    attention = gh.Attention(bias=masked_rows(constant))
    W, P = attention.weights(query, key), attention.trace(query, key, key).weights
    check(W, P)
    check(W.head(1, 2), P[1, 2])


@pytest.mark.parametrize("constant", [-1e4, -1e9])
def test_half_precision_agrees_where_a_finite_number_masks(constant):
    for dtype in (torch.bfloat16, torch.float16):
        query, key = at_scale(1.0, dtype=dtype)
        attention = gh.Attention(bias=masked_rows(constant))
        check(attention.weights(query, key), attention.trace(query, key, key).weights)


@pytest.mark.parametrize("scale", [1.0, 1e4, 1e6])
def test_double_precision_agrees_to_twelve_digits(scale):
    query, key = at_scale(scale, dtype=torch.float64)
    attention = gh.Attention(bias=masked_rows(-1e7).double())
    W, P = attention.weights(query, key), attention.trace(query, key, key).weights
    near: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-12}
    torch.testing.assert_close(W.dense(), P, **near)
    torch.testing.assert_close(W.tile(range(67), range(9, 31)), P[..., 9:31], **near)


@pytest.mark.parametrize("sink", [-4.0, 9.9e3, 1e4, 3e4])
def test_a_sink_takes_its_share_of_large_scores(sink):
    query, key = at_scale(1e4)
    attention = gh.Attention(normalizer=gh.SoftmaxOne(sink))
    W, P = attention.weights(query, key), attention.trace(query, key, key).weights
    torch.testing.assert_close(W.dense(), P, **TOLERANCE)
    torch.testing.assert_close(W[..., 9:12], P[..., 9:12], **TOLERANCE)
    torch.testing.assert_close(W @ torch.eye(KEYS), P, **TOLERANCE)


@pytest.mark.parametrize(("queries", "keys"), [(1, 127), (3, 127), (127, 1), (67, 5), (1, 1)])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_few_queries_or_keys_agree(scale, queries, keys):
    query, key = at_scale(scale, queries=queries, keys=keys)
    W = gh.Attention().weights(query, key)
    P = gh.Attention().trace(query, key, key).weights
    torch.testing.assert_close(W.dense(), P, **TOLERANCE)
    torch.testing.assert_close(W[..., keys // 2], P[..., keys // 2], **TOLERANCE)
    torch.testing.assert_close(W[..., queries // 2, :], P[..., queries // 2, :], **TOLERANCE)
    torch.testing.assert_close(W @ torch.eye(keys), P, **TOLERANCE)


@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.parametrize("constant", [-1e4, -1e9])
def test_weights_of_a_logsumexp_alone_agree(scale, constant):
    # As a kernel tells it, which rounds it to the digits that its size leaves.
    query, key = at_scale(scale)
    attention = gh.Attention(bias=masked_rows(constant))
    P = attention.trace(query, key, key).weights
    W = Weights(attention.problem(query, key, key), attention.weights(query, key).logsumexp)
    assert W._known is None
    check(W, P)
    check(Weights(W._problem, W.logsumexp).head(1, 3), P[1, 3])


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_saved_weights_agree_and_so_do_those_of_files_with_a_logsumexp_alone(scale, tmp_path):
    query, key = at_scale(scale)
    attention = gh.Attention(bias=masked_rows(-1e9))
    W, P = attention.weights(query, key), attention.trace(query, key, key).weights
    file = tmp_path / "weights.safetensors"
    W.save(file)
    again = gh.Weights.load(file)
    check(again, P)
    assert again.tile(range(67), range(3, 9)).equal(W.tile(range(67), range(3, 9)))
    tensors = load_file(file)
    with safe_open(file, framework="pt") as opened:
        metadata = opened.metadata()
    del tensors["largest_score"], tensors["largest_weight"]
    save_file(tensors, file, metadata=metadata)
    check(gh.Weights.load(file), P)


STATISTICS = [
    gh.Entropy(),
    gh.Received(),
    gh.MassOn(range(3, 17)),
    gh.MaxWeight(),
    gh.MaxScore(),
    gh.ArgMax(),
    gh.TopK(5),
    gh.LogSumExp(),
    gh.MeanDistance(),
    gh.PooledMap(7, 5),
]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("constant", [0.0, *CONSTANTS])
def test_statistics_of_the_streaming_engine_agree_with_the_reference(constant, scale):
    query, key = at_scale(scale)
    bias = masked_rows(constant)
    seen, expected = (
        gh.Attention(bias=bias, engine=engine).observe(query, key, key, STATISTICS)
        for engine in ("streaming", "reference")
    )
    for name in expected.values:
        for found, wanted in zip(parts(seen[name]), parts(expected[name]), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=3e-5)


def parts(value):
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.parametrize("constant", [0.0, -1e4, -1e9])
@pytest.mark.parametrize("normalizer", [gh.Softmax(), gh.SoftmaxOne(3.0)])
def test_gradients_of_the_streaming_engine_agree_with_the_reference(normalizer, constant, scale):
    gradients = []
    arriving = torch.randn(2, 4, QUERIES, 13)
    for engine in ("streaming", "reference"):
        inputs = [x.requires_grad_() for x in at_scale(scale)]
        value = torch.randn(2, 2, KEYS, 13, generator=torch.Generator().manual_seed(3))
        value.requires_grad_()
        attention = gh.Attention(bias=masked_rows(constant), normalizer=normalizer, engine=engine)
        seen = attention.observe(*inputs, value, [gh.Entropy()], gradient=True)
        total = (seen.context * arriving).sum()
        # At 1e4 the gradient of the entropy is what is left of numbers a thousand times as large.
        (total + seen.entropy.sum() if scale == 1 else total).backward()
        gradients.append([x.grad for x in (*inputs, value)])
    for found, expected in zip(*gradients, strict=True):
        # Each is a sum over vectors of the inputs' size, which may all but cancel out.
        largest = max(expected.abs().max(), inputs[1].abs().max())
        torch.testing.assert_close(found / largest, expected / largest, rtol=0, atol=2e-5)
