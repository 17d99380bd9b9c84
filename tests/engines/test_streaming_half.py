"""bfloat16 on the streaming engine without matrix tiles: every bit is that of float32.

Products of bfloat16 are exact in float32, whatever multiplies them, and are added in one order. So
these tests hold with the processor's own products (AVX512-BF16) and without.
"""

from typing import Any

import numba
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import glasshead as gh
from glasshead.attention import attention as attention_module
from glasshead.engines.streaming import lowering, matrix_tiles, programs
from glasshead.engines.streaming.kernels.arguments import HalfMatrix, Matrix
from glasshead.engines.streaming.kernels.processor import at_hand
from glasshead.engines.streaming.kernels.sharing import _multiply_exactly
from glasshead.engines.streaming.machine_code import kernel
from hypothesis_profiles import examples

STATISTICS = [
    gh.LogSumExp(),
    gh.MaxWeight(),
    gh.ArgMax(),
    gh.MaxScore(),
    gh.Entropy(),
    gh.Received(),
    gh.TopK(1),
]
REAL = np.dtype(np.float32)
needs_half_products = pytest.mark.skipif(
    not at_hand().half_products, reason="this processor has no products of bfloat16 (AVX512-BF16)"
)


@pytest.fixture(autouse=True)
def no_matrix_tiles(monkeypatch):
    """Processors with matrix tiles round otherwise, and have tests of their own."""
    monkeypatch.setattr(matrix_tiles, "refusal", lambda: "hidden")
    monkeypatch.setattr(programs, "_PROGRAMS", {})
    attention_module._REMEMBERED.clear()
    yield
    attention_module._REMEMBERED.clear()


def inputs_of(queries, keys, dim, value_dim, *, heads=6, kv_heads=6):
    """Queries, keys, values and a gradient of the context, all rounded to bfloat16."""
    shapes = (
        (2, heads, queries, dim),
        (2, kv_heads, keys, dim),
        (2, kv_heads, keys, value_dim),
        (2, heads, queries, value_dim),
    )
    return [torch.randn(shape).bfloat16() for shape in shapes]


def results_of(inputs, dtype=torch.bfloat16, **options: Any):
    """Context, gradients and statistics of numbers in a dtype; the first in bfloat16."""
    query, key, value, gradient = (x.detach().to(dtype) for x in inputs)
    inputs = [x.requires_grad_() for x in (query, key, value)]
    attention = gh.Attention(engine="streaming", **options)
    seen = attention.observe(query, key, value, STATISTICS)
    rounded = seen.context, *torch.autograd.grad(seen.context, inputs, gradient)
    parts = seen.log_sum_exp, seen.max_weight, seen.arg_max, seen.max_score, seen.entropy
    more = seen.received, seen.top_k.weights, seen.top_k.keys
    return [*(x.bfloat16() for x in rounded), *(x.detach() for x in (*parts, *more))]


def assert_same_bits(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


# Lengths around the 8 rows of a tile, the 32 keys of a panel and the 64 queries of a block.
EDGES = st.sampled_from([1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 131])


@given(EDGES, EDGES, st.sampled_from([1, 2, 3, 13, 37, 64]), st.sampled_from([1, 2, 5, 33]))
@examples(40)
def test_bfloat16_has_the_bits_of_float32(queries, keys, dim, value_dim):
    inputs = inputs_of(queries, keys, dim, value_dim)
    assert_same_bits(results_of(inputs), results_of(inputs, torch.float32))


@pytest.mark.parametrize("kv_heads", [1, 2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {"mask": gh.causal()},
        {"mask": gh.window(before=11, after=3)},
        {"mask": gh.padding([67, 5])},
        {"mask": gh.causal() & ~gh.window(before=2), "softcap": 3.0},
        {"normalizer": gh.SoftmaxOne(), "score": gh.Dot(beta=-0.3)},
    ],
    ids=str,
)
def test_with_masks_softcap_and_grouped_heads_too(options, kv_heads):
    inputs = inputs_of(131, 67, 13, 37, kv_heads=kv_heads)
    assert_same_bits(results_of(inputs, **options), results_of(inputs, torch.float32, **options))


@needs_half_products
def test_the_processors_product_rounds_as_that_of_float32(monkeypatch):
    # Of all sizes that take part without being subnormal, so that nearly all is rounded away.
    inputs = [x * torch.randn_like(x).mul(12).exp2() for x in inputs_of(67, 131, 53, 29)]
    results = []
    for allowed in (True, False):
        made, of_problem = [], lowering.Builder.program

        def program(*given, made=made, of_problem=of_problem):
            made.append(of_problem(*given))
            return made[-1]

        monkeypatch.setattr(programs, "_PROGRAMS", {})
        monkeypatch.setattr(lowering.Builder, "program", program)
        own = at_hand()._replace(half_products=allowed)
        monkeypatch.setattr(lowering, "at_hand", lambda own=own: own)
        results.append(results_of(inputs, score=gh.Dot(beta=1e-5)))
        monkeypatch.setattr(lowering.Builder, "program", of_problem)
        # q·kᵀ in the forward pass; in the backward pass dO·vᵀ, too. Each by pairs, or widened.
        blocks = [
            [call.when for call in one.calls if call.entry.endswith("_blocks")] for one in made
        ]
        ways = [[(1, -1), (0, -1)], [(1, 1), (1, 0), (0, 1), (0, 0)]]
        assert blocks == (ways if allowed else [[(-1, -1)]] * 2)
    assert_same_bits(*results)


@pytest.mark.parametrize(
    ("query", "key", "beta"),
    [
        (2.0**-127, 2.0**127, 1.0),  # The query is subnormal.
        (2.0**127, -(2.0**-133), 2.0**6),  # The key is the smallest number there is.
        (2.0**-70, 2.0**-70, 2.0**126),  # The products are.
    ],
)
def test_what_is_subnormal_counts(query, key, beta):
    one, other = (torch.full((1, 1, 1, 5), number).bfloat16() for number in (query, key))
    attention = gh.Attention(engine="streaming", score=gh.Dot(beta=beta))
    seen = attention.observe(one, other, other, [gh.MaxScore()])
    # 2^-140 · 5 is a number of float32, and its sums are exact.
    assert seen.max_score.item() == 5 * query * key * beta


@pytest.mark.parametrize("size", [2.0**-60, 2.0**-120])
def test_sums_that_nearly_cancel_count(size):
    # 1.0078125² - 1.015625 = 2^-14, which is subnormal with products of 2^-120.
    query = torch.tensor([1.0078125, -1.0]) * size
    key = torch.tensor([1.0078125, 1.015625]) * (2.0**-120 / size)
    query, key = (x.bfloat16().view(1, 1, 1, 2) for x in (query, key))
    attention = gh.Attention(engine="streaming", score=gh.Dot(beta=2.0**100))
    seen = attention.observe(query, key, key, [gh.MaxScore()])
    assert seen.max_score.item() == 2.0**-34


def test_gradients_of_subnormal_size_count():
    inputs = inputs_of(5, 67, 3, 7)
    inputs[3] = inputs[3] * 2.0**-126
    found = results_of(inputs)
    assert found[1].abs().max() > 0
    assert_same_bits(found, results_of(inputs, torch.float32))


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf, 3e38, 2.0**-133])
def test_numbers_of_every_kind(number, place):
    inputs = inputs_of(37, 41, 11, 5)
    inputs[place][1, 3, 7, 2] = number
    found, expected = (
        results_of(inputs, dtype, mask=gh.causal()) for dtype in (torch.bfloat16, torch.float32)
    )
    assert_same_bits(found, expected)


@pytest.mark.parametrize("anything", [torch.nan, -torch.inf, 2.0**-133])
def test_hidden_keys_may_hold_anything(anything):
    inputs, mask = inputs_of(37, 67, 11, 5), gh.padding([41, 67])
    clean = results_of(inputs, mask=mask)
    for tensor in inputs[1:3]:
        tensor[0, :, 41:] = anything
    assert_same_bits(results_of(inputs, mask=mask), clean)


def test_statistics_are_those_of_float64():
    query, key, value, _ = inputs_of(131, 197, 64, 37)
    attention = gh.Attention(mask=gh.causal(), engine="streaming")
    found = attention.observe(query, key, value, STATISTICS)
    attention = gh.Attention(mask=gh.causal(), engine="reference")
    expected = attention.observe(query.double(), key.double(), value.double(), STATISTICS)
    for name in ("log_sum_exp", "max_weight", "max_score", "entropy", "received"):
        one, other = getattr(found, name), getattr(expected, name)
        torch.testing.assert_close(one, other.float(), rtol=3e-6, atol=3e-6)


def paired(vectors):
    """Rows of pairs, filled up to whole tiles, and the bits of their smallest size other than 0."""
    (length, dim), tile = vectors.shape, at_hand().tile.rows
    rows = np.full(-(-length // tile) * tile * -(-dim // 2), 7, np.int32)
    least = np.zeros(2, np.int32)
    halves = HalfMatrix(vectors.view(torch.int16).numpy().reshape(-1), dim, dim)
    kernel("pair_up", REAL)(halves, length, -(-dim // 2), 1, rows, least[:1])
    return rows, least


@numba.njit
def multiply_exactly(one, other):
    return _multiply_exactly(one, other)


def test_pairs_multiply_where_nothing_can_become_subnormal():
    def pairs(*numbers):
        return paired(torch.tensor([numbers]).bfloat16())[1]

    def least(*numbers):
        return float((pairs(*numbers)[:1] << 16).view(REAL)[0])

    def exact(one, other):
        return multiply_exactly(one.ctypes.data, other.ctypes.data)

    assert least(0.0, -3.0, 0.5) == 0.5
    assert least(0.0, -(2.0**-133)) == 2.0**-133
    assert least(0.0) == torch.inf
    assert least(torch.nan, torch.inf) == torch.inf
    one = pairs(1.0, 2.0**-55)
    assert exact(one, pairs(2.0**-55))
    assert not exact(one, pairs(2.0**-56))
    assert exact(pairs(0.0), one)
    assert not exact(pairs(torch.inf), pairs(2.0**-127))
    assert not exact(pairs(2.0**100), pairs(2.0**-127))


def test_pairs_hold_the_earlier_number_above():
    rows = torch.tensor([[1.0, 2.0, -0.5], [3.0, -4.0, 0.25]]).bfloat16()
    bits = paired(rows)[0].view("uint32")
    first, second = [0x3F804000, 0xBF000000], [0x4040C080, 0x3E800000]
    assert bits[:4].tolist() == [*first, *second]
    # Filled up to whole tiles.
    assert len(bits) == 2 * at_hand().tile.rows
    assert not bits[4:].any()
    # A panel has them transposed; words are moved as numbers are.
    panel = np.full(2 * 32, 7, REAL)
    kernel("pack", REAL)(Matrix(bits.view(REAL), 2, 2), 2, 32, panel)
    panel = panel.view("uint32").reshape(2, -1)
    assert panel[:, :2].T.tolist() == [first, second]
    assert not panel[:, 2:].any()
