"""Scalings of rotary angles: which pairs keep their speed, and what is no scaling."""

import pytest
import torch

import glasshead as gh
from glasshead.layers.positions import scaling_of

SPEEDS = 100.0 ** (-torch.arange(7, dtype=torch.float64) / 7)


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ({"fast": 2e300, "slow": 1e300}, 0),
        ({"original_length": 1e300, "fast": 2e-300, "slow": 1e-300}, 7),
    ],
)
def test_yarn_of_any_numbers(values, kept):
    found = scaling_of({"kind": "yarn", "factor": 4.0, **values}).stretched(SPEEDS, 100.0)
    torch.testing.assert_close(found[:kept], SPEEDS[:kept])
    # The first pair begins the ramp, where there is one.
    torch.testing.assert_close(found[max(1, kept) :], SPEEDS[max(1, kept) :] / 4)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"factor": 2.0}, "takes an object with a kind, one of 'linear', 'llama3', 'yarn', and"),
        ({"kind": ["yarn"], "factor": 2.0}, "takes an object with a kind"),
        ("yarn", "takes an object with a kind, .* and got 'yarn'"),
        ({"kind": "linear", "factor": 2.0, "slow": 1.0}, "takes factor, and got 'slow': leave it"),
        ({"kind": "linear"}, "takes factor, which is missing: add it"),
        ({"kind": "linear", "factor": 0.0}, r"LinearScaling\(factor=…\) takes a number above 0"),
        (
            {"kind": "llama3", "factor": 2.0, "low_frequency_factor": 4.0},
            "takes high_frequency_factor above low_frequency_factor, and got 4 and 4: raise high",
        ),
        (
            {"kind": "yarn", "factor": 2.0, "slow": 37.0},
            "YarnScaling takes fast above slow, and got 32 and 37: raise fast",
        ),
    ],
)
def test_what_is_no_scaling(values, said):
    with pytest.raises(ValueError, match=said):
        gh.LanguageModelConfig(vocab_size=7, positions="rotary", rotary_scaling=values)
