"""What sampling draws from: temperature, top-k and top-p against sets written by hand."""

import math

import pytest
import torch
from decoding_toys import Fixed

from glasshead.models.decoding import Greedy, Sampling, generate

# Token 3 is the likeliest, then 1, 4, 0 and 2.
MASSES = torch.tensor([[0.10, 0.25, 0.05, 0.40, 0.20]])


def kept(strategy, masses=MASSES):
    [row] = strategy.probabilities(masses.log())
    assert row.sum().item() == pytest.approx(1)
    return {token: round(mass, 5) for token, mass in enumerate(row.tolist()) if mass}


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (Sampling(), {0: 0.1, 1: 0.25, 2: 0.05, 3: 0.4, 4: 0.2}),
        (Sampling(top_k=1), {3: 1.0}),
        (Sampling(top_k=3), {1: 0.29412, 3: 0.47059, 4: 0.23529}),
        (Sampling(top_k=5), {0: 0.1, 1: 0.25, 2: 0.05, 3: 0.4, 4: 0.2}),
        (Sampling(top_k=999), {0: 0.1, 1: 0.25, 2: 0.05, 3: 0.4, 4: 0.2}),
        (Sampling(top_p=1e-9), {3: 1.0}),
        (Sampling(top_p=0.39), {3: 1.0}),
        (Sampling(top_p=0.41), {1: 0.38462, 3: 0.61538}),
        (Sampling(top_p=0.64), {1: 0.38462, 3: 0.61538}),
        (Sampling(top_p=0.66), {1: 0.29412, 3: 0.47059, 4: 0.23529}),
        (Sampling(top_p=1.0), {0: 0.1, 1: 0.25, 2: 0.05, 3: 0.4, 4: 0.2}),
        # Of the three kept, 0.47 and 0.29 reach 0.7; of all, 0.40 and 0.25 would not.
        (Sampling(top_k=3, top_p=0.7), {1: 0.38462, 3: 0.61538}),
        # Squares: 1, 6.25, 0.25, 16 and 4 hundredths.
        (Sampling(0.5), {0: 0.03636, 1: 0.22727, 2: 0.00909, 3: 0.58182, 4: 0.14545}),
        (Sampling(0.5, top_p=0.6), {1: 0.2809, 3: 0.7191}),
        (Sampling(0.0), {3: 1.0}),
        (Sampling(1e-300), {3: 1.0}),
        (Sampling(1e300), {0: 0.2, 1: 0.2, 2: 0.2, 3: 0.2, 4: 0.2}),
    ],
)
def test_the_kept_tokens_and_their_masses(strategy, expected):
    assert kept(strategy) == pytest.approx(expected, abs=1.1e-5)


@pytest.mark.parametrize("strategy", [Sampling(top_k=3, seed=1), Sampling(top_p=0.8, seed=1)])
def test_only_kept_tokens_are_drawn_and_all_of_them(strategy):
    prompt = torch.zeros(211, 1, dtype=torch.long)
    found = generate(Fixed(MASSES[0].log()), prompt, strategy, max_tokens=1)
    assert {token for [token] in found.tokens} == {1, 3, 4}


def test_mass_that_is_reached_exactly_is_enough_and_the_lower_token_is_kept():
    even = torch.ones(1, 4)
    assert kept(Sampling(top_p=0.5), even) == {0: 0.5, 1: 0.5}
    assert kept(Sampling(top_p=0.51), even) == {0: 0.33333, 1: 0.33333, 2: 0.33333}
    assert kept(Sampling(top_k=3), even) == {0: 0.33333, 1: 0.33333, 2: 0.33333}
    uneven = torch.tensor([[1.0, 2.0, 1.0, 2.0, 1.0, 1.0]])
    assert kept(Sampling(top_k=4), uneven) == {0: 0.16667, 1: 0.33333, 2: 0.16667, 3: 0.33333}


@pytest.mark.parametrize("vocabulary", [101, 128, 131, 503])
@pytest.mark.parametrize("top_p", [0.3, 0.9, 0.9999])
@pytest.mark.parametrize("top_k", [None, 137])
def test_a_mass_may_take_many_tokens(vocabulary, top_p, top_k):
    # The second row is far flatter: it takes some hundred tokens where the first takes a few.
    logits = torch.randn(2, vocabulary, dtype=torch.float64) * torch.tensor([[5.0], [0.1]])
    found = Sampling(top_k=top_k, top_p=top_p).probabilities(logits)
    for row, all_found in zip(logits.softmax(-1), found, strict=True):
        order = row.argsort(descending=True).tolist()[:top_k]
        whole, expected, mass = sum(row[order].tolist()), [], 0.0
        while mass < top_p * whole:
            expected.append(order[len(expected)])
            mass += row[expected[-1]].item()
        assert all_found.nonzero().flatten().tolist() == sorted(expected)
        torch.testing.assert_close(all_found[expected], row[expected] / mass)


@pytest.mark.parametrize("strategy", [Sampling(), Sampling(top_k=3), Sampling(top_p=0.9)])
def test_what_cannot_be_is_not_drawn(strategy):
    masses = torch.tensor([[0.0, 0.6, 0.0, 0.4]])
    expected = {1: 0.6, 3: 0.4}
    assert kept(strategy, masses) == pytest.approx(expected)


def test_no_temperature_is_greedy():
    logits = torch.tensor([1.0, 2.0, 0.0, 2.0])
    prompt = torch.zeros(13, 1, dtype=torch.long)
    texts = [
        generate(Fixed(logits), prompt, strategy, max_tokens=3)
        for strategy in (Greedy(), Sampling(0.0, seed=3), Sampling(1e-6, top_k=1, seed=3))
    ]
    assert texts[0] == texts[1] == texts[2]


@pytest.mark.parametrize(
    ("settings", "error", "match"),
    [
        ({"temperature": -0.1}, ValueError, r"temperature=….*at least 0, and got -0\.1\.$"),
        ({"temperature": math.nan}, ValueError, r"temperature=….*finite number, and got nan\.$"),
        ({"temperature": "hot"}, TypeError, r"temperature=….*takes a number, and got str 'hot'"),
        ({"top_k": 0}, ValueError, r"top_k=….*whole number of at least 1, and got 0\.$"),
        ({"top_k": 2.5}, TypeError, r"top_k=….*whole number of at least 1, and got 2\.5\.$"),
        ({"top_p": 0}, ValueError, r"top_p=….*above 0 up to 1, and got 0\.$"),
        ({"top_p": 1.01}, ValueError, r"top_p=….*above 0 up to 1, and got 1\.01\.$"),
        ({"seed": -1}, ValueError, r"seed=….*at least 0, and got -1\.$"),
        ({"seed": True}, TypeError, r"seed=….*whole number of at least 0, and got True\.$"),
    ],
)
def test_settings_out_of_range_are_refused(settings, error, match):
    with pytest.raises(error, match=match):
        Sampling(**settings)
