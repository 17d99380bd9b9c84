"""bfloat16 on matrix tiles (AMX): statistics of float32, a context within its rounding."""

import errno
import math
from typing import Any

import numpy as np
import pytest
import torch

import glasshead as gh
from glasshead.attention import attention as attention_module
from glasshead.engines.streaming import lowering, matrix_tiles, programs
from glasshead.engines.streaming.kernels.arguments import HalfMatrix
from glasshead.engines.streaming.kernels.processor import SQUARE
from glasshead.engines.streaming.machine_code import kernel

ROWS = [gh.LogSumExp(), gh.MaxWeight(), gh.MaxScore(), gh.Entropy(), gh.MassOn([0])]
STATISTICS = [*ROWS, gh.ArgMax(), gh.Received(), gh.MeanDistance(), gh.TopK(3)]
CLOSE = (
    "log_sum_exp",
    "max_weight",
    "max_score",
    "entropy",
    "mass_on",
    "received",
    "mean_distance",
)
MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "causal": {"mask": gh.causal()},
    "window": {"mask": gh.window(before=11, after=3)},
    "padding": {"mask": gh.padding([61, 5])},
    "holes": {"mask": gh.causal() & ~gh.window(before=2), "softcap": 3.0},
    "a sink and a negative scale": {"normalizer": gh.SoftmaxOne(), "score": gh.Dot(beta=-0.3)},
    "a bias": {"bias": gh.ALiBi(4), "mask": gh.causal()},
}
DIMS = [(7, 5), (32, 32), (64, 64), (80, 37), (128, 128)]
needs_tiles = pytest.mark.skipif(
    matrix_tiles.refusal() is not None, reason=f"no products on tiles: {matrix_tiles.refusal()}"
)


def forget(monkeypatch):
    """Forget the programs of other tests: they are made once per process."""
    monkeypatch.setattr(programs, "_PROGRAMS", {})
    attention_module._REMEMBERED.clear()


@pytest.fixture
def hidden(monkeypatch):
    """Matrix tiles that the system refuses, as it does if a signal stack is too small."""
    forget(monkeypatch)
    monkeypatch.setattr(matrix_tiles, "_request", lambda: errno.ENOSPC)
    yield
    attention_module._REMEMBERED.clear()


@pytest.fixture
def tiled(monkeypatch):
    """Whether each forward pass that is lowered multiplies on tiles, in order."""
    forget(monkeypatch)
    of_problem, found = lowering.Builder.program, []

    def program(*given):
        made = of_problem(*given)
        blocks = [call for call in made.calls if call.entry == "forward_blocks"]
        found.extend([bool(call.arguments[0].panels.tiled) for call in blocks])
        return made

    monkeypatch.setattr(lowering.Builder, "program", program)
    return found


def inputs_of(queries, keys, dim, value_dim, *, heads=4, kv_heads=2):
    torch.manual_seed(queries + dim)
    shapes = ((heads, queries, dim), (kv_heads, keys, dim), (kv_heads, keys, value_dim))
    return [torch.randn(2, *shape).bfloat16() for shape in shapes]


def check(inputs, **options):
    """Compare context and statistics with those of the same numbers in float64."""
    query, key, value = inputs
    exact = gh.Attention(engine="reference", **options)
    expected = exact.observe(query.double(), key.double(), value.double(), STATISTICS)
    # Weights are rounded to 8 bits, and so is the result.
    most = exact(query.double(), key.double(), value.double().abs()) * 2.0**-7 + 1e-6
    found = gh.Attention(engine="streaming", **options).observe(query, key, value, STATISTICS)
    assert found.context.dtype == torch.bfloat16
    assert bool(((found.context - expected.context).abs() <= most).all())
    for name in CLOSE:
        one, other = getattr(found, name), getattr(expected, name).float()
        rtol = 3e-6 if name != "mean_distance" else 1e-5
        torch.testing.assert_close(one, other, rtol=rtol, atol=rtol, msg=lambda x, n=name: n + x)
    torch.testing.assert_close(
        found.top_k.weights, expected.top_k.weights.float(), rtol=3e-6, atol=3e-6
    )
    return found


@needs_tiles
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize(("dim", "value_dim"), DIMS)
def test_context_and_statistics_are_those_of_float64(name, dim, value_dim, tiled):
    check(inputs_of(67, 61, dim, value_dim), **MASKS[name])
    # Where numbers are too small for tiles, the scores are computed without them.
    assert tiled == [True, False]


@needs_tiles
@pytest.mark.parametrize("name", ["none", "causal", "window"])
@pytest.mark.parametrize("length", [17, 31, 131, 521])
def test_lengths_around_the_rows_of_tiles_and_blocks(name, length):
    check(inputs_of(length, length, 64, 64), **MASKS[name])


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize("name", MASKS)
def test_without_tiles_too(name, tiled):
    check(inputs_of(67, 61, 80, 37), **MASKS[name])
    assert not any(tiled)


@needs_tiles
@pytest.mark.parametrize("dim", [64, 80])
def test_the_context_is_as_exact_as_that_of_sdpa(dim):
    query, key, value = inputs_of(131, 131, dim, dim, kv_heads=4)
    exact = gh.Attention()(query.double(), key.double(), value.double())
    ours, theirs = (
        (gh.Attention(engine=engine)(query, key, value) - exact).square().mean().sqrt()
        for engine in ("streaming", "fused")
    )
    assert ours < 1.1 * theirs


@needs_tiles
def test_few_queries_do_not_fill_tiles(tiled):
    for queries in (SQUARE // 2 - 1, SQUARE // 2):
        check(inputs_of(queries, 131, 64, 64))
    assert tiled == [False, False, True, False]


def check_gradients(inputs, upstream, **options):
    """Compare gradients with those of the same numbers in float64.

    Weights and gradients of scores are rounded to 8 bits, and so are the results.
    """
    heads, queries, keys = inputs[0].shape[1], inputs[0].shape[2], inputs[1].shape[2]

    def gradients(engine, dtype, *more, **call):
        given = [x.detach().to(dtype).requires_grad_() for x in inputs]
        attention = gh.Attention(engine=engine, **options)
        seen = attention.observe(*given, [gh.Entropy()], **call)
        total = (seen.context * upstream.to(dtype)).sum() + seen.entropy.sum()
        return torch.autograd.grad(total, [*given, *more])

    found = gradients("streaming", torch.bfloat16)
    # The gradient of a bias is that of the scores.
    bias = torch.zeros(2, heads, queries, keys, dtype=torch.float64, requires_grad=True)
    *expected, of_scores = gradients("reference", torch.float64, bias, bias=bias)
    query, key, _ = (x.double().abs() for x in inputs)
    group = heads // key.shape[1]
    weights = gh.Attention(engine="reference", **options).weights(*(x.double() for x in inputs[:2]))
    beta = getattr(options.get("score"), "beta", None) or query.shape[-1] ** -0.5
    of_scores = of_scores.abs() * abs(beta)
    of_rows = of_scores @ key.repeat_interleave(group, 1)
    of_keys = (of_scores.mT @ query).unflatten(1, (-1, group)).sum(2)
    of_values = (weights.dense().mT @ upstream.double().abs()).unflatten(1, (-1, group)).sum(2)
    for one, other, most in zip(found, expected, (of_rows, of_keys, of_values), strict=True):
        off = (one - other).abs() - 2.0**-8 * (most + other.abs())
        # Sums in float32 of scores' gradients that nearly cancel.
        assert off.max() <= 1e-5


@needs_tiles
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize(("dim", "value_dim"), DIMS)
def test_gradients_are_the_reference_s(name, dim, value_dim):
    inputs = inputs_of(67, 61, dim, value_dim)
    check_gradients(inputs, torch.randn(2, 4, 67, value_dim).bfloat16(), **MASKS[name])


@needs_tiles
@pytest.mark.parametrize("dim", [64, 80])
def test_gradients_are_as_exact_as_those_of_sdpa(dim):
    inputs = inputs_of(131, 131, dim, dim, kv_heads=4)
    upstream = torch.randn(2, 4, 131, dim).bfloat16()

    def gradients(engine, dtype):
        given = [x.detach().to(dtype).requires_grad_() for x in inputs]
        context = gh.Attention(mask=gh.causal(), engine=engine)(*given)
        return torch.autograd.grad(context, given, upstream.to(dtype))

    exact = gradients("reference", torch.float64)
    for ours, theirs, other in zip(
        *(gradients(engine, torch.bfloat16) for engine in ("streaming", "fused")),
        exact,
        strict=True,
    ):
        off, known = ((one - other).square().mean().sqrt() for one in (ours, theirs))
        assert off < 1.1 * known


@needs_tiles
@pytest.mark.parametrize("length", [17, 131, 211])
def test_gradients_of_lengths_around_the_rows_of_tiles_and_blocks(length):
    upstream = torch.randn(2, 4, length, 64).bfloat16()
    check_gradients(inputs_of(length, length, 64, 64), upstream, **MASKS["causal"])


GROWING: dict[str, dict[str, Any]] = {
    "none": {},
    "causal": {"mask": gh.causal()},
    "window": {"mask": gh.window(before=701)},
    "a small sink": {"normalizer": gh.SoftmaxOne()},
    "a large sink": {"normalizer": gh.SoftmaxOne(torch.tensor(11.0))},
}


def growing(length, last):
    """Inputs whose scores grow with the keys, which pass by in parts."""
    query, key, value = inputs_of(67, length, 64, 64)
    return query, key * torch.linspace(0, last, length).bfloat16()[:, None], value


@needs_tiles
@pytest.mark.parametrize("last", [3, 17])
@pytest.mark.parametrize("name", GROWING)
def test_scores_that_grow_from_part_to_part(name, last):
    check(growing(1171, last), **GROWING[name])


@needs_tiles
@pytest.mark.parametrize("first", [3, 500, 1100])
@pytest.mark.parametrize("name", GROWING)
def test_the_largest_scores_may_be_at_any_keys(name, first):
    query, key, value = inputs_of(67, 1171, 64, 64)
    key[:, :, first : first + 41] *= 30
    check((query, key, value), **GROWING[name])


@needs_tiles
@pytest.mark.parametrize("name", GROWING)
def test_gradients_of_scores_that_grow(name):
    upstream = torch.randn(2, 4, 67, 64).bfloat16()
    check_gradients(growing(1171, 2), upstream, **GROWING[name])


@needs_tiles
@pytest.mark.parametrize("place", [3, 701])
@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_a_key_that_is_not_finite_is_found_in_any_part(place, number):
    query, key, value = inputs_of(37, 1171, 32, 32)
    query, key = query.abs() + 1, key / 8
    key[:, :, place] = number
    seen = gh.Attention(engine="streaming").observe(query, key, value, [gh.ArgMax(), gh.MaxScore()])
    assert seen.context.isnan().all()
    assert (seen.arg_max == place).all()
    assert seen.max_score.isnan().all() if math.isnan(number) else (seen.max_score == number).all()


@needs_tiles
@pytest.mark.parametrize("tiny", [1e-30, 1e-39])
@pytest.mark.parametrize("place", range(4))
def test_numbers_too_small_for_tiles_count_in_gradients(place, tiny):
    tensors = [*inputs_of(67, 61, 32, 32), torch.randn(2, 4, 67, 32).bfloat16()]
    tensors[place][1, 1, 5] *= tiny
    check_gradients(tensors[:3], tensors[3], **MASKS["causal"])


@needs_tiles
def test_equal_calls_have_equal_bits_with_one_thread_and_two():
    query, key, value = inputs_of(521, 521, 64, 64)
    attention = gh.Attention(engine="streaming", mask=gh.causal())
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 2):
            torch.set_num_threads(threads)
            seen = attention.observe(query, key, value, ROWS)
            parts = seen.context, seen.log_sum_exp, seen.entropy, attention(query, key, value)
            results.append([part.clone() for part in parts])
    finally:
        torch.set_num_threads(before)
    for first, *others in zip(*results, strict=True):
        assert all(torch.equal(first, other) for other in others)


def product_of_tiles(query, key):
    """q·kᵀ as TDPBF16PS adds it: two chains of fused multiply-adds for each 32 numbers."""
    total = torch.zeros(len(query), len(key))
    for first in range(0, query.shape[1], 32):
        chains = []
        for start in (first, first + 1):
            chain = torch.zeros_like(total)
            for d in range(start, first + 32, 2):
                product = query[:, None, d].double() * key[None, :, d].double()
                chain = (product + chain).float()
            chains.append(chain)
        total = total + (chains[0] + chains[1])
    return total


# Products at places of 64: the even ones are one chain, the odd ones another, of each 32.
ORDERS: dict[str, tuple[dict[int, float], float]] = {
    "no rounding": ({0: 2.0, 1: -3.0, 31: 5.0, 32: 7.0, 63: 11.0}, 22.0),
    # 2^24 + 1 is 2^24, and then 0; 1 + 2 is 3. One chain would give 2, and no rounding 4.
    "even and odd": ({0: 2.0**24, 1: 1.0, 2: 1.0, 3: 2.0, 4: -(2.0**24)}, 3.0),
    # The same with the chains exchanged.
    "odd and even": ({1: 2.0**24, 2: 1.0, 3: 1.0, 4: 2.0, 5: -(2.0**24)}, 3.0),
    # 2^24 + (1 + 1); a chain that went on would give 2^24.
    "the next 32": ({0: 2.0**24, 32: 1.0, 33: 1.0}, 2.0**24 + 2),
    # (2^24 + 1) + 1; one sum of all of the 32 would give 2^24 + 2.
    "the next of a chain": ({30: 2.0**24, 32: 1.0, 34: 1.0}, 2.0**24 + 2),
    "one chain of three": ({0: 2.0**24, 2: 1.0, 4: 1.0}, 2.0**24),
    # The chains are added before the sum: 2^24 + (2^24 - 2^24), and not 2^25 - 2^24.
    "chains first": ({0: 2.0**24, 32: 2.0**24, 33: 3.0 - 2.0**24}, 2.0**24 + 4),
}


@pytest.mark.parametrize("name", ORDERS)
def test_the_emulation_adds_two_chains(name):
    products, expected = ORDERS[name]
    query, key = torch.zeros(3, 64), torch.zeros(2, 64)
    for place, product in products.items():
        query[1, place], key[0, place] = product, 1
    found = torch.zeros(3, 2)
    found[1, 0] = expected
    assert torch.equal(product_of_tiles(query, key), found)


def scores(query, key, beta):
    """Every score, as the largest one of a head that has copies of a query, and a key."""
    queries, keys, dim = *query.shape[:1], *key.shape
    copies = query[:, None, None].expand(queries, keys, SQUARE // 2 + 1, dim)
    one = key[None, :, None].expand(queries, keys, 1, dim)
    attention = gh.Attention(engine="streaming", score=gh.Dot(beta=beta))
    return attention.observe(copies, one, one, [gh.MaxScore()]).max_score


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize(("dim", "beta"), [(32, 1.0), (64, 1.0), (96, 0.5)])
def test_without_tiles_the_scores_are_within_rounding_of_the_emulation(dim, beta):
    query, key, _ = (x[0, 0] for x in inputs_of(37, 41, dim, dim))
    expected = product_of_tiles(query, key) * beta
    torch.testing.assert_close(scores(query, key, beta), expected, rtol=1e-5, atol=1e-5)


@needs_tiles
@pytest.mark.parametrize(("dim", "beta"), [(32, 1.0), (64, 1.0), (96, 0.5)])
def test_the_bits_of_each_score_are_those_of_the_emulation(dim, beta, tiled):
    query, key, _ = (x[0, 0] for x in inputs_of(37, 41, dim, dim))
    assert torch.equal(scores(query, key, beta), product_of_tiles(query, key) * beta)
    assert tiled[0]


@needs_tiles
@pytest.mark.parametrize(
    ("query", "key", "beta"),
    [(2.0**-127, 2.0**127, 1.0), (2.0**127, -(2.0**-133), 2.0**6), (2.0**-70, 2.0**-70, 2.0**126)],
)
def test_what_is_subnormal_counts(query, key, beta):
    one, other = (torch.full((1, 1, 17, 5), number).bfloat16() for number in (query, key))
    attention = gh.Attention(engine="streaming", score=gh.Dot(beta=beta))
    seen = attention.observe(one, other, torch.ones_like(one), [gh.MaxScore()])
    assert seen.max_score.item() == 5 * query * key * beta
    assert torch.equal(seen.context, torch.ones_like(one))


@needs_tiles
@pytest.mark.parametrize("anything", [torch.nan, -torch.inf, 3e38])
def test_hidden_keys_may_hold_anything(anything):
    inputs, mask = inputs_of(37, 67, 11, 5), gh.padding([41, 67])
    attention = gh.Attention(engine="streaming", mask=mask)
    clean = attention(*inputs)
    for tensor in inputs[1:]:
        tensor[0, :, 41:] = anything
    assert torch.equal(attention(*inputs), clean)


@needs_tiles
@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_a_query_that_is_not_finite_breaks_its_own_row_alone(number):
    query, key, value = inputs_of(37, 41, 32, 32)
    attention = gh.Attention(engine="streaming")
    clean = attention(query, key, value)
    query[1, 3, 7, 2] = number
    found = attention(query, key, value)
    assert found[1, 3, 7].isnan().all()
    found[1, 3, 7] = clean[1, 3, 7]
    assert torch.equal(found, clean)


@pytest.mark.usefixtures("hidden")
def test_the_plan_states_why_no_tiles_are_taken():
    if not matrix_tiles.are_there():
        pytest.skip("this processor has no matrix tiles (AMX)")
    inputs = inputs_of(67, 67, 64, 64)
    for attention in (gh.Attention(engine="streaming"), gh.Attention()):
        reason = attention.plan(*inputs).reason
        shown = "the system does not permit matrix tiles (AMX): No space left on device" in reason
        assert shown == (attention.engine == "streaming")


def test_pairs_of_vectors_hold_the_earlier_below():
    torch.manual_seed(3)
    # Two rows of two tiles, of which the last has one row and three columns: 17 pairs of vectors.
    vectors = torch.randn(33, 19).bfloat16()
    words = np.full(2 * 2 * 16 * 16 + 1, 7, np.int32)
    halves = HalfMatrix(vectors.view(torch.int16).numpy().reshape(-1), 19, 19)
    kernel("pair_rows", np.dtype(np.float32))(halves, 33, 32, words[:-1])
    tiles = words[:-1].view(np.int16).reshape(2, 2, 16, 16, 2)
    found = tiles.transpose(0, 2, 4, 1, 3).reshape(64, 32)
    expected = np.zeros((64, 32), np.int16)
    expected[:33, :19] = vectors.view(torch.int16).numpy()
    assert np.array_equal(found, expected)
    assert words[-1] == 7


@needs_tiles
def test_permission_is_asked_once():
    assert matrix_tiles.refusal() == matrix_tiles.refusal()
    assert matrix_tiles._request.cache_info().misses == 1
