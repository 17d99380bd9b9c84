"""Observing: the call's own context, bit for bit, and exact statistics, or a clear refusal."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import glasshead as gh
from cases import NORMALIZERS, cases, statistics_for
from hypothesis_profiles import examples


def assert_equals_definitions(case, attention, asked):
    inputs = case.inputs()
    seen = attention.observe(*inputs, asked, **case.call())
    trace = attention.trace(*inputs, **case.call())
    tolerance = 1e-12 if case.dtype == torch.float64 else 3e-5
    for one in asked:
        found, expected = seen[one], one.of(trace)
        if isinstance(one, gh.TopK):
            found, expected = found.weights, expected.weights
        scale = max(1.0, expected.nan_to_num(neginf=0.0).abs().max().item())
        torch.testing.assert_close(
            found, expected.to(found.dtype), rtol=tolerance, atol=tolerance * scale
        )


@given(cases(), st.sampled_from(["auto", "fused", "streaming", "reference"]))
@examples(150)
def test_each_statistic_is_its_definition(case, engine):
    assert_equals_definitions(case, gh.Attention(engine=engine), statistics_for(case))


@given(cases(), st.sampled_from(NORMALIZERS))
@examples(60)
def test_each_statistic_is_its_definition_for_every_normalizer(case, normalizer):
    attention = gh.Attention(normalizer=normalizer())
    assert_equals_definitions(case, attention, statistics_for(case, normalizer))


@given(cases(), st.sampled_from(["auto", "fused", "streaming", "reference"]))
@examples(60)
def test_observing_never_changes_a_bit(case, engine):
    attention, inputs = gh.Attention(engine=engine), case.inputs()
    seen = attention.observe(*inputs, statistics_for(case), **case.call())
    assert torch.equal(seen.context, attention(*inputs, **case.call()))


@pytest.mark.parametrize("shape", [(67, 5), (3, 67, 5), (2, 3, 67, 5), (2, 1, 3, 67, 5)])
@pytest.mark.parametrize("engine", ["fused", "streaming", "reference"])
def test_statistics_have_the_layout_of_the_inputs(shape, engine):
    x = torch.randn(shape)
    attention = gh.Attention(mask=gh.causal(), engine=engine)
    seen = attention.observe(x, x, x, [gh.Entropy(), gh.TopK(2), gh.MaxScore(), gh.PooledMap(2, 3)])
    leading = shape[:-2]
    assert seen.entropy.shape == shape[:-1]
    assert seen.top_k.keys.shape == (*shape[:-1], 2)
    assert seen.max_score.shape == leading
    assert seen.pooled_map.shape == (*leading, 2, 3)


def test_a_long_call_and_its_observation_take_the_same_engine():
    x = torch.randn(1, 2, 1031, 16)
    for mask in (gh.causal(), gh.causal() & gh.window(before=7), None):
        attention = gh.Attention(mask=mask)
        seen = attention.observe(x, x, x, [gh.Entropy()])
        assert torch.equal(seen.context, attention(x, x, x))
        expected = attention.plan(x, x, x).engine
        assert attention.plan(x, x, x, statistics=[gh.Entropy()]).engine == expected


def test_dropout_is_after_what_is_observed():
    x = torch.randn(1, 2, 67, 5)
    attention = gh.Attention(dropout=0.5)
    torch.manual_seed(3)
    seen = attention.observe(x, x, x, [gh.Entropy(), gh.LogSumExp()])
    torch.manual_seed(3)
    assert torch.equal(seen.context, attention(x, x, x))
    clear = attention.eval().observe(x, x, x, [gh.Entropy(), gh.LogSumExp()])
    torch.testing.assert_close(seen.entropy, clear.entropy)


@pytest.mark.parametrize("engine", ["fused", "streaming", "reference"])
def test_entropy_can_be_learned_from(engine):
    """Entropy, logsumexp and mass keep their gradient where it is asked for, and only there."""
    asked = [gh.Entropy(), gh.LogSumExp(), gh.MassOn([0, 3])]
    inputs = [torch.randn(2, 3, 67, 5, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    attention = gh.Attention(mask=gh.causal(), engine=engine)

    def gradients(of):
        seen = of.observe(*inputs, asked, gradient=True)
        loss = seen.context.square().sum() + (seen.entropy * seen.log_sum_exp).sum()
        return torch.autograd.grad(loss + seen.mass_on.square().sum(), inputs)

    reference = gh.Attention(mask=gh.causal(), engine="reference")
    for found, expected in zip(gradients(attention), gradients(reference), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-11)
    seen = attention.observe(*inputs, asked)
    assert seen.context.requires_grad
    assert not seen.entropy.requires_grad


class Evens(gh.Statistic):
    """Mass on keys of even number, by the closed reductions' own means."""

    unit = "weight"

    def of(self, trace):
        return trace.weights[..., ::2].sum(-1)

    def reductions(self, problem):
        from glasshead.statistics.reductions import TimesKeys

        keys = problem.scores_shape[-1]
        return (TimesKeys((torch.arange(keys) % 2 == 0).to(problem.dtype)[:, None]),)

    def finish(self, problem, mass):
        del problem
        return mass[0].squeeze(-1)


class Squares(gh.Statistic):
    """Σ P², which no engine knows."""

    unit = "weight"

    def of(self, trace):
        return trace.weights.square().sum(-1)

    def reductions(self, problem):
        from glasshead.statistics.reductions import Reduction

        del problem

        class SquareSum(Reduction):
            def of(self, rows):
                return (rows.weights.square().sum(-1),)

        return (SquareSum(),)

    def finish(self, problem, squares):
        del problem
        return squares[0]


@pytest.mark.parametrize("engine", ["fused", "streaming", "reference"])
@pytest.mark.parametrize("statistic", [Evens(), Squares()])
def test_a_statistic_of_ones_own(engine, statistic):
    query, key = torch.randn(2, 3, 517, 5), torch.randn(2, 3, 523, 5)
    attention = gh.Attention(mask=gh.causal(), engine=engine)
    seen = attention.observe(query, key, key, {"own": statistic, "entropy": gh.Entropy()})
    trace = attention.trace(query, key, key)
    torch.testing.assert_close(seen.own, statistic.of(trace))
    torch.testing.assert_close(seen.entropy, gh.Entropy().of(trace), rtol=1e-4, atol=1e-5)


def test_plan_tells_passes_and_time():
    x = torch.empty(1, 8, 4096, 64, device="meta")
    causal = {"mask": gh.causal()}
    asked = [gh.Entropy(), gh.TopK(8)]
    beside = gh.Attention(**causal, engine="fused").plan(x, x, x, statistics=asked)
    inside = gh.Attention(**causal, engine="streaming").plan(x, x, x, statistics=asked)
    own = gh.Attention(**causal, engine="streaming").plan(x, x, x, statistics=[Squares()])
    assert (beside.engine, beside.passes) == ("fused", 2)
    assert (inside.engine, inside.passes) == ("streaming", 1)
    assert own.passes == 2
    assert 1.5 < beside.multiple < 2.0
    assert 1.0 < inside.multiple < 1.3 < own.multiple
    assert inside.bytes < 64 * 2**20
    assert "2 passes over the scores" in str(beside)
    assert "× the plain call" in str(beside)


@pytest.mark.parametrize(
    ("statistics", "error", "match"),
    [
        ([gh.Entropy(), gh.Entropy()], ValueError, "twice"),
        (["entropy"], TypeError, "entropy"),
        ([gh.Entropy], TypeError, r"Entropy\(\)"),
        ([gh.TopK(12)], ValueError, "12"),
        ([gh.MassOn([11])], ValueError, "11"),
        ([gh.PooledMap(6, 2)], ValueError, "6"),
        ([gh.Received(last=6)], ValueError, "6"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_any_work(statistics, error, match, monkeypatch):
    monkeypatch.setattr(gh.Attention, "forward", None)
    query, key = torch.zeros(1, 1, 5, 3), torch.zeros(1, 1, 11, 3)
    with pytest.raises(error, match=match):
        gh.Attention().observe(query, key, key, statistics)


def test_edges_that_do_not_rise_are_refused():
    with pytest.raises(ValueError, match="edges"):
        gh.DistanceHistogram([0, 4, 4])
    with pytest.raises(ValueError, match="at least 1"):
        gh.TopK(0)


def test_a_normalizer_without_a_logsumexp():
    x = torch.zeros(1, 1, 5, 3)
    attention = gh.Attention(normalizer=gh.Sparsemax())
    with pytest.raises(ValueError, match="Sparsemax"):
        attention.observe(x, x, x, [gh.LogSumExp()])
    with pytest.raises(ValueError, match=r"SoftmaxOne.*, got Sparsemax.*trace"):
        attention.weights(x, x)


def test_a_need_beyond_the_budget_is_refused_before_any_work():
    x = torch.empty(1, 8, 2**16, 64)
    sparse = gh.Attention(normalizer=gh.Sparsemax())
    with pytest.raises(
        ValueError,
        match=r"observe needs \d+ bytes on the reference engine, more than budget=2147483648\.",
    ):
        sparse.observe(x, x, x, [gh.Entropy()])
    with pytest.raises(ValueError, match=r"meta device\. Call plan\(\) instead"):
        gh.Attention().observe(*(x.to("meta") for _ in range(3)), [gh.Entropy()])
    small = torch.zeros(1, 1, 71, 3)
    with pytest.raises(ValueError, match=r"more than budget=100\."):
        gh.Attention().observe(small, small, small, [gh.Entropy()], budget=100)


def test_a_gradient_that_is_not_there():
    x = torch.zeros(1, 1, 5, 3)
    with pytest.raises(ValueError, match="gradient=True needs.*Received"):
        gh.Attention().observe(x, x, x, [gh.Received()], gradient=True)


def test_no_queries_and_no_keys():
    attention = gh.Attention(mask=gh.causal())
    for queries, keys in ((0, 5), (3, 0)):
        query, key = torch.zeros(2, 3, queries, 4), torch.zeros(2, 3, keys, 4)
        seen = attention.observe(query, key, key, [gh.Entropy(), gh.Received(), gh.LogSumExp()])
        assert torch.equal(seen.entropy, torch.zeros(2, 3, queries))
        assert torch.equal(seen.received, torch.zeros(2, 3, keys))
        assert torch.equal(seen.log_sum_exp, torch.full((2, 3, queries), -torch.inf))
