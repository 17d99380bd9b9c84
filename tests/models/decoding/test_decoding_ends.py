"""Several tokens that end a text, of which the first that comes does."""

import pytest
import torch
from decoding_toys import Chain, Fixed, Remembering, best_texts

from glasshead.models.decoding import Beam, Greedy, Sampling, generate, stream

PROMPT = torch.tensor([[0, 3, 1], [2, 2, 4], [1, 0, 0], [4, 4, 2], [3, 1, 3]])


@pytest.mark.parametrize("strategy", [Greedy(), Sampling(seed=5)])
def test_a_text_ends_at_the_first_of_its_ends(strategy):
    whole = generate(Remembering(), PROMPT, strategy, max_tokens=13).tokens
    found = generate(Remembering(), PROMPT, strategy, max_tokens=13, end=[3, 1])
    for tokens, text, ended in zip(whole, found.tokens, found.ended, strict=True):
        first = next((i for i, token in enumerate(tokens) if token in {1, 3}), 13)
        assert text == tokens[:first]
        assert ended == (first < 13)
    assert len({len(text) for text in found.tokens}) > 2
    streamed = stream(Remembering(), PROMPT, strategy, max_tokens=13, end=[3, 1])
    every = [token for text in found.tokens for token in text]
    assert sorted(one.token for one in streamed) == sorted(every)


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
@pytest.mark.parametrize("ends", [(3, 1), (0, 2, 4)])
def test_a_beam_that_nothing_falls_out_of_finds_the_best_text(length_penalty, ends):
    beam = Beam(5**4, length_penalty, candidates=7)
    found = generate(Remembering(), PROMPT, beam, max_tokens=4, end=ends)
    for prompt, texts in zip(PROMPT.tolist(), found.alternatives, strict=True):
        expected = best_texts(Remembering(), prompt, beam.penalty, max_tokens=4, end=ends)[:7]
        assert [(text.tokens, text.ended) for text in texts] == [
            (tokens, ended) for tokens, _, ended in expected
        ]


def test_as_many_texts_stay_open_where_all_ends_are_likelier():
    start, others = [0.4, 0.3, 0.1, 0.1, 0.1, 0.0], [0.0, 0.0, 0.25, 0.25, 0.25, 0.25]
    chain = Chain([start, start, others, others, [0.0, 0.0, 0.0, 0.0, 0.0, 1.0], others])
    # Of three texts two end at once; the last of the three that stay open, 4, is the best later.
    found = generate(
        chain, torch.tensor([[0]]), Beam(3, candidates=3), max_tokens=2, end=[0, 1]
    ).alternatives
    assert [(text.tokens, text.ended) for text in found[0]] == [
        ([], True),
        ([], True),
        ([4, 5], False),
    ]


def test_as_many_texts_stay_open_where_several_end_in_two_ways():
    start, five = [0.0, 0.0, 0.34, 0.33, 0.33, 0.0, 0.0], [0.0, 0.0, 0.2, 0.2, 0.2, 0.2, 0.2]
    after_two = [0.27, 0.27, 0.0, 0.0, 0.0, 0.46, 0.0]
    after_three = [0.45, 0.45, 0.0, 0.0, 0.0, 0.1, 0.0]
    after_four = [0.45, 0.45, 0.0, 0.0, 0.0, 0.0, 0.1]
    six = [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    chain = Chain([start, start, after_two, after_three, after_four, five, six])
    # 2 5 is the likeliest, six texts that end come next, and then those that can still win.
    found = generate(
        chain, torch.tensor([[0]]), Beam(3, candidates=3), max_tokens=3, end=[0, 1]
    ).alternatives
    assert [text.tokens for text in found[0]] == [[3], [3], [4, 6, 2]]


@pytest.mark.parametrize(
    ("end", "error", "match"),
    [
        ([1, -2], ValueError, r"end takes a whole number of at least 0, and got -2\.$"),
        ([1, 5], ValueError, r"end takes tokens of the vocabulary, 0 to 4, and got 5\.$"),
        ("eos", TypeError, r"end takes whole numbers.*got str 'eos'\.$"),
    ],
)
def test_ends_that_are_none(end, error, match):
    with pytest.raises(error, match=match):
        generate(Fixed(torch.zeros(5)), PROMPT, Greedy(), max_tokens=3, end=end)


def test_logits_that_learn_can_be_decoded():
    class Learning(Fixed):
        def next(self, tokens):
            return self.logits

    steps = Learning(torch.nn.Parameter(torch.tensor([[0.0, 2.0, 1.0]])))
    assert generate(steps, PROMPT[:1], Greedy(), max_tokens=2).tokens == [[1, 1]]
