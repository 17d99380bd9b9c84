"""Statistics of matrices small enough to be done by hand, in every layout.

Statistics of chunks of queries, joined, are those of the whole.
"""

import math

import pytest
import torch

import glasshead as gh
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

LN2, LN3, INF = math.log(2), math.log(3), math.inf

# Three queries and five keys; the last query sees nothing. Positions are 2, 3 and 4.
SCORES = [
    [0.0, LN2, LN3, -INF, -INF],
    [LN3, -INF, -INF, LN3, LN2],
    [-INF, -INF, -INF, -INF, -INF],
]


# The weights: sixths, then eighths.
#   1/6 2/6 3/6  0   0
#   3/8  0   0  3/8 2/8
#    0   0   0   0   0
HALVES = 1 / 6 * math.log(6) + 2 / 6 * LN3 + 3 / 6 * LN2


EIGHTHS = 6 / 8 * math.log(8 / 3) + 2 / 8 * math.log(4)


BY_HAND = [
    (LogSumExp(), [math.log(6), math.log(8), -INF]),
    (MaxWeight(), [1 / 2, 3 / 8, 0]),
    (MaxScore(), LN3),
    (Entropy(), [HALVES, EIGHTHS, 0]),
    (Received(), [1 / 6 + 3 / 8, 1 / 3, 1 / 2, 3 / 8, 1 / 4]),
    (Received(last=2), [3 / 8, 0, 0, 3 / 8, 1 / 4]),
    (MassOn([0]), [1 / 6, 3 / 8, 0]),
    (MassOn(range(1, 5, 2)), [1 / 3, 3 / 8, 0]),
    (MassOn([]), [0, 0, 0]),
    (MeanDistance(), [2 / 6 + 2 / 6, 9 / 8 + 2 / 8, 0]),
    (
        DistanceHistogram([0, 1, 2.5, INF]),
        [(1 / 2 + 3 / 8) / 2, (1 / 6 + 1 / 3 + 1 / 4) / 2, 3 / 8 / 2],
    ),
    (DistanceHistogram([1, 3]), [(1 / 6 + 1 / 3 + 1 / 4) / 2]),
    (PooledMap(2, 2), [[1 / 2, 1 / 2], [3 / 16, 5 / 16]]),
    (PooledMap(1, 5), [[13 / 72, 1 / 9, 1 / 6, 1 / 8, 1 / 12]]),
]


def trace_of(scores, axes=2, **recipe):
    """A trace whose scores are these, by a bias on inputs of so many axes."""
    bias = torch.tensor(scores, dtype=torch.float64)
    leading = (2, 3)[: max(axes - 2, 0)]
    query, key = (torch.zeros(*leading, n, 7, dtype=torch.float64) for n in bias.shape)
    return gh.Attention(bias=bias, **recipe).trace(query, key, key)


@pytest.mark.parametrize("axes", [2, 3, 4])
@pytest.mark.parametrize(("statistic", "expected"), BY_HAND, ids=str)
def test_values_by_hand(statistic, expected, axes):
    found = statistic.of(trace_of(SCORES, axes))
    expected = torch.tensor(expected, dtype=torch.float64)
    expected = expected.expand([*(2, 3)[: axes - 2], *expected.shape])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("axes", [2, 3, 4])
def test_keys_by_hand(axes):
    trace = trace_of(SCORES, axes)
    leading = trace.weights.shape[:-2]
    expected = torch.tensor([2, 0, -1]).expand(*leading, 3)
    torch.testing.assert_close(ArgMax().of(trace), expected)
    top = TopK(4).of(trace)
    expected = [[1 / 2, 1 / 3, 1 / 6, 0], [3 / 8, 3 / 8, 1 / 4, 0], [0, 0, 0, 0]]
    expected = torch.tensor(expected, dtype=torch.float64).expand(*leading, 3, 4)
    torch.testing.assert_close(top.weights, expected)
    expected = torch.tensor([[2, 1, 0, -1], [0, 3, 4, -1], [-1, -1, -1, -1]])
    torch.testing.assert_close(top.keys, expected.expand(*leading, 3, 4))


def test_a_sink_counts_in_the_logsumexp():
    trace = trace_of(SCORES, normalizer=gh.SoftmaxOne(sink=LN2))
    expected = torch.tensor([math.log(8), math.log(10), -INF], dtype=torch.float64)
    torch.testing.assert_close(LogSumExp().of(trace), expected)


@pytest.mark.parametrize("axes", [2, 3, 4])
def test_a_sink_per_head_counts_in_the_logsumexp(axes):
    heads = 3 if axes == 4 else 1
    sinks = torch.tensor([LN2, LN3, -INF], dtype=torch.float64)[:heads]
    found = LogSumExp().of(trace_of(SCORES, axes, normalizer=gh.SoftmaxOne(sink=sinks)))
    totals = torch.tensor([[8, 10, 0], [9, 11, 0], [6, 8, 0]], dtype=torch.float64)[:heads]
    expected = totals.log() if axes == 4 else totals[0].log()
    torch.testing.assert_close(found, expected.expand_as(found))


@pytest.mark.parametrize("normalizer", [gh.Softmax(), gh.SoftmaxOne(0.5)], ids=str)
def test_weights_are_exponentials_below_the_logsumexp(normalizer):
    x = torch.randn(2, 3, 5, 7)
    trace = gh.Attention(mask=gh.causal(), normalizer=normalizer).trace(x, x, x)
    lse = LogSumExp().of(trace)
    torch.testing.assert_close((trace.masked - lse[..., None]).exp(), trace.weights)


def test_equal_weights_go_to_the_larger_score_and_then_to_the_lower_key():
    # In float64 a sigmoid is 1 from 37 on.
    trace = trace_of([[0.0, 50.0, 60.0, 60.0], [2.0, 2.0, 1.0, 2.0]], normalizer=gh.Sigmoid())
    torch.testing.assert_close(ArgMax().of(trace), torch.tensor([2, 0]))
    torch.testing.assert_close(TopK(2).of(trace).keys, torch.tensor([[1, 2], [0, 1]]))


def test_a_weight_of_zero_takes_no_place():
    top = TopK(2).of(trace_of([[5.0, 0.0, 0.0]], normalizer=gh.Sparsemax()))
    torch.testing.assert_close(top.keys, torch.tensor([[0, -1]]))


@pytest.mark.parametrize("axes", [3, 4])
def test_distances_read_an_offset_of_each_batch_row(axes):
    shape = (2, 3, 5, 7)[: axes - 2]
    query, key = torch.zeros(*shape, 1, 7), torch.zeros(*shape, 5, 7)
    trace = gh.Attention().trace(query, key, key, offset=torch.tensor([0, 3]))
    # From 0 the keys lie 0 1 2 3 4 away, from 3 they lie 3 2 1 0 1 away.
    expected = torch.tensor([10 / 5, 7 / 5]).view(2, *[1] * (axes - 2))
    found = MeanDistance().of(trace)
    torch.testing.assert_close(found, expected.expand_as(found))
    expected = torch.tensor([[2 / 5, 3 / 5], [3 / 5, 2 / 5]])
    found = DistanceHistogram([0, 2, 5]).of(trace)
    expected = expected if axes == 3 else expected[:, None]
    torch.testing.assert_close(found, expected.expand_as(found))


def test_a_head_that_sees_nothing():
    trace = trace_of([[-INF, -INF, -INF], [-INF, -INF, -INF]], axes=4)
    assert torch.equal(MaxScore().of(trace), torch.full((2, 3), -INF, dtype=torch.float64))
    found = DistanceHistogram([0, 2, 5]).of(trace)
    assert torch.equal(found, torch.zeros(2, 3, 2, dtype=torch.float64))


def test_a_map_of_every_pair_is_the_weights():
    x = torch.randn(5, 7)
    trace = gh.Attention(mask=gh.causal()).trace(x, x, x)
    torch.testing.assert_close(PooledMap(5, 5).of(trace), trace.weights)


@pytest.mark.parametrize(
    ("statistic", "unit", "differentiable"),
    [
        (LogSumExp(), "nats", True),
        (MaxWeight(), "weight", False),
        (ArgMax(), "key", False),
        (MaxScore(), "score", False),
        (Entropy(), "nats", True),
        (Received(), "weight", False),
        (MassOn([0]), "weight", True),
        (MeanDistance(), "places", False),
        (DistanceHistogram([0, 1]), "weight", False),
        (TopK(1), "weight", False),
        (PooledMap(1, 1), "weight", False),
    ],
    ids=str,
)
def test_units_and_gradients_are_told(statistic, unit, differentiable):
    assert statistic.unit == unit
    assert statistic.has_mean == (statistic != ArgMax())
    assert statistic.differentiable == differentiable


def test_statistics_are_values():
    assert MassOn([0, 3]) == MassOn(range(0, 4, 3)) == MassOn(torch.tensor([0, 3]))
    assert MassOn([0]) != MassOn([1])
    assert DistanceHistogram([0, 1]) == DistanceHistogram((0.0, 1.0))
    assert len({TopK(2), TopK(2), TopK(3), Entropy(), Entropy()}) == 3
    assert repr(MassOn([0])) == "MassOn(keys=(0,))"


JOINED = [
    LogSumExp(),
    MaxWeight(),
    ArgMax(),
    MaxScore(),
    Entropy(),
    Received(),
    MassOn([0, 5]),
    MeanDistance(),
    TopK(3),
]


@pytest.fixture(params=[(5, 3), (2, 3, 5, 3)], ids=["no heads", "heads"])
def inputs(request):
    # Seven queries at the end of eleven keys, of which the first chunk has three.
    *leading, _, dim = request.param
    query = torch.randn(*leading, 7, dim, dtype=torch.float64)
    key = torch.randn(*leading, 11, dim, dtype=torch.float64)
    return query, key


def chunks(query, key, first_keys):
    attention = gh.Attention(mask=gh.causal())
    early = key[..., :first_keys, :]
    return (
        attention.trace(query, key, key),
        attention.trace(query[..., :3, :], early, early, offset=4),
        attention.trace(query[..., 3:, :], key, key, offset=7),
    )


@pytest.mark.parametrize("first_keys", [7, 11], ids=["growing", "all keys"])
@pytest.mark.parametrize("statistic", JOINED, ids=str)
def test_chunks_join_to_the_whole(statistic, inputs, first_keys):
    whole, first, second = (statistic.of(trace) for trace in chunks(*inputs, first_keys))
    joined = statistic.joined(first, second)
    assert type(joined) is type(whole)
    torch.testing.assert_close(joined, whole)


def test_mass_is_added_whichever_chunk_has_more_keys():
    short, long = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0, 5.0]])
    expected = torch.tensor([[4.0, 6.0, 5.0]])
    assert torch.equal(Received().joined(short, long), expected)
    assert torch.equal(Received().joined(long, short), expected)


@pytest.mark.parametrize(
    "statistic", [Received(last=2), DistanceHistogram([0, 1, 5]), PooledMap(2, 3)], ids=str
)
def test_what_does_not_follow_from_chunks_is_refused(statistic, inputs):
    _, first, second = (statistic.of(trace) for trace in chunks(*inputs, 11))
    with pytest.raises(
        ValueError, match=r"cannot be computed from chunks\. Observe the whole sequence"
    ):
        statistic.joined(first, second)
