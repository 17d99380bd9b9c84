"""What a statistic makes of its reductions is what it is of the full matrix, in value and gradient.

Reductions are taken from rows of weights here, all at once and in blocks of queries.
"""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import glasshead as gh
from cases import NORMALIZERS, cases
from glasshead.engines import REFERENCE, reference
from glasshead.recipe.tile import Span
from glasshead.statistics import (
    ArgMax,
    DistanceHistogram,
    Entropy,
    LogSumExp,
    MassOn,
    MaxScore,
    MaxWeight,
    MeanDistance,
    PooledMap,
    Received,
    TopK,
)
from glasshead.statistics.reductions import LargestWeights, Reduction, Rows, ScoreSum
from hypothesis_profiles import examples


@st.composite
def asked(draw, queries, keys):
    """A statistic that fits so many queries and keys."""
    edge = st.one_of(st.integers(-2, 20), st.floats(-2, 20))
    return draw(
        st.one_of(
            st.sampled_from([LogSumExp(), MaxWeight(), ArgMax(), MaxScore(), Entropy()]),
            st.just(MeanDistance()),
            st.builds(Received, st.one_of(st.none(), st.integers(1, queries))),
            st.builds(MassOn, st.lists(st.integers(0, keys - 1), unique=True)),
            st.lists(edge, min_size=2, max_size=5, unique=True).map(
                lambda edges: DistanceHistogram(sorted(edges))
            ),
            st.lists(edge, min_size=1, max_size=3, unique=True).map(
                lambda edges: DistanceHistogram([*sorted(edges), torch.inf])
            ),
            st.builds(TopK, st.integers(1, keys)),
            st.builds(PooledMap, st.integers(1, queries), st.integers(1, keys)),
        )
    )


def blocks_of_rows(problem, ends):
    """The rows of a problem, cut before each of `ends`."""
    trace = REFERENCE.trace(problem)
    _, visible = problem.bias_and_visible(problem.mask, problem.tile())
    visible = None if visible is None else visible.expand(trace.weights.shape)
    queries = problem.scores_shape[-2]
    starts = [0, *ends]
    return [
        Rows(
            problem,
            replace(problem.tile(), queries=Span(start, stop)),
            trace.masked[..., start:stop, :],
            trace.weights[..., start:stop, :],
            None if visible is None else visible[..., start:stop, :],
        )
        for start, stop in zip(starts, [*ends, queries], strict=True)
    ]


def merged(axis, parts):
    return sum(parts[1:], parts[0]) if axis is None else torch.cat(parts, axis)


def reduced(reductions, problem, ends=()):
    """The results of each reduction, those of the blocks merged."""
    blocks = blocks_of_rows(problem, ends)
    for reduction in reductions:
        results = [reduction.of(rows) for rows in blocks]
        yield tuple(merged(reduction.query_axis, parts) for parts in zip(*results, strict=True))


def finished(statistic, problem, ends=()):
    return statistic.finish(problem, *reduced(statistic.reductions(problem), problem, ends))


def cuts(queries):
    return st.lists(st.integers(0, queries), max_size=3).map(sorted)


@given(cases(), st.sampled_from(NORMALIZERS), st.data())
@examples(300)
def test_reductions_finish_to_the_definition(case, normalizer, data):
    statistic = data.draw(asked(case.queries, case.keys))
    ends = data.draw(cuts(case.queries))
    if isinstance(statistic, LogSumExp) and not normalizer.exponential:
        normalizer = gh.SoftmaxOne
    trace = gh.Attention(normalizer=normalizer()).trace(*case.inputs(), **case.call())
    expected = statistic.of(trace)
    whole = finished(statistic, trace.problem)
    torch.testing.assert_close(whole, expected)
    torch.testing.assert_close(finished(statistic, trace.problem, ends), whole)


@given(cases(), st.sampled_from(NORMALIZERS))
@examples(100)
def test_empty_rows_have_nothing(case, normalizer):
    hide = gh.dense(torch.arange(case.queries)[:, None] % 2 == 1)
    case = replace(case, mask=hide if case.mask is None else case.mask & hide)
    empty = ~case.visible().any(-1)
    trace = gh.Attention(normalizer=normalizer()).trace(*case.inputs(), **case.call())
    for statistic in (Entropy(), MaxWeight(), MassOn([0]), MeanDistance()):
        assert not statistic.of(trace)[empty].any()
        assert not finished(statistic, trace.problem)[empty].any()
    for found in (ArgMax().of(trace), finished(ArgMax(), trace.problem)):
        assert torch.equal(found == -1, empty)
    top = TopK(case.keys).of(trace)
    assert (top.keys[empty] == -1).all()
    assert not top.weights[empty].any()
    if normalizer.exponential:
        for found in (LogSumExp().of(trace), finished(LogSumExp(), trace.problem)):
            assert torch.equal(found.isneginf(), empty)


LAYOUTS = [
    MaxWeight(),
    MaxScore(),
    ArgMax(),
    Entropy(),
    LogSumExp(),
    Received(),
    Received(last=2),
    MassOn([0, 5]),
    MeanDistance(),
    DistanceHistogram([0, 1, 3, torch.inf]),
    TopK(3),
    PooledMap(2, 3),
]


@pytest.mark.parametrize("statistic", LAYOUTS, ids=str)
@pytest.mark.parametrize("axes", [2, 3])
def test_without_heads_a_statistic_is_in_the_layout_of_the_inputs(statistic, axes):
    query, key = torch.randn(2, 5, 3)[: axes - 1], torch.randn(2, 7, 3)[: axes - 1]
    query, key = (query, key) if axes == 3 else (query[0], key[0])
    call = {"offset": torch.tensor([1, 4]) if axes == 3 else torch.tensor(1)}
    attention = gh.Attention(mask=gh.causal() & gh.padding([6, 3] if axes == 3 else 6))
    trace = attention.trace(query, key, key, **call)
    found = statistic.of(trace)
    whole = finished(statistic, trace.problem)
    if not isinstance(found, tuple):
        found, whole = (found,), (whole,)
    for one, headed in zip(found, whole, strict=True):
        assert headed.shape == (*trace.problem.query.shape[:-2], *one.shape[axes - 2 :])
        torch.testing.assert_close(one, trace.problem.as_given(headed))


@pytest.mark.parametrize(("queries", "keys"), [(0, 3), (3, 0)])
def test_lengths_may_be_zero(queries, keys):
    query, key = torch.ones(2, 5, queries, 7), torch.ones(2, 5, keys, 7)
    problem = gh.Attention().trace(query, key, key).problem
    trace = REFERENCE.trace(problem)
    for statistic in (
        *(LogSumExp(), MaxWeight(), ArgMax(), MaxScore(), Entropy(), Received(), MassOn([])),
        *(MeanDistance(), DistanceHistogram([0, 2])),
    ):
        torch.testing.assert_close(finished(statistic, problem), statistic.of(trace))
    expected = torch.full((2, 5, queries), -1)
    assert torch.equal(ArgMax().of(trace), expected)
    assert MaxScore().of(trace).isneginf().all()


@given(cases(dtypes=(torch.float64,)), st.sampled_from(NORMALIZERS), st.data())
@examples(100)
def test_gradients_are_finite_and_those_of_the_definition(case, normalizer, data):
    statistic = data.draw(st.sampled_from([Entropy(), MassOn([0]), LogSumExp()]))
    if isinstance(statistic, LogSumExp) and not normalizer.exponential:
        normalizer = gh.Softmax
    empty = ~case.visible().any(-1)
    query, key, value = case.inputs(requires_grad=True)
    # Far apart, so that some weights round to 0.
    problem = gh.Attention(score=gh.ScaledDot(beta=300.0), normalizer=normalizer())
    problem = problem.trace(query, key, value, **case.call()).problem

    def gradients(found):
        found = found.masked_fill(empty, 0.0)
        return torch.autograd.grad(found.sum(), (query, key), allow_unused=True)

    defined = gradients(statistic.of(REFERENCE.trace(problem)))
    for one, other in zip(defined, gradients(finished(statistic, problem)), strict=True):
        assert one.isfinite().all()
        torch.testing.assert_close(other, one)


def test_gradients_of_entropy_are_those_of_differences():
    scores = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    zeros = torch.zeros(5, 1, dtype=torch.float64)

    def entropy(scores):
        trace = gh.Attention(mask=gh.causal()).trace(zeros[:3], zeros, zeros, bias=scores)
        return Entropy().of(trace)

    assert torch.autograd.gradcheck(entropy, (scores,))


def test_an_empty_row_gives_a_sink_of_minus_infinity_no_gradient():
    sink = torch.nn.Parameter(torch.tensor([0.5, -torch.inf]))
    x = torch.randn(1, 2, 3, 5)
    mask = gh.dense(torch.tensor([[True], [False], [True]]))
    attention = gh.Attention(mask=mask, normalizer=gh.SoftmaxOne(sink=sink))
    problem = attention.trace(x, x, x).problem
    for found in (
        LogSumExp().of(REFERENCE.trace(problem)),
        finished(LogSumExp(), problem),
    ):
        (gradient,) = torch.autograd.grad(found[..., ::2].sum(), sink)
        assert gradient[0] > 0
        assert gradient[1] == 0


def test_equal_weights_are_told_apart_by_scores_and_then_by_keys():
    # In float64 a sigmoid is 1 from 37 on: keys 7 to 28 tie, and of them 11 and 23 have most.
    scores = torch.zeros(3, 29, dtype=torch.float64)
    scores[:, 7:] = 40.0
    scores[:, [11, 23]] = 41.0
    query, key = (torch.zeros(n, 2, dtype=torch.float64) for n in scores.shape)
    trace = gh.Attention(normalizer=gh.Sigmoid()).trace(query, key, key, bias=scores)
    for found in (ArgMax().of(trace), finished(ArgMax(), trace.problem)[0]):
        assert found.tolist() == [11] * 3
    for found in (TopK(19).of(trace).keys, finished(TopK(19), trace.problem).keys[0]):
        assert found.tolist() == [list(range(7, 26))] * 3


def test_the_sum_of_scores_is_the_logsumexp_less_the_entropy():
    x = torch.randn(2, 3, 5, 7, dtype=torch.float64)
    problem = gh.Attention(mask=gh.causal(offset=-1)).trace(x, x, x).problem
    ((scores,), (weights, keys)) = reduced((ScoreSum(), LargestWeights(7)), problem)
    expected = finished(LogSumExp(), problem) - finished(Entropy(), problem)
    torch.testing.assert_close(scores[..., 1:], expected[..., 1:])
    assert not scores[..., 0].any()
    # More places than keys, of which the first query sees none and the last all but one.
    assert weights.shape == keys.shape == (2, 3, 5, 7)
    seen = (keys >= 0).sum(-1)
    assert torch.equal(seen, torch.arange(5).expand(2, 3, 5))
    assert torch.equal(weights > 0, keys >= 0)


class OfKeys(Reduction):
    """The largest weight of each key."""

    query_axis = None
    merged = "max"

    def of(self, rows):
        return (rows.weights.amax(-2),)


def test_of_several_blocks_the_larger_numbers_are_kept(monkeypatch):
    monkeypatch.setattr(reference, "_NUMBERS", 2 * 3 * 7)
    query, key = torch.randn(3, 5, 2), torch.randn(3, 7, 2)
    problem = gh.Attention().problem(query, key, key, None, None, None)
    ((found,),) = reference.by_rows(problem, [OfKeys()])
    assert torch.equal(found, REFERENCE.trace(problem).weights.amax(-2))
