"""What sampling draws from: temperature, top-k and top-p against sets written by hand.

The repetition penalty: as in transformers, in any batch, and in no score.
The largest of each row: those of a stable sort, however many tie.
"""

import math

import pytest
import torch
from decoding_toys import Fixed, Remembering
from transformers import RepetitionPenaltyLogitsProcessor

from glasshead.models.decoding import Greedy, Sampling, generate, stream
from glasshead.models.decoding.generation import requested
from glasshead.models.decoding.strategies import largest, likeliest, penalized

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
        ({"temperature": -0.1}, ValueError, r"temperature=….*at least 0, got -0\.1\.$"),
        ({"temperature": math.nan}, ValueError, r"temperature=….*finite number, got nan\.$"),
        ({"temperature": "hot"}, TypeError, "temperature=….*must be a number, got str 'hot'"),
        ({"top_k": 0}, ValueError, r"top_k=….*whole number of at least 1, got 0\.$"),
        ({"top_k": 2.5}, TypeError, r"top_k=….*whole number of at least 1, got 2\.5\.$"),
        ({"top_p": 0}, ValueError, r"top_p=….*above 0 and at most 1, got 0\.$"),
        ({"top_p": 1.01}, ValueError, r"top_p=….*above 0 and at most 1, got 1\.01\.$"),
        ({"seed": -1}, ValueError, r"seed=….*at least 0, got -1\.$"),
        ({"seed": True}, TypeError, r"seed=….*whole number of at least 0, got True\.$"),
    ],
)
def test_settings_out_of_range_are_refused(settings, error, match):
    with pytest.raises(error, match=match):
        Sampling(**settings)


PROMPT = torch.tensor([[0, 3, 1], [2, 2, 4], [1, 0, 0], [4, 4, 2], [3, 1, 3]])


PENALTIES = [0.5, 1.3, 7.0]


def by_hand(model, prompt, penalty, *, max_tokens, end):
    """Greedy with the processor of transformers, one text at a time."""
    process, tokens = RepetitionPenaltyLogitsProcessor(penalty), []
    while len(tokens) < max_tokens:
        text = [*prompt, *tokens]
        logits = model.table[model._hashed(torch.tensor([text]))]
        token = int(process(torch.tensor([text]), logits).argmax())
        if token == end:
            break
        tokens.append(token)
    return tokens


@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_step_is_that_of_transformers(penalty):
    text, logits = torch.randint(11, (5, 7)), 3 * torch.randn(5, 11)
    logits[0, text[0, 0]], logits[1, text[1, 1]] = 0.0, -torch.inf
    present = torch.zeros(5, 11, dtype=torch.bool).scatter(1, text, True)
    expected = RepetitionPenaltyLogitsProcessor(penalty)(text, logits)
    assert torch.equal(penalized(logits, present, penalty), expected)
    assert not torch.equal(expected, logits)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("end", [None, 3])
def test_texts_are_those_of_transformers_while_rows_leave_the_batch(penalty, end):
    asked = {"max_tokens": 13, "end": end}
    found = generate(Remembering(), PROMPT, Greedy(repetition_penalty=penalty), **asked).tokens
    expected = [by_hand(Remembering(), row, penalty, **asked) for row in PROMPT.tolist()]
    assert found == expected
    assert found != generate(Remembering(), PROMPT, Greedy(), **asked).tokens
    assert (len({len(tokens) for tokens in found}) > 1) == (end is not None)


@pytest.mark.parametrize("penalty", [1e-320, 1e-300, 1e39, 1e308])
def test_a_penalty_that_overflows_leaves_tokens_to_choose(penalty):
    logits = torch.tensor([[0.0, 3.0, -3.0, -torch.inf, 2.0]])
    present = torch.tensor([[True, True, True, True, False]])
    found = penalized(logits, present, penalty)
    assert found.isfinite().tolist() == [[True, True, True, False, True]]
    assert (found[0, 1] > 2) == (penalty < 1)
    assert (found[0, 2] < -3) == (penalty > 1)
    assert found[0, 0] == 0
    for strategy in (Greedy, lambda **asked: Sampling(seed=3, **asked)):
        asked = strategy(repetition_penalty=penalty)
        for rows in ([8.0, 5.0], [-8.0, -5.0]):
            tokens = generate(Fixed(rows), torch.tensor([[0, 1]]), asked, max_tokens=5).tokens
            assert set(tokens[0]) <= {0, 1}


def test_what_is_drawn_is_penalized_before_all_else():
    penalty = {"repetition_penalty": 1.7}
    greedy = generate(Remembering(), PROMPT, Greedy(**penalty), max_tokens=9).tokens
    for strategy in (Sampling(0, **penalty), Sampling(top_k=1, **penalty)):
        assert generate(Remembering(), PROMPT, strategy, max_tokens=9).tokens == greedy
    # Token 0 stands in each prompt, and e^8 to 1 become 1 to 1.
    prompt = torch.zeros(4001, 1, dtype=torch.long)
    strategy = Sampling(seed=3, repetition_penalty=1e9)
    drawn = generate(Fixed([8.0, 0.0]), prompt, strategy, max_tokens=1).tokens
    assert 1900 < sum(token for [token] in drawn) < 2100


def test_scores_stay_those_of_the_model():
    model = Remembering(seed=2)
    found = generate(model, PROMPT, Greedy(repetition_penalty=2.0), max_tokens=5, end=3)
    for prompt, [text] in zip(PROMPT.tolist(), found.alternatives, strict=True):
        chosen = text.tokens + [3] * text.ended
        assert text.score == pytest.approx(model.log_probability(prompt, chosen), abs=1e-5)


def test_padding_repeats_nothing():
    # Token 1 is likeliest; as padding it does not stand in the text, as a token of it it does.
    steps, prompt = Fixed([0.0, 2.0, 1.5]), torch.tensor([[1, 1, 0], [1, 1, 0], [1, 1, 0]])
    strategy = Greedy(repetition_penalty=2.0)
    found = generate(steps, prompt, strategy, max_tokens=1, padding=[2, 1, 0])
    assert found.tokens == [[1], [2], [2]]
    padding = torch.tensor([2, 1, 0])
    streamed = stream(steps, prompt, strategy, max_tokens=1, padding=padding)
    assert [chosen.token for chosen in streamed] == [1, 2, 2]


def test_without_a_penalty_nothing_stands_between():
    request = requested(
        Fixed([0.0, 1.0]), PROMPT, max_tokens=3, end=None, never=(), rows=None, padding=None
    )
    assert Greedy().chooser(request) is likeliest
    assert Sampling(0.0).chooser(request) is likeliest


@pytest.mark.parametrize("kind", [Greedy, Sampling])
@pytest.mark.parametrize(
    ("penalty", "error", "match"),
    [
        (0, ValueError, r"\(repetition_penalty=…\) must be a number above 0, got 0\.$"),
        (-1.2, ValueError, r"\(repetition_penalty=…\) must be a number above 0, got -1\.2\.$"),
        (float("inf"), ValueError, r"\(repetition_penalty=…\) must be a finite number, got inf"),
        ("1.2", TypeError, r"\(repetition_penalty=…\) must be a number, got str '1\.2'\.$"),
    ],
)
def test_a_penalty_out_of_range_is_refused(kind, penalty, error, match):
    with pytest.raises(error, match=kind.__name__ + match):
        kind(repetition_penalty=penalty)


def test_padding_is_a_number_for_each_row():
    with pytest.raises(
        ValueError, match="padding must have a number for each of the 5 rows.*got 2"
    ):
        generate(Fixed([0.0]), PROMPT, Greedy(), max_tokens=1, padding=[0, 1])


@pytest.mark.parametrize("count", [1, 2, 7, 28, 29, 31])
@pytest.mark.parametrize("levels", [1, 2, 5, 1000])
def test_the_largest_are_those_of_a_stable_sort(count, levels):
    values = torch.randint(levels, (13, 29)).float()
    values[3, ::2] = -torch.inf
    found, places = largest(values, count)
    expected = values.sort(dim=-1, descending=True, stable=True)
    assert torch.equal(found, expected.values[:, :count])
    assert torch.equal(places, expected.indices[:, :count])
