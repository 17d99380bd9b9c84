"""Greedy and sampled texts: the path they take, the work they do, the rows they leave alone."""

import math
from collections import Counter

import pytest
import torch
from decoding_toys import Fixed, Remembering

from glasshead.models.decoding import Beam, Greedy, Hypothesis, Sampling, generate, stream

PROMPT = torch.tensor([[0, 3, 1], [2, 2, 4], [1, 0, 0], [4, 4, 2], [3, 1, 3], [0, 0, 0], [2, 1, 0]])
STRATEGIES = [Greedy(), Sampling(seed=5), Sampling(0.7, top_k=3, top_p=0.9, seed=11)]


def greedy_by_hand(model, prompt, max_tokens, end):
    tokens = []
    while len(tokens) < max_tokens:
        token = int(model.log_probabilities([*prompt, *tokens]).argmax())
        if token == end:
            return tokens, True
        tokens.append(token)
    return tokens, False


@pytest.mark.parametrize("end", [None, 3])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_greedy_takes_the_likeliest_token_of_each_step(seed, end):
    found = generate(Remembering(seed=seed), PROMPT, Greedy(), max_tokens=11, end=end)
    expected = [greedy_by_hand(Remembering(seed=seed), row, 11, end) for row in PROMPT.tolist()]
    assert list(zip(found.tokens, found.ended, strict=True)) == expected
    assert any(found.ended) == (end is not None)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_scores_are_log_probabilities_of_the_model_itself(strategy):
    model = Remembering(seed=2)
    found = generate(model, PROMPT, strategy, max_tokens=4, end=3, never=[1])
    assert {False, True} == set(found.ended)
    for prompt, [text] in zip(PROMPT.tolist(), found.alternatives, strict=True):
        chosen = text.tokens + [3] * text.ended
        assert text.score == pytest.approx(model.log_probability(prompt, chosen), abs=1e-5)
        assert text.log_probability == text.score
        assert len(chosen) == 4 or text.ended
        assert not {1, 3} & set(text.tokens)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_row_is_the_same_alone_and_in_any_batch(strategy):
    whole = generate(Remembering(), PROMPT, strategy, max_tokens=13, end=3)
    assert len({len(tokens) for tokens in whole.tokens}) > 2
    for rows in ([0], [5], [6, 2], [3, 1, 4]):
        some = generate(Remembering(), PROMPT[rows], strategy, max_tokens=13, end=3, rows=rows)
        assert some.alternatives == [whole.alternatives[row] for row in rows]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_row_that_ended_is_no_more_work(strategy):
    model = Remembering()
    found = generate(model, PROMPT, strategy, max_tokens=13, end=3)
    # The end is chosen and not fed, and so is the last token of a text that is cut off.
    steps = [
        len(tokens) - (not ended) for tokens, ended in zip(found.tokens, found.ended, strict=True)
    ]
    expected = [sum(step >= turn for step in steps) for turn in range(1, max(steps) + 1)]
    assert model.fed == [(7, 3), *((rows, 1) for rows in expected)]


def test_nothing_is_reordered_while_no_row_ends():
    model = Remembering()
    generate(model, PROMPT, Greedy(), max_tokens=13)
    assert model.reordered == 0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_stream_is_what_is_generated(strategy):
    asked = {"max_tokens": 9, "end": 3, "never": (0,)}
    found = generate(Remembering(), PROMPT, strategy, **asked)
    tokens, sums = [[] for _ in PROMPT], [0.0 for _ in PROMPT]
    turns = []
    for chosen in stream(Remembering(), PROMPT, strategy, **asked):
        turns.append((len(tokens[chosen.row]), chosen.row))
        tokens[chosen.row].append(chosen.token)
        sums[chosen.row] += chosen.log_probability
    assert tokens == found.tokens
    assert turns == sorted(turns)
    for row, ended in enumerate(found.ended):
        assert ended == (sums[row] > found.scores[row])


def test_a_stream_works_only_when_asked():
    model = Remembering()
    tokens = stream(model, PROMPT[:1], Greedy(), max_tokens=9)
    assert model.fed == []
    next(tokens)
    assert model.fed == [(1, 3)]
    next(tokens)
    assert model.fed == [(1, 3), (1, 1)]


@pytest.mark.parametrize("strategy", [*STRATEGIES, Beam(3)])
def test_no_gradient_is_kept(strategy):
    class Watched(Fixed):
        def next(self, tokens):
            assert not torch.is_grad_enabled()
            return super().next(tokens)

    found = generate(Watched([0.0, 1.0]), PROMPT, strategy, max_tokens=3)
    assert [len(tokens) for tokens in found.tokens] == [3] * 7
    assert torch.is_grad_enabled()


def test_a_stream_leaves_the_gradient_mode_of_its_reader_alone():
    model = Remembering(table=torch.randn(101, 5, requires_grad=True))
    for _ in stream(model, PROMPT, Greedy(), max_tokens=3):
        assert torch.is_grad_enabled()


def test_equally_likely_tokens_are_taken_from_the_lower():
    found = generate(Fixed([1.0, 2.0, 0.0, 2.0]), PROMPT, Greedy(), max_tokens=1)
    assert found.tokens == [[1]] * 7


def test_no_rows_are_no_work():
    model = Remembering()
    assert generate(model, PROMPT[:0], Greedy(), max_tokens=3).alternatives == []
    assert model.fed == []


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_tokens_are_fed_in_the_dtype_of_the_prompt(dtype):
    class Watched(Fixed):
        def next(self, tokens):
            assert tokens.dtype == dtype
            return super().next(tokens)

    found = generate(Watched([0.0, 1.0]), PROMPT.to(dtype), Greedy(), max_tokens=3)
    assert found.tokens == [[1, 1, 1]] * 7


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_scores_are_exact_in_any_dtype_of_logits(dtype):
    # 0 and a half are exact in each.
    logits = torch.tensor([0.0, 0.0, 0.5]).to(dtype)
    found = generate(Fixed(logits), PROMPT[:1], Greedy(), max_tokens=5)
    [[text]] = found.alternatives
    expected = 5 * (0.5 - math.log(2 + math.exp(0.5)))
    assert text == Hypothesis([2] * 5, text.score, text.score, ended=False)
    assert text.score == pytest.approx(expected, abs=1e-6)


def test_a_seed_is_a_text_and_another_seed_another():
    texts = [
        generate(Fixed(torch.zeros(29)), PROMPT, Sampling(seed=seed), max_tokens=17).tokens
        for seed in (3, 3, 4)
    ]
    assert texts[0] == texts[1]
    # No row of one is a row of the other, as it would be were seed and row but added.
    assert not {tuple(row) for row in texts[0]} & {tuple(row) for row in texts[2]}
    assert len({tuple(row) for row in texts[0]}) == 7


def test_without_a_seed_torch_draws_one():
    def text():
        return generate(Fixed(torch.zeros(29)), PROMPT, Sampling(), max_tokens=17).tokens

    torch.manual_seed(1)
    first, second = text(), text()
    torch.manual_seed(1)
    assert text() == first
    assert second != first


def test_tokens_are_as_frequent_as_they_are_likely():
    weights = torch.tensor([5.0, 1.0, 0.0, 2.0, 8.0, 3.0, 1.0])
    draws = 4001
    prompt = torch.zeros(draws, 1, dtype=torch.long)
    found = generate(Fixed(weights.log()), prompt, Sampling(seed=7), max_tokens=2)
    for place in range(2):
        counts = Counter(tokens[place] for tokens in found.tokens)
        assert counts[2] == 0
        expected = {t: draws * float(w) / 20 for t, w in enumerate(weights) if w}
        chi_square = sum((counts[t] - e) ** 2 / e for t, e in expected.items())
        # The 99.9th percentile for 5 degrees of freedom; 0.1% bias on each token would be beyond.
        assert chi_square < 20.5
    # The two draws of a row know nothing of each other.
    pairs = Counter(tuple(tokens) for tokens in found.tokens)
    positive = [t for t, w in enumerate(weights) if w]
    chi_square = sum(
        (pairs[a, b] - e) ** 2 / e
        for a in positive
        for b in positive
        for e in [draws * float(weights[a] * weights[b]) / 400]
    )
    # The 99.9th percentile for 35 degrees of freedom.
    assert chi_square < 66.6
