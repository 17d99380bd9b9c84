"""Beam search: greedy at width 1, the optimum where nothing falls out, the same in any batch.

Several tokens that end a text, of which the first that comes does.
"""

import math

import pytest
import torch
from decoding_toys import Chain, Fixed, Remembering, best_texts

from glasshead.models.decoding import Beam, Greedy, Sampling, generate, stream

PROMPT = torch.tensor([[0, 3, 1], [2, 2, 4], [1, 0, 0], [4, 4, 2], [3, 1, 3], [0, 0, 0], [2, 1, 0]])


END = 3


# As many texts of 4 tokens as there are, of a vocabulary of 5.
ALL = 5**4


@pytest.mark.parametrize("penalty", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("end", [None, END])
@pytest.mark.parametrize("never", [(), (2, 0)])
def test_a_width_of_one_is_greedy(penalty, end, never):
    for seed in range(5):
        asked = {"max_tokens": 11, "end": end, "never": never}
        greedy_model, beam_model = Remembering(seed=seed), Remembering(seed=seed)
        greedy = generate(greedy_model, PROMPT, Greedy(), **asked)
        beam = Beam(1, penalty)
        found = generate(beam_model, PROMPT, beam, **asked)
        assert found.tokens == greedy.tokens
        assert found.ended == greedy.ended
        assert [best.log_probability for [best] in found.alternatives] == greedy.scores
        lengths = [
            len(tokens) + ended for tokens, ended in zip(found.tokens, found.ended, strict=True)
        ]
        assert found.scores == [
            score / beam.penalty(length)
            for score, length in zip(greedy.scores, lengths, strict=True)
        ]
        # It stops where greedy stops, and moves the cache only where greedy does.
        assert beam_model.fed == greedy_model.fed
        assert beam_model.reordered == greedy_model.reordered


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 4.0])
@pytest.mark.parametrize("end", [None, END])
@pytest.mark.parametrize("never", [(), (1,)])
def test_a_beam_that_nothing_falls_out_of_finds_the_best_of_all_texts(penalty, end, never):
    model, beam = Remembering(seed=6), Beam(ALL, penalty, candidates=7)
    found = generate(model, PROMPT, beam, max_tokens=4, end=end, never=never)
    for prompt, alternatives in zip(PROMPT.tolist(), found.alternatives, strict=True):
        expected = best_texts(model, prompt, beam.penalty, max_tokens=4, end=end, never=never)[:7]
        assert [text.tokens for text in alternatives] == [tokens for tokens, _, _ in expected]
        assert [text.ended for text in alternatives] == [ended for _, _, ended in expected]
        scores = [score for _, score, _ in expected]
        assert [text.score for text in alternatives] == pytest.approx(scores, abs=1e-5)


def test_the_optimum_is_not_always_greedy_and_depends_on_the_penalty():
    texts = [
        generate(Remembering(seed=6), PROMPT, strategy, max_tokens=4, end=END).tokens
        for strategy in (Greedy(), Beam(ALL, 0.0), Beam(ALL, 4.0))
    ]
    assert texts[0] != texts[1] != texts[2] != texts[0]
    assert sum(map(len, texts[1])) < sum(map(len, texts[2]))


@pytest.mark.parametrize("width", [2, 3, 7])
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_scores_are_those_of_the_texts_read_from_scratch(width, penalty):
    model, beam = Remembering(seed=2), Beam(width, penalty, candidates=width)
    found = generate(model, PROMPT, beam, max_tokens=9, end=END)
    for prompt, alternatives in zip(PROMPT.tolist(), found.alternatives, strict=True):
        assert len({tuple(text.tokens) for text in alternatives}) == width
        for text in alternatives:
            chosen = text.tokens + [END] * text.ended
            expected = model.log_probability(prompt, chosen)
            assert text.log_probability == pytest.approx(expected, abs=1e-5)
            assert text.score == text.log_probability / beam.penalty(len(chosen))
        order = [(not text.ended, -text.score) for text in alternatives]
        assert order == sorted(order)


@pytest.mark.parametrize("width", [2, 3, 7])
def test_a_row_is_the_same_alone_and_in_any_batch(width):
    beam = Beam(width, candidates=2)
    whole = generate(Remembering(), PROMPT, beam, max_tokens=13, end=END)
    assert len({len(tokens) for tokens in whole.tokens}) > 2
    for rows in ([0], [5], [6, 2], [3, 1, 4]):
        some = generate(Remembering(), PROMPT[rows], beam, max_tokens=13, end=END)
        assert some.alternatives == [whole.alternatives[row] for row in rows]


def beam_by_hand(model, prompt, beam, *, max_tokens, end):
    """One row, text by text, which goes on until `width` texts have ended, and none is ahead."""
    open_, ended = [([], 0.0)], []
    for _ in range(max_tokens):
        grown = [
            ([*tokens, token], total + step)
            for tokens, total in open_
            for token, step in enumerate(model.log_probabilities([*prompt, *tokens]).tolist())
        ]
        grown.sort(key=lambda text: -text[1])
        ended += [
            (t[:-1], s / beam.penalty(len(t))) for t, s in grown[: beam.width] if t[-1] == end
        ]
        open_ = [(t, s) for t, s in grown if t[-1] != end][: beam.width]
        ended.sort(key=lambda text: -text[1])
        ahead = open_[0][1] / beam.penalty(len(open_[0][0])) if open_ else -math.inf
        if len(ended) >= beam.width and ahead <= ended[beam.candidates - 1][1]:
            break
    cut_off = [] if len(ended) >= beam.width else open_
    return [tokens for tokens, _ in [*ended, *cut_off]][: beam.candidates]


@pytest.mark.parametrize("width", [1, 2, 3, 5])
@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 4.0])
def test_to_stop_early_changes_nothing(width, penalty):
    saved = 0
    for seed in range(4):
        fed = {}
        for candidates in {1, width}:
            beam = Beam(width, penalty, candidates=candidates)
            model = Remembering(seed=seed)
            found = generate(model, PROMPT, beam, max_tokens=11, end=END)
            for prompt, alternatives in zip(PROMPT.tolist(), found.alternatives, strict=True):
                expected = beam_by_hand(model, prompt, beam, max_tokens=11, end=END)
                assert [text.tokens for text in alternatives] == expected
            fed[candidates] = sum(rows for rows, _ in model.fed)
        saved += fed[width] - fed[1]
    # Where a single candidate is wanted less is searched.
    assert (saved > 0) == (width > 1)


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_likely_text_is_not_given_up_for_short_ones_that_ended(penalty):
    # 0 → 1 → 2 → … with 0.93 each, now and then the end, and seldom anything else.
    chain = torch.full((8, 8), 0.02 / 6)
    chain[:, 7] = 0.05
    for token in range(7):
        chain[token, token + 1] = 0.93
    prompt = torch.tensor([[0]])
    found = generate(Chain(chain.tolist()), prompt, Beam(5, penalty), max_tokens=20, end=7)
    assert found.tokens == [[1, 2, 3, 4, 5, 6]]


def test_equals_are_taken_from_the_better_text_and_the_lower_token():
    even = Fixed(torch.zeros(5))
    found = generate(even, PROMPT[:2], Beam(3, candidates=3), max_tokens=2)
    assert [text.tokens for text in found.alternatives[1]] == [[0, 0], [0, 1], [0, 2]]


def test_texts_of_probability_zero_are_none():
    # 0 → 1 or 2, each of which can only end: two texts, whatever the width.
    ends = [0.0, 0.0, 0.0, 1.0]
    chain = Chain([[0.0, 0.25, 0.75, 0.0], ends, ends, ends])
    found = generate(
        chain, torch.tensor([[0], [1]]), Beam(5, 0.0, candidates=5), max_tokens=7, end=3
    )
    assert [[text.tokens for text in row] for row in found.alternatives] == [[[2], [1]], [[]]]
    assert found.ended == [True, True]


def test_the_model_is_never_fed_the_end():
    class Watched(Chain):
        def next(self, tokens):
            assert END not in tokens
            return super().next(tokens)

    # After one token, row 0 has two texts that go on, and row 1 a single one.
    chain = Watched([[0, 0.5, 0.5, 0], [0, 0.5, 0, 0.5], [0, 0, 0.5, 0.5], [1, 0, 0, 0]])
    found = generate(chain, torch.tensor([[0], [1]]), Beam(5), max_tokens=4, end=END)
    assert [len(tokens) for tokens in found.tokens] == [1, 0]


def test_texts_that_ended_come_before_those_cut_off():
    # To go round is likelier than to end.
    chain, prompt = Chain([[0.9, 0.1], [0.5, 0.5]]), torch.tensor([[0]])
    [texts] = generate(chain, prompt, Beam(2, candidates=2), max_tokens=1, end=1).alternatives
    assert [(text.tokens, text.ended) for text in texts] == [([], True), ([0], False)]
    assert texts[0].score < texts[1].score
    # Where the end is not among the likeliest, no text has ended.
    assert generate(chain, prompt, Beam(1), max_tokens=1, end=1).ended == [False]


def test_no_rows_are_no_work():
    model = Remembering()
    assert generate(model, PROMPT[:0], Beam(3), max_tokens=3).alternatives == []
    assert model.fed == []


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_tokens_are_fed_in_the_dtype_of_the_prompt(dtype):
    class Watched(Fixed):
        def next(self, tokens):
            assert tokens.dtype == dtype
            return super().next(tokens)

    found = generate(Watched([0.0, 1.0]), PROMPT.to(dtype), Beam(2), max_tokens=3)
    assert found.tokens == [[1, 1, 1]] * 7


@pytest.mark.parametrize(
    ("settings", "error", "match"),
    [
        ({"width": 0}, ValueError, r"Beam\(width\).*at least 1, got 0\.$"),
        ({"width": 1.5}, TypeError, r"Beam\(width\).*at least 1, got 1\.5\.$"),
        ({"width": 2, "length_penalty": -1}, ValueError, r"from 0 to 10, got -1\.$"),
        ({"width": 2, "length_penalty": 11}, ValueError, r"from 0 to 10, got 11\.$"),
        ({"width": 2, "candidates": 3}, ValueError, "at most width=2, got 3"),
        ({"width": 2, "candidates": 0}, ValueError, r"candidates=….*at least 1, got 0\.$"),
    ],
)
def test_settings_out_of_range_are_refused(settings, error, match):
    with pytest.raises(error, match=match):
        Beam(**settings)


ENDS_PROMPT = torch.tensor([[0, 3, 1], [2, 2, 4], [1, 0, 0], [4, 4, 2], [3, 1, 3]])


@pytest.mark.parametrize("strategy", [Greedy(), Sampling(seed=5)])
def test_a_text_ends_at_the_first_of_its_ends(strategy):
    whole = generate(Remembering(), ENDS_PROMPT, strategy, max_tokens=13).tokens
    found = generate(Remembering(), ENDS_PROMPT, strategy, max_tokens=13, end=[3, 1])
    for tokens, text, ended in zip(whole, found.tokens, found.ended, strict=True):
        first = next((i for i, token in enumerate(tokens) if token in {1, 3}), 13)
        assert text == tokens[:first]
        assert ended == (first < 13)
    assert len({len(text) for text in found.tokens}) > 2
    streamed = stream(Remembering(), ENDS_PROMPT, strategy, max_tokens=13, end=[3, 1])
    every = [token for text in found.tokens for token in text]
    assert sorted(one.token for one in streamed) == sorted(every)


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
@pytest.mark.parametrize("ends", [(3, 1), (0, 2, 4)])
def test_a_beam_that_nothing_falls_out_of_finds_the_best_text(length_penalty, ends):
    beam = Beam(5**4, length_penalty, candidates=7)
    found = generate(Remembering(), ENDS_PROMPT, beam, max_tokens=4, end=ends)
    for prompt, texts in zip(ENDS_PROMPT.tolist(), found.alternatives, strict=True):
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
        ([1, -2], ValueError, r"end must be a whole number of at least 0, got -2\.$"),
        ([1, 5], ValueError, r"end must be within the vocabulary, 0 to 4, got 5\.$"),
        ("eos", TypeError, r"end must be whole numbers.*got str 'eos'\.$"),
    ],
)
def test_ends_that_are_none(end, error, match):
    with pytest.raises(error, match=match):
        generate(Fixed(torch.zeros(5)), ENDS_PROMPT, Greedy(), max_tokens=3, end=end)


def test_logits_that_learn_can_be_decoded():
    class Learning(Fixed):
        def next(self, tokens):
            return self.logits

    steps = Learning(torch.nn.Parameter(torch.tensor([[0.0, 2.0, 1.0]])))
    assert generate(steps, ENDS_PROMPT[:1], Greedy(), max_tokens=2).tokens == [[1, 1]]
