"""What is asked for gets its names, or a sentence.

What does not fit is refused in one sentence, before anything is computed.
"""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch

import glasshead as gh
from glasshead.statistics import (
    ArgMax,
    DistanceHistogram,
    Entropy,
    LogSumExp,
    MassOn,
    PooledMap,
    Received,
    Statistic,
    TopK,
    normalize_statistics,
)
from glasshead.statistics.base import snake_case


@dataclass(frozen=True)
class HeadSharpness(Statistic):
    def of(self, trace):
        return trace.weights.amax()

    def reductions(self, problem):
        return ()

    def finish(self, problem, *reduced):
        return None


class Context(HeadSharpness):
    pass


def test_a_list_is_named_by_classes_in_its_order():
    asked = [TopK(3), LogSumExp(), ArgMax(), HeadSharpness()]
    for given in (asked, tuple(asked)):
        found = normalize_statistics(given)
        assert list(found) == ["top_k", "log_sum_exp", "arg_max", "head_sharpness"]
        assert list(found.values()) == asked


def test_a_dict_keeps_its_names_and_is_copied():
    given = {"sink": MassOn([0]), "rest": MassOn([1, 2])}
    found = normalize_statistics(given)
    assert found == given
    assert found is not given


@pytest.mark.parametrize("nothing", [[], (), {}])
def test_nothing_may_be_asked(nothing):
    assert normalize_statistics(nothing) == {}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Entropy", "entropy"),
        ("LogSumExp", "log_sum_exp"),
        ("TopK", "top_k"),
        ("KLFromUniform", "kl_from_uniform"),
        ("Top5Mass", "top5_mass"),
        ("My_Own", "my_own"),
    ],
)
def test_snake_case(name, expected):
    assert snake_case(name) == expected


@pytest.mark.parametrize(
    ("statistics", "error", "sentence"),
    [
        (Entropy(), TypeError, r"a list such as \[Entropy\(\)\], or a dict .* got Entropy Entropy"),
        ("entropy", TypeError, r"a list such as \[Entropy\(\)\], or a dict .* got str 'entropy'"),
        (None, TypeError, r"a list such as \[Entropy\(\)\], or a dict .* got NoneType None"),
        (["entropy"], TypeError, r"objects such as Entropy\(\), got str 'entropy'\."),
        ({"a": 3}, TypeError, r"objects such as Entropy\(\), got int 3\."),
        ([TopK], TypeError, r"got the class TopK\. Write TopK\(\)\."),
        ({"a": Entropy}, TypeError, r"got the class Entropy\. Write Entropy\(\)\."),
        ([int], TypeError, r"objects such as Entropy\(\), got type <class 'int'>"),
        ([Entropy(), TopK(2), Entropy()], ValueError, r"once, got Entropy\(\) twice"),
        ({"a": TopK(2), "b": TopK(2)}, ValueError, r"once, got TopK\(k=2\) twice"),
        (
            [TopK(2), TopK(3)],
            ValueError,
            r"one of each class, got TopK\(k=2\) and TopK\(k=3\)\. Name each in a dict",
        ),
        ({"the sink": MassOn([0])}, ValueError, r"got 'the sink' for MassOn\(keys=\(0,\)\)\."),
        ({"lambda": MassOn([0])}, ValueError, r"stand after a dot.* got 'lambda' for"),
        ({0: MassOn([0])}, ValueError, r"stand after a dot.* got 0 for"),
        (
            {"context": MassOn([0])},
            ValueError,
            r"not be an attribute of Observation, got 'context'",
        ),
        ({"_values": MassOn([0])}, ValueError, "stand after a dot"),
        ({"save": MassOn([0])}, ValueError, r"not be an attribute of Observation, got 'save'"),
        ([Context()], ValueError, r"got 'context' for Context\(\)\. Choose another in a dict"),
    ],
)
def test_what_cannot_be_asked_is_refused(statistics, error, sentence):
    with pytest.raises(error, match=sentence):
        normalize_statistics(statistics)


def test_a_long_value_is_cut_in_the_sentence():
    with pytest.raises(TypeError, match=r"got str 'x{52}…\.$"):
        normalize_statistics("x" * 1000)


# Three queries, five keys.
PROBLEM = gh.Attention().trace(torch.ones(3, 2), torch.ones(5, 2), torch.ones(5, 7)).problem


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: Received(last=0), ValueError, r"Received\(last=…\) .* at least 1, got 0\."),
        (lambda: Received(last=1.0), TypeError, r"Received\(last=…\) .*whole number.* got 1\.0\."),
        (lambda: TopK(0), ValueError, r"TopK\(k\) .* at least 1, got 0\."),
        (lambda: TopK("3"), TypeError, r"TopK\(k\) .*whole number.* got str '3'\."),
        (lambda: PooledMap(0, 2), ValueError, r"PooledMap\(rows\) .* at least 1, got 0\."),
        (lambda: PooledMap(2, -1), ValueError, r"PooledMap\(columns\) .* at least 1, .* -1\."),
        (lambda: PooledMap(True, 2), TypeError, r"PooledMap\(rows\) .* got True\."),
        (
            lambda: MassOn(0),
            TypeError,
            r"MassOn\(keys\) .* be a list of keys, got 0\. .*MassOn\(\[0\]",
        ),
        (lambda: MassOn([-1]), ValueError, r"MassOn\(keys\) .* at least 0, got -1\."),
        (lambda: MassOn([0.5]), TypeError, r"MassOn\(keys\) .*whole number.* got 0\.5\."),
        (lambda: MassOn([2, 0, 2]), ValueError, r"MassOn\(keys\) must have each key once, got 2"),
        (lambda: DistanceHistogram(3), TypeError, r"\(edges\) must be a list .* got 3\."),
        (
            lambda: DistanceHistogram([1]),
            ValueError,
            r"must be two numbers or more, .* got \[1\]\.",
        ),
        (lambda: DistanceHistogram([]), ValueError, r"must be two numbers or more, .* got \[\]\."),
        (
            lambda: DistanceHistogram([0, 2, 2]),
            ValueError,
            r"each above the one before it, got \[0, 2, 2\]",
        ),
        (
            lambda: DistanceHistogram([2, 1]),
            ValueError,
            r"each above the one before it, got \[2, 1\]",
        ),
        (lambda: DistanceHistogram([0, math.inf, 9]), ValueError, r"without the last one .* inf"),
        (lambda: DistanceHistogram([0, -math.inf]), ValueError, "a finite number, got -inf"),
        (lambda: DistanceHistogram([0, math.nan]), ValueError, "a finite number, got nan"),
        (lambda: DistanceHistogram(["a", 1]), TypeError, r"must be a number, got str 'a'\."),
    ],
)
def test_refused_when_it_is_made(make, error, sentence):
    with pytest.raises(error, match=sentence):
        make()


@pytest.mark.parametrize(
    ("statistic", "sentence"),
    [
        (Received(last=4), r"Received\(last=4\) needs at least 4 queries, got 3\. .*smaller"),
        (TopK(6), r"TopK\(k=6\) needs at least 6 keys, got 5\. Use a smaller k\."),
        (MassOn([0, 5]), r"MassOn\(keys\) must be keys from 0 to 4, got 5\."),
        (PooledMap(4, 5), r"PooledMap\(rows=4, columns=5\) .* got 3 and 5. Ask for a smaller map"),
        (PooledMap(3, 6), r"PooledMap\(rows=3, columns=6\) .* got 3 and 5. Ask for a smaller map"),
    ],
    ids=str,
)
def test_refused_where_it_does_not_fit(statistic, sentence):
    with pytest.raises(ValueError, match=sentence):
        statistic.check(PROBLEM)
    x, y = torch.ones(3, 2), torch.ones(5, 2)
    trace = gh.Attention().trace(x, y, y)
    with pytest.raises(ValueError, match=sentence):
        statistic.of(trace)


@pytest.mark.parametrize(
    "statistic", [Received(3), TopK(5), MassOn([4]), PooledMap(3, 5), LogSumExp()], ids=str
)
def test_the_largest_that_fits_is_taken(statistic):
    statistic.check(PROBLEM)


@pytest.mark.parametrize(
    "normalizer", [gh.HardMax(), gh.Sparsemax(), gh.Entmax15(), gh.Sigmoid()], ids=str
)
def test_a_logsumexp_takes_exponentials(normalizer):
    x = torch.ones(3, 2)
    trace = gh.Attention(normalizer=normalizer).trace(x, x, x)
    sentence = rf"LogSumExp\(\) needs the weights of Softmax\(\) or SoftmaxOne\(\).*{normalizer}"
    sentence = sentence.removesuffix("()")
    with pytest.raises(ValueError, match=sentence):
        LogSumExp().check(trace.problem)
    with pytest.raises(ValueError, match=sentence):
        LogSumExp().of(trace)


def test_a_subclass_that_normalizes_otherwise_has_no_logsumexp():
    class Halved(gh.Softmax):
        def normalize(self, scores):
            return super().normalize(scores) / 2

    x = torch.ones(3, 2)
    trace = gh.Attention(normalizer=Halved()).trace(x, x, x)
    with pytest.raises(ValueError, match="got the weights of Halved"):
        LogSumExp().check(trace.problem)


def test_numbers_of_numpy_and_torch_are_numbers():
    assert MassOn(np.array([0, 3])) == MassOn(torch.tensor([0, 3])) == MassOn([0, 3])
    assert TopK(np.int64(3)) == TopK(3)
    assert DistanceHistogram(np.array([0.0, np.inf])) == DistanceHistogram([0, math.inf])
    assert [type(key) for key in MassOn(np.array([0, 3])).keys] == [int, int]
    edges = DistanceHistogram(np.array([0, 3])).edges
    assert [type(edge) for edge in edges] == [float, float]
