"""What is asked for gets its names, or a sentence."""

from dataclasses import dataclass

import pytest

from glasshead.statistics import (
    ArgMax,
    Entropy,
    LogSumExp,
    MassOn,
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
        (["entropy"], TypeError, r"objects such as Entropy\(\), and got str 'entropy'\."),
        ({"a": 3}, TypeError, r"objects such as Entropy\(\), and got int 3\."),
        ([TopK], TypeError, r"got the class TopK: write TopK\(\)\."),
        ({"a": Entropy}, TypeError, r"got the class Entropy: write Entropy\(\)\."),
        ([int], TypeError, r"objects such as Entropy\(\), and got type <class 'int'>"),
        ([Entropy(), TopK(2), Entropy()], ValueError, r"once, and got Entropy\(\) twice"),
        ({"a": TopK(2), "b": TopK(2)}, ValueError, r"once, and got TopK\(k=2\) twice"),
        (
            [TopK(2), TopK(3)],
            ValueError,
            r"one of each class, and got TopK\(k=2\) and TopK\(k=3\): name each in a dict",
        ),
        ({"the sink": MassOn([0])}, ValueError, r"got 'the sink' for MassOn\(keys=\(0,\)\)\."),
        ({"lambda": MassOn([0])}, ValueError, r"stand after a dot.* got 'lambda' for"),
        ({0: MassOn([0])}, ValueError, r"stand after a dot.* got 0 for"),
        ({"context": MassOn([0])}, ValueError, r"'context' is an observation's own"),
        ({"_values": MassOn([0])}, ValueError, "stand after a dot"),
        ({"save": MassOn([0])}, ValueError, r"'save' is an observation's own"),
        ([Context()], ValueError, r"'context' is .* own, .* name it otherwise, in a dict"),
    ],
)
def test_what_cannot_be_asked_is_refused(statistics, error, sentence):
    with pytest.raises(error, match=sentence):
        normalize_statistics(statistics)


def test_a_long_value_is_cut_in_the_sentence():
    with pytest.raises(TypeError, match=r"and got str 'x{52}…\.$"):
        normalize_statistics("x" * 1000)
