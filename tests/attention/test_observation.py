"""An observation as a table: its rows are the places of the statistics, by name."""

import sys
from dataclasses import dataclass

import pytest
import torch

import glasshead as gh

ALL = [gh.ArgMax(), gh.Entropy(), gh.MaxScore(), gh.MaxWeight(), gh.Received(), gh.TopK(2)]


@dataclass(frozen=True)
class PerHead(gh.Statistic):
    """A statistic that says of its axes nothing, or what it is told to."""

    unit = "weight"

    def of(self, trace):
        return trace.weights.sum((-2, -1))

    def reductions(self, problem):
        return gh.Received().reductions(problem)

    def finish(self, problem, *reduced):
        return reduced[0][0].sum((-2, -1))


def observed(statistics, *leading):
    query, key = torch.randn(*leading, 5, 3), torch.randn(*leading, 7, 3)
    return gh.Attention(mask=gh.causal()).observe(query, key, key, statistics)


@pytest.mark.parametrize(
    ("leading", "levels"),
    [
        ((), []),
        ((2,), ["batch"]),
        ((2, 3), ["batch", "head"]),
        ((2, 1, 3), ["batch_0", "batch_1", "head"]),
    ],
)
def test_the_index_names_the_axes_of_the_layout(leading, levels):
    seen = observed(ALL, *leading)
    frame = seen.to_frame()
    assert list(frame.columns) == ["arg_max", "entropy", "max_weight"]
    assert list(frame.index.names) == [*levels, "query"]
    assert len(frame) == seen.entropy.numel()
    for name in frame.columns:
        assert frame[name].tolist() == seen[name].flatten().tolist()
    place = tuple(size - 1 for size in (*leading, 5))
    assert frame["entropy"].loc[place if len(place) > 1 else place[0]] == seen.entropy[place]


@pytest.mark.parametrize(
    ("statistic", "axes", "columns"),
    [
        (gh.DistanceHistogram([0, 2, 9]), ["bin"], ["distance_histogram"]),
        (gh.MaxScore(), [], ["max_score"]),
        (gh.PooledMap(2, 3), ["row", "column"], ["pooled_map"]),
        (gh.Received(), ["key"], ["received"]),
        (gh.TopK(2), ["query", "rank"], ["top_k.weights", "top_k.keys"]),
    ],
)
@pytest.mark.parametrize("leading", [(), (2, 3)])
def test_each_statistic_has_axes_of_its_own(statistic, axes, columns, leading):
    seen = observed([gh.Entropy(), statistic], *leading)
    frame = seen.to_frame(statistic)
    levels = [*(["batch", "head"] if leading else []), *axes]
    assert list(frame.index.names) == (levels or [None])
    assert list(frame.columns) == columns
    value = seen[statistic]
    tensors = value if isinstance(value, tuple) else (value,)
    for column, tensor in zip(columns, tensors, strict=True):
        assert frame[column].tolist() == tensor.flatten().tolist()
    assert frame.equals(seen.to_frame(columns[0].split(".")[0]))


def test_statistics_of_the_same_axes_stand_side_by_side():
    seen = observed({"first": gh.TopK(2), "received": gh.Received(), "last": gh.Received(1)}, 2, 3)
    frame = seen.to_frame("last", gh.Received())
    assert list(frame.columns) == ["last", "received"]
    assert frame["received"].sum() == pytest.approx(2 * 3 * 5, rel=1e-5)


def test_numbers_of_half_precision_and_gradients_become_a_table():
    x = torch.randn(2, 3, 5, 3, requires_grad=True)
    seen = gh.Attention().observe(x, x, x, [gh.Entropy()], gradient=True)
    seen.values["entropy"] = seen.entropy.bfloat16()
    assert seen.to_frame()["entropy"].tolist() == seen.entropy.flatten().tolist()


@pytest.mark.parametrize(
    ("names", "error", "sentence"),
    [
        (
            ("entropy", "received"),
            ValueError,
            r"entropy \[2, 3, 5\] of query, received \[2, 3, 7\]",
        ),
        (("top_k", "entropy"), ValueError, "the statistics of to_frame must have the same axes"),
        (("max_score", "entropy"), ValueError, "of the whole.*. Convert each on its own"),
        (("entrop",), KeyError, "'entrop' was not observed. Use one of arg_max, entropy"),
        ((gh.TopK(3),), KeyError, "k=3. was not observed"),
        ((3,), KeyError, "3 was not observed"),
    ],
)
def test_what_does_not_stand_together_is_refused(names, error, sentence):
    with pytest.raises(error, match=sentence):
        observed(ALL, 2, 3).to_frame(*names)


def test_maps_of_two_sizes_do_not_stand_together():
    seen = observed({"a": gh.TopK(2), "b": gh.TopK(3)}, 2, 3)
    with pytest.raises(ValueError, match=r"a.weights \[2, 3, 5, 2\] of query and rank, "):
        seen.to_frame("a", "b")


def test_nothing_a_query_is_said():
    with pytest.raises(ValueError, match=r"none was observed\. Name one of received"):
        observed([gh.Received()], 2, 3).to_frame()


def test_an_own_statistic_whose_axes_are_not_said_is_left_out_or_refused():
    seen = observed([gh.Entropy(), PerHead()], 2, 3)
    assert list(seen.to_frame().columns) == ["entropy"]
    with pytest.raises(ValueError, match=r"got \[2, 3\]\. Set axes in its class"):
        seen.to_frame("per_head")


def test_a_missing_pandas_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="to_frame needs pandas.*Run pip install pandas"):
        observed(ALL).to_frame()


def test_values_are_had_by_name_and_by_statistic():
    seen = observed({"sink": gh.MassOn([0]), "sure": gh.MaxWeight()}, 2, 3)
    assert seen.sink is seen["sink"] is seen[gh.MassOn([0])]
    assert {"sink", "sure", "to_frame", "context"} <= set(dir(seen))
    with pytest.raises(AttributeError, match=r"'entropy' was not observed\. Use one of sink, sure"):
        seen.entropy  # noqa: B018
    with pytest.raises(KeyError, match=r"was not observed\. Use one of sink, sure"):
        seen[gh.Entropy()]
    with pytest.raises(ValueError, match="got sink, sure and entropy"):
        seen + observed([gh.Entropy()], 2, 3)
    with pytest.raises(TypeError, match="unsupported operand"):
        seen + 1
