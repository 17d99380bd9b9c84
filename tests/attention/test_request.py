"""A request is encoded once: few files are crossed, ranges and engine are computed once a call."""

import pytest
import torch

import glasshead as gh
from crossings import crossed
from glasshead.attention import attention as module
from glasshead.engines import STREAMING
from glasshead.recipe.masks.kinds import Band, Dense, LengthMask
from glasshead.statistics.reductions import Reduction

MASKS = {
    "none": None,
    "causal": gh.causal(),
    "window": gh.causal() & gh.window(before=100),
    "padded": gh.causal() & gh.padding([300]),
    "dense": gh.padding([300]) & gh.dense(torch.rand(512, 512) < 0.5),
}
SIX = [
    gh.Entropy(),
    gh.MaxWeight(),
    gh.TopK(3),
    gh.Received(),
    gh.MeanDistance(),
    gh.PooledMap(4, 4),
]


def inputs(length=512):
    generator = torch.Generator().manual_seed(3)
    return torch.randn(3, 1, 4, length, 16, generator=generator).unbind(0)


@pytest.mark.parametrize("length", [13, 211])
@pytest.mark.parametrize("name", ["none", "causal", "window"])
def test_a_remembered_call_crosses_four_files(name, length):
    attention = gh.Attention(mask=MASKS[name])
    query, key, value = inputs(length)
    # A call that is remembered makes its program when it is first repeated.
    attention(query, key, value)
    attention(query, key, value)
    files = crossed(lambda: attention(query, key, value))
    assert 2 < len(files) <= 4, files


@pytest.mark.parametrize(
    "mask", [gh.causal() & gh.padding([7]), gh.dense(torch.rand(13, 13) < 0.5)]
)
def test_a_plain_call_crosses_ten_files(mask):
    attention = gh.Attention(mask=mask)
    query, key, value = inputs(13)
    files = crossed(lambda: attention(query, key, value))
    assert 5 < len(files) <= 10, files


@pytest.mark.parametrize("statistics", [[gh.Entropy()], SIX], ids=["one", "six"])
@pytest.mark.parametrize("name", MASKS)
def test_observing_crosses_eighteen_files(name, statistics):
    attention = gh.Attention(mask=MASKS[name], engine="streaming")
    query, key, value = inputs()
    files = crossed(lambda: attention.observe(query, key, value, statistics))
    assert 10 < len(files) <= 18, files


def counted(monkeypatch, owner, name):
    """How often a function is called, noted while it runs as ever."""
    calls, function = [], getattr(owner, name)

    def noting(*given, **named):
        calls.append(given)
        return function(*given, **named)

    monkeypatch.setattr(owner, name, noting)
    return calls


@pytest.mark.parametrize(
    ("engine", "dropout"),
    [("auto", 0.0), ("streaming", 0.0), ("fused", 0.0), ("reference", 0.0), ("fused", 0.25)],
)
@pytest.mark.parametrize("name", [name for name in MASKS if name != "none"])
def test_ranges_and_the_choice_of_engine_are_computed_once(engine, dropout, name, monkeypatch):
    attention = gh.Attention(mask=MASKS[name], engine=engine, dropout=dropout)
    chosen = counted(monkeypatch, module, "choose")
    simplified = counted(monkeypatch, Band, "simplified")
    ranges = [counted(monkeypatch, kind, "intervals") for kind in (Band, LengthMask, Dense)]
    for call in (
        attention,
        lambda *given: attention.observe(*given, SIX),
        lambda *given: attention.plan(*given, statistics=SIX),
    ):
        call(*inputs())
        assert len(chosen) == 1
        # Two bands are simplified, and make one.
        assert len(simplified) <= (2 if name == "window" else 1)
        # A prediction knows no lengths, which each call reads: it has bounds of its own.
        most = 2 if engine == "auto" and name in ("padded", "dense") else 1
        assert all(len(calls) <= most for calls in ranges)
        for calls in (chosen, simplified, *ranges):
            calls.clear()


def test_statistics_that_need_the_same_share_it(monkeypatch):
    observed = counted(monkeypatch, type(STREAMING), "observe")
    attention = gh.Attention(mask=gh.causal(), engine="streaming")
    attention.observe(*inputs(), [gh.MaxWeight(), gh.ArgMax(), gh.MaxScore()])
    ((_, _, reductions),) = observed
    assert len(reductions) == 1


def test_a_statistic_follows_from_its_reductions():
    """`of` need not be written; one that is wins."""

    class Row(Reduction):
        def of(self, rows):
            return (rows.weights.square().sum(-1), rows.scores.amax(-1))

    class Purity(gh.Statistic):
        unit = "weight"

        def reductions(self, problem):
            del problem
            return (Row(),)

        def finish(self, problem, *reduced):
            del problem
            return reduced[0]

    class Own(Purity):
        def of(self, trace):
            return trace.weights[..., 0]

    for shape in ((5, 7), (2, 5, 7), (2, 3, 5, 7)):
        x = torch.randn(shape)
        trace = gh.Attention(mask=gh.causal()).trace(x, x, x)
        purity, largest = Purity().of(trace)
        torch.testing.assert_close(purity, trace.weights.square().sum(-1))
        assert torch.equal(largest, trace.masked.amax(-1))
        assert torch.equal(Own().of(trace), trace.weights[..., 0])
