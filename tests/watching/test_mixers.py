"""Implied weights: scans of a recurrence or a convolution are rows, tiles and products of W."""

import itertools

import pytest
import torch

from glasshead.watching.mixers.ledger import Tokens
from glasshead.watching.mixers.recurrence import Band, Recurrence
from glasshead.watching.mixers.weights import ImpliedWeights

BATCH, HEADS, TOKENS, STATE = 2, 3, 7, 5


def numbers(*shape):
    return torch.randn(*shape)


def recurrences():
    torch.manual_seed(0)
    for delta, before, rates in itertools.product((False, True), (False, True), (1, STATE)):
        if delta and before:
            continue
        yield Recurrence(
            query=numbers(BATCH, 1, TOKENS, STATE),
            key=numbers(BATCH, HEADS, TOKENS, STATE) / 2,
            gain=torch.rand(BATCH, HEADS, TOKENS, 1),
            decay=-torch.rand(BATCH, HEADS, TOKENS, rates),
            skip=None if delta else numbers(1, HEADS, TOKENS, 1),
            rate=None if rates > 1 else torch.rand(HEADS, STATE),
            delta=delta,
            before=before,
        )


def bands():
    torch.manual_seed(1)
    yield Band(numbers(HEADS, 4), BATCH, TOKENS)
    yield Band(numbers(HEADS, 11), BATCH, TOKENS)


OPERATORS = [*recurrences(), *bands()]


def dense(operator):
    """The matrix of an operator, by the definition of its state, one pair at a time."""
    matrix = torch.zeros(BATCH, HEADS, TOKENS, TOKENS)
    places = itertools.product(range(BATCH), range(HEADS), range(TOKENS), range(TOKENS))
    for b, h, t, s in places:
        if s > t:
            continue
        if isinstance(operator, Band):
            matrix[b, h, t, s] = operator.taps[h, t - s] if t - s < operator.state else 0.0
            continue
        matrix[b, h, t, s] = pair(operator, b, h, t, s)
    return matrix


def pair(one, b, h, t, s):
    rate = torch.ones(STATE) if one.rate is None else one.rate[h]
    state = one.gain[b, h, s] * one.key[b, h, s]
    skip = 0.0 if one.skip is None or s != t else one.skip[0, h, t, 0]
    last = t - 1 if one.before else t
    if last < s:
        return skip
    for r in range(s + 1, last + 1):
        state = (one.decay[b, h, r] * rate).exp() * state
        if one.delta:
            key = one.key[b, h, r]
            state = state - one.gain[b, h, r] * key * (key @ state)
    return one.query[b, 0, t] @ state + skip


def weights(operator, first=0):
    return ImpliedWeights(lambda: operator, "a test", shape=operator.shape, first=first)


@pytest.fixture(params=range(len(OPERATORS)))
def operator(request):
    return OPERATORS[request.param]


def close(one, other):
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_every_part_of_the_matrix_is_that_of_its_definition(operator):
    W, expected = weights(operator), dense(operator)
    assert W.shape == expected.shape
    close(W.dense(), expected)
    close(W[..., 4, :], expected[..., 4, :])
    close(W[..., 2], expected[..., 2])
    close(W[1, 2, 3:6, 1:3], expected[1, 2, 3:6, 1:3])
    close(W[..., 1:3, 2:7], expected[..., 1:3, 2:7])
    close(W.T.dense(), expected.mT)
    close(W.head(1, 2).dense(), expected[1, 2])
    close(W.pooled(1, 1)[..., 0, 0], expected.sum(-1).mean(-1))
    close(W.pooled(TOKENS, TOKENS), expected)
    assert W.seen(range(2, 4)) == range(4)


def test_products_are_those_of_the_matrix(operator):
    W, expected = weights(operator), dense(operator)
    right, left = numbers(TOKENS, 2), numbers(HEADS, TOKENS, 2)
    close(W @ right, expected @ right)
    close(W.T @ left, expected.mT @ left)
    close(W.head(0, 1) @ right, expected[0, 1] @ right)
    close(W.head(0, 1).T @ right, expected[0, 1].mT @ right)


def test_later_queries_have_the_rows_of_a_longer_text(operator):
    W, expected = weights(operator, first=4), dense(operator)[..., 4:, :]
    assert W.shape == (BATCH, HEADS, 3, TOKENS)
    assert W.offset == 4
    close(W.dense(), expected)
    close(W[..., 1, :], expected[..., 1, :])
    close(W.T @ torch.ones(3, 1), expected.sum(-2, keepdim=True).mT)
    close(W @ torch.ones(TOKENS, 1), expected.sum(-1, keepdim=True))
    chosen = W.selected(torch.tensor([1]), 2)
    close(chosen.dense(), expected[1:, :, :2, :6])


def test_a_state_stands_for_the_tokens_before(operator):
    values, expected = numbers(BATCH, HEADS, TOKENS, 2), dense(operator)
    if isinstance(operator, Band):
        made = operator.scan(values[:, :, 3:], state=values[:, :, :3])
    else:
        state = state_after(operator, values, 3)
        made = operator.scan(values[:, :, 3:], start=3, state=state)
    close(made, (expected @ values)[:, :, 3:])


def state_after(one, values, tokens):
    state = torch.zeros(BATCH, HEADS, STATE, values.shape[-1])
    rate = torch.ones(HEADS, STATE) if one.rate is None else one.rate
    for t in range(tokens):
        state = (one.decay[:, :, t] * rate).exp().unsqueeze(-1) * state
        key, value = one.key[:, :, t].unsqueeze(-1), values[:, :, t].unsqueeze(-2)
        value = value - key.mT @ state if one.delta else value
        state = state + one.gain[:, :, t].unsqueeze(-1) * key * value
    return state


def test_runs_of_a_text_are_joined_by_the_rows_that_they_continue(operator):
    first, later = operator.first(4), operator.first(3)
    rows = torch.tensor([1, 0])
    joined = Tokens(later, Tokens(first), rows)
    assert joined.count == 7
    expected = dense(operator)
    close(weights(joined.operator()).dense()[..., :4, :4], expected[rows][..., :4, :4])


def test_shares_are_magnitudes_divided_by_their_sum(operator):
    W, sizes = weights(operator).shares(), dense(operator).abs()
    sums = sizes.sum(-1, keepdim=True)
    expected = torch.where(sums > 0, sizes / sums, 0.0)
    close(W.dense(), expected)
    close(W[..., 3, 1:4], expected[..., 3, 1:4])
    close(W @ torch.ones(TOKENS, 1), expected.sum(-1, keepdim=True))
    close(W.T @ torch.ones(TOKENS, 1), expected.sum(-2).unsqueeze(-1))
    close(W.head(1, 0).dense(), expected[1, 0])
