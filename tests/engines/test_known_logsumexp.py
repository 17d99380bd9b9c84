"""Statistics next to a kernel that returns about the logsumexp of each row."""

import pytest
import torch

import glasshead as gh
from glasshead.engines import STREAMING
from glasshead.engines.streaming import engine
from glasshead.statistics.reductions import (
    DistanceSum,
    EntropySum,
    Largest,
    LogSum,
    TimesKeys,
    TimesQueries,
)

STATISTICS = [
    *(gh.LogSumExp(), gh.MaxWeight(), gh.MaxScore(), gh.Entropy(), gh.MassOn([0])),
    *(gh.Received(), gh.MeanDistance(), gh.TopK(3)),
]
MASKS = {
    "none": None,
    "causal": gh.causal(),
    "window": gh.window(before=11, after=3),
    "padding": gh.padding([571, 5]),
}
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def inputs_of(dtype, queries=601, keys=593, dim=24):
    torch.manual_seed(7)
    shapes = ((4, queries, dim), (2, keys, dim), (2, keys, dim))
    return [torch.randn(2, *shape).to(dtype) for shape in shapes]


@pytest.fixture
def known(monkeypatch):
    """Whether each pass is given the logsumexps, in order."""
    found = []

    def run(lowered, spec):
        found.append(lowered.recipe.known is not None)
        return of_engine(lowered, spec)

    of_engine = engine.run
    monkeypatch.setattr(engine, "run", run)
    return found


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MASKS)
def test_statistics_are_those_of_float64(name, dtype, known):
    query, key, value = inputs_of(dtype)
    exact = gh.Attention(engine="reference", mask=MASKS[name])
    expected = exact.observe(query.double(), key.double(), value.double(), STATISTICS)
    found = gh.Attention(engine="fused", mask=MASKS[name]).observe(query, key, value, STATISTICS)
    for one in ("log_sum_exp", "max_weight", "max_score", "entropy", "mass_on", "received"):
        wanted = getattr(expected, one).to(getattr(found, one).dtype)
        torch.testing.assert_close(getattr(found, one), wanted, rtol=3e-6, atol=3e-6)
    wanted = expected.mean_distance.to(found.mean_distance.dtype)
    torch.testing.assert_close(found.mean_distance, wanted, rtol=1e-5, atol=1e-5)
    wanted = expected.top_k.weights.to(found.top_k.weights.dtype)
    torch.testing.assert_close(found.top_k.weights, wanted, rtol=3e-6, atol=3e-6)
    assert known == [name != "padding"]


# Each block of queries sees keys that begin and end within a panel, of 8, 16 or 32 keys.
@pytest.mark.parametrize(("before", "after"), [(1, 1), (17, 17), (25, 25), (33, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_windows_that_cut_panels_at_both_ends_fit_a_block(before, after, dtype, known):
    inputs, mask = inputs_of(dtype), gh.window(before=before, after=after)
    asked = [gh.LogSumExp(), gh.MaxWeight(), gh.Entropy(), gh.Received()]
    found, expected = (
        gh.Attention(engine=engine, mask=mask).observe(*inputs, asked)
        for engine in ("fused", "reference")
    )
    for name, values in expected.values.items():
        torch.testing.assert_close(found.values[name], values, rtol=3e-6, atol=3e-6)
    assert known == [True]


def test_keys_of_the_largest_weights_need_the_largest_scores_first(known):
    query, key, value = inputs_of(torch.float32)
    attention = gh.Attention(engine="fused", mask=gh.causal())
    found = attention.observe(query, key, value, [gh.ArgMax()]).arg_max
    expected = gh.Attention(engine="reference", mask=gh.causal())
    assert found.equal(expected.observe(query, key, value, [gh.ArgMax()]).arg_max)
    assert known == [False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("off", [-7.0, -1e-3, 5.0])
def test_a_logsumexp_that_is_off_changes_no_statistic(off, dtype):
    query, key, value = inputs_of(dtype)
    problem = gh.Attention(mask=gh.causal()).problem(query, key, value)
    ones = torch.ones(601, 1), torch.rand(593, 2)
    reductions = [
        *(LogSum(), EntropySum(), Largest(keyed=False), DistanceSum()),
        *(TimesQueries(ones[0]), TimesKeys(ones[1])),
    ]
    expected = STREAMING.observe(problem, reductions, context=False).reduced
    # Rows that see no key have any finite number, as PyTorch's kernel gives them 0.
    about = expected[0][0].masked_fill(expected[0][0].isneginf(), 0.0) + off
    found = STREAMING.observe(problem, reductions, context=False, logsumexp=about).reduced
    for one, other in zip(found, expected, strict=True):
        for part, wanted in zip(one, other, strict=True):
            torch.testing.assert_close(part, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_a_logsumexp_that_is_not_finite_is_not_taken(number, known):
    query, key, value = inputs_of(torch.float32)
    key[:, :, 3] = number
    attention = gh.Attention(engine="fused")
    seen = attention.observe(query.abs() + 1, key, value, [gh.MaxScore()])
    assert known == [False]
    assert not seen.max_score.isfinite().any()
