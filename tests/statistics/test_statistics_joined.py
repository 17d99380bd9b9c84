"""Statistics of chunks of queries, joined, are those of the whole."""

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
    with pytest.raises(ValueError, match=r"does not follow from that of its chunks: observe it"):
        statistic.joined(first, second)
