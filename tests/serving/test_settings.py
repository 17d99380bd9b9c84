"""Settings of a served watch: statistics as commands write them, and numbers."""

import pytest

import glasshead as gh
from glasshead.serving.settings import settings_of
from glasshead.statistics.spelling import SPELLINGS


def settings(**given):
    return settings_of({f"GLASSHEAD_{name}": value for name, value in given.items()})


def test_statistics_are_named_by_their_text():
    assert settings(STATISTICS="entropy, mass-on:3+11,top-k:7,arg-max")["statistics"] == {
        "entropy": gh.Entropy(),
        "mass_on_3_11": gh.MassOn([3, 11]),
        "top_k_7": gh.TopK(7),
        "arg_max": gh.ArgMax(),
    }
    assert settings()["statistics"] == {
        "entropy": gh.Entropy(),
        "received": gh.Received(),
        "mass_on_0": gh.MassOn([0]),
    }


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_server_takes_each_statistic_that_follows_from_chunks(name):
    if name == "distance-histogram":
        with pytest.raises(ValueError, match="follow from chunks of queries, got 'distance-hist"):
            settings(STATISTICS=name)
    else:
        assert len(settings(STATISTICS=name)["statistics"]) == 1


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("entropi", "GLASSHEAD_STATISTICS must be some of entropy, .*, got 'entropi'"),
        ("entropy:3", "must have numbers as in .* got 'entropy:3'"),
        ("mass-on:-1", "must have numbers as in .* got 'mass-on:-1'"),
        ("top-k:2+3", "must have numbers as in .* got 'top-k:2[+]3'"),
        ("top-k:0", "must be a whole number of at least 1, got 0"),
        ("received:5", "that follow from chunks of queries, got 'received:5'"),
    ],
)
def test_a_text_that_is_no_statistic_is_refused(written, said):
    with pytest.raises(ValueError, match=said):
        settings(STATISTICS=written)


def test_numbers_are_whole():
    assert settings(BUDGET="977", EXPIRY="13", LAYERS="a.*,b") == settings() | {
        "budget": 977,
        "expiry": 13.0,
        "layers": ["a.*", "b"],
    }
    with pytest.raises(ValueError, match="GLASSHEAD_EXPIRY must be a whole number, got '1.5'"):
        settings(EXPIRY="1.5")
