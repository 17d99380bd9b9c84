"""What cannot be decoded: one sentence of what was expected, what came, and what to do."""

import math

import pytest
import torch
from decoding_toys import Fixed

from glasshead.models.decoding import Beam, Greedy, Sampling, generate, stream

PROMPT = torch.tensor([[0, 1], [1, 0]])
STRATEGIES = [Greedy(), Sampling(seed=1), Sampling(top_k=2, top_p=0.5), Beam(1), Beam(3)]


class Rows(Fixed):
    """A table of logits, a row for each row that is fed."""

    def next(self, tokens):
        return self.logits


def decode(strategy=None, *, steps=None, prompt=PROMPT, max_tokens=3, **asked):
    steps = Fixed(torch.zeros(5)) if steps is None else steps
    return generate(steps, prompt, strategy or Greedy(), max_tokens=max_tokens, **asked)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("logits", "match"),
    [
        ([1.0, math.nan, 2.0, 0.0, 0.0], "finite or -inf, got NaN. Check the model's weights"),
        (
            [1.0, math.inf, 2.0, 0.0, 0.0],
            r"finite or -inf, got \+inf\. Check the model's weights",
        ),
        ([-math.inf] * 5, r"at least one token a probability above 0.*all -inf\. Check what masks"),
        (
            [0.0, -math.inf, -math.inf, 0.0, -math.inf],
            r"never=\(0, 3\) must allow a token.*Forbid few",
        ),
    ],
)
def test_logits_that_leave_nothing_to_choose(strategy, logits, match):
    # One bad row is enough, after a good one.
    steps = Rows([[0.0] * 5, logits])
    with pytest.raises(ValueError, match=match) as raised:
        decode(strategy, steps=steps, never=(0, 3))
    assert str(raised.value).count(". ") <= 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_logits_of_some_tokens_alone_are_served(strategy):
    found = decode(strategy, steps=Fixed([-math.inf, 1.0, -math.inf, 2.0, 0.0]), never=[3])
    assert {token for row in found.tokens for token in row} <= {1, 4}
    assert all(math.isfinite(score) for score in found.scores)


@pytest.mark.parametrize(
    ("asked", "error", "match"),
    [
        ({"prompt": [[0, 1]]}, TypeError, r"prompt must be a torch\.Tensor.*got list\. Convert it"),
        ({"prompt": PROMPT.float()}, TypeError, r"int64 or int32, got torch\.float32\. Convert"),
        ({"prompt": PROMPT[0]}, ValueError, r"\[rows, length\].*got shape \[2\]\. Begin"),
        (
            {"prompt": PROMPT[:, :0]},
            ValueError,
            r"at least one token a row.*shape \[2, 0\]\. Begin",
        ),
        ({"max_tokens": 0}, ValueError, r"max_tokens must be.*at least 1, got 0\.$"),
        ({"end": -1}, ValueError, r"end must be a whole number of at least 0, got -1\.$"),
        ({"end": 5}, ValueError, r"end must be within the vocabulary, 0 to 4, got 5\.$"),
        ({"never": [1, 7]}, ValueError, r"never must be within the v.*0 to 4, got 7\.$"),
        ({"never": [-1]}, ValueError, r"never must be a whole number of at least 0, got -1\.$"),
        ({"never": "ab"}, TypeError, r"never must be whole numbers.*got str 'ab'\.$"),
        (
            {"rows": [0]},
            ValueError,
            r"rows must have a number for each of the 2 rows.*got 1\.$",
        ),
        ({"rows": [0, -2]}, ValueError, r"rows must be a whole number of at least 0, got -2\.$"),
        (
            {"steps": torch.nn.Identity()},
            TypeError,
            "steps must be an object with next.*got Identity, which lacks",
        ),
        ({"strategy": "greedy"}, TypeError, r"strategy must be Greedy\(\), .*got str\.$"),
        ({"strategy": Beam}, TypeError, r"an object such as Greedy\(\).*class Beam\. Write Beam"),
    ],
)
def test_arguments_that_do_not_fit(asked, error, match):
    with pytest.raises(error, match=match):
        decode(**asked)


@pytest.mark.parametrize(
    ("logits", "error", "match"),
    [
        (torch.zeros(2, 5).long(), TypeError, r"floating-point tensor, got torch\.int64\.$"),
        (torch.zeros(2, 1, 5), ValueError, r"\[2, vocabulary\] for 2 rows, got.*\[2, 1, 5\]"),
        (torch.zeros(3, 5), ValueError, r"\[2, vocabulary\] for 2 rows, got shape \[3, 5\]"),
        (torch.zeros(2, 0), ValueError, r"\[2, vocabulary\] for 2 rows, got shape \[2, 0\]"),
    ],
)
def test_steps_that_give_no_logits(logits, error, match):
    with pytest.raises(error, match=match):
        decode(steps=Rows(logits))


def test_a_beam_does_not_stream():
    with pytest.raises(ValueError, match=r"token by token.*Beam\(width=3.*text\.$"):
        stream(Fixed(torch.zeros(5)), PROMPT, Beam(3), max_tokens=2)


def test_a_stream_refuses_at_once():
    with pytest.raises(ValueError, match="max_tokens"):
        stream(Fixed(torch.zeros(5)), PROMPT, Greedy(), max_tokens=-1)
