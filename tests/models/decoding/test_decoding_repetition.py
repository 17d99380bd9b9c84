"""The repetition penalty: as in transformers, in any batch, and in no score."""

import pytest
import torch
from decoding_toys import Fixed, Remembering
from transformers import RepetitionPenaltyLogitsProcessor

from glasshead.models.decoding import Greedy, Sampling, generate, stream
from glasshead.models.decoding.generation import requested
from glasshead.models.decoding.strategies import likeliest, penalized

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
        (0, ValueError, r"\(repetition_penalty=…\) takes a number above 0, and got 0\.$"),
        (-1.2, ValueError, r"\(repetition_penalty=…\) takes a number above 0, and got -1\.2\.$"),
        (float("inf"), ValueError, r"\(repetition_penalty=…\) takes a finite number, and got inf"),
        ("1.2", TypeError, r"\(repetition_penalty=…\) takes a number, and got str '1\.2'\.$"),
    ],
)
def test_a_penalty_out_of_range_is_refused(kind, penalty, error, match):
    with pytest.raises(error, match=kind.__name__ + match):
        kind(repetition_penalty=penalty)


def test_padding_is_a_number_for_each_row():
    with pytest.raises(ValueError, match=r"padding takes a number for each of the 5 rows.*got 2"):
        generate(Fixed([0.0]), PROMPT, Greedy(), max_tokens=1, padding=[0, 1])
