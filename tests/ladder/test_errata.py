"""Each slip that docs/tutorials/errata.md names is one, and what it says instead is so."""

import math

import pytest
import torch
from torch import nn

from glasshead.ladder import (
    HELLO_SHINY_SUN,
    EncoderMultiHeadAttention,
    MultiHeadAttention,
    simple_self_attention,
)

X = torch.tensor(HELLO_SHINY_SUN.embeddings, dtype=torch.float64)


class TestMaskByMultiplying:
    def test_is_nan_below_the_diagonal(self):
        mask = torch.triu(torch.ones(5, 5)) * -torch.inf
        assert torch.equal(mask.isnan(), torch.ones(5, 5).tril(diagonal=-1).bool())

    def test_is_nan_where_a_word_may_see_even_with_diagonal_1(self):
        mask = torch.triu(torch.ones(5, 5), diagonal=1) * -torch.inf
        assert torch.equal(mask.isnan(), torch.ones(5, 5).tril().bool())

    def test_spoils_every_row_but_those_without_a_nan(self):
        mask = torch.triu(torch.ones(5, 5), diagonal=1) * -torch.inf
        assert torch.softmax(torch.zeros(5, 5) + mask, dim=-1).isnan().all()

    def test_filling_with_infinity_first_hides_what_comes_later(self):
        mask = torch.full((5, 5), -torch.inf).triu(diagonal=1)
        weights = torch.softmax(torch.zeros(5, 5) + mask, dim=-1)
        torch.testing.assert_close(weights, torch.ones(5, 5).tril() / torch.arange(1.0, 6)[:, None])


class TestHelloShinySun:
    row = HELLO_SHINY_SUN.tokens.index(HELLO_SHINY_SUN.query)
    printed = torch.tensor(HELLO_SHINY_SUN.printed_terms, dtype=torch.float64)
    exact = torch.softmax(X @ X.T, dim=-1)[row] * X.T

    def test_the_two_terms_are_off_by_three_in_the_fourth_place(self):
        assert self.printed[0, 1].item() == 0.2156
        assert self.printed[1, 2].item() == 0.1972
        assert round(self.exact[0, 1].item(), 4) == 0.2153
        assert round(self.exact[1, 2].item(), 4) == 0.1969

    def test_three_more_differ_by_one_or_two_in_that_place(self):
        apart = ((self.printed - self.exact.round(decimals=4)) * 1e4).round().int()
        assert apart.tolist() == [[0, 3, 0], [0, 1, 3], [0, 2, -1]]

    def test_the_printed_context_is_the_sum_of_the_printed_terms(self):
        assert self.printed.sum(1).tolist() == pytest.approx(HELLO_SHINY_SUN.printed_context)

    def test_the_printed_context_is_too_large_in_its_first_two_places(self):
        printed = torch.tensor(HELLO_SHINY_SUN.printed_context, dtype=torch.float64)
        exact = simple_self_attention(X)[self.row]
        torch.testing.assert_close(exact, self.exact.sum(1))
        assert exact.round(decimals=4).tolist() == [0.3990, 0.3854, 0.8610]
        assert ((printed - exact) > 1e-4).tolist() == [True, True, False]


class TestMaxAlongAnAxis:
    scores = torch.tensor([[0.1, 0.7, 0.2], [0.5, 0.3, 0.4]])

    def test_is_a_pair(self):
        largest, place = torch.max(self.scores, dim=1)
        assert largest.tolist() == pytest.approx([0.7, 0.5])
        assert place.tolist() == [1, 0]

    def test_is_not_a_tensor(self):
        assert not isinstance(torch.max(self.scores, dim=1), torch.Tensor)
        assert torch.equal(torch.max(self.scores, dim=1).values, self.scores.amax(dim=1))
        assert torch.equal(torch.max(self.scores, dim=1).indices, self.scores.argmax(dim=1))


class TestLayersMadeInsideForward:
    class Forgetful(nn.Module):
        def forward(self, x):
            return nn.Linear(3, 2)(x)

    class Remembering(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            return self.layer(x)

    def test_are_new_on_every_call_and_unknown_to_the_optimizer(self):
        module = self.Forgetful()
        assert not torch.equal(module(torch.ones(1, 3)), module(torch.ones(1, 3)))
        with pytest.raises(ValueError, match="empty parameter list"):
            torch.optim.SGD(module.parameters())

    def test_learn_when_made_before(self):
        module = self.Remembering()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        before = module(torch.ones(1, 3)).sum()
        before.backward()
        optimizer.step()
        assert module(torch.ones(1, 3)).sum() < before


class TestSinusoidalPositions:
    d, p = 8, 1

    def position(self, column_of_sine):
        row = torch.full((self.d,), torch.nan)
        for i in range(self.d // 2):
            angle = self.p / 10000 ** (2 * i / self.d)
            row[column_of_sine(i)] = math.sin(angle)
            row[2 * i + 1] = math.cos(angle)
        return row

    def test_as_printed_leave_even_columns_empty(self):
        printed = self.position(lambda _: 2)
        assert printed.isnan().nonzero().flatten().tolist() == [0, 4, 6]

    def test_as_meant_pair_a_sine_with_its_cosine(self):
        meant = self.position(lambda i: 2 * i)
        torch.testing.assert_close(meant[0::2] ** 2 + meant[1::2] ** 2, torch.ones(self.d // 2))


class TestEightDimensionsInThreeHeads:
    def test_do_not_go(self):
        with pytest.raises(ValueError, match="d_out=8 and num_heads=3"):
            MultiHeadAttention(8, 8, 5, 0.0, num_heads=3)
        with pytest.raises(ValueError, match="d_model=8 and num_heads=3"):
            EncoderMultiHeadAttention(8, 3, 0.0)

    def test_two_by_four_is_two_heads_of_four(self):
        assert MultiHeadAttention(8, 8, 5, 0.0, num_heads=2).head_dim == 4
        assert EncoderMultiHeadAttention(8, 2, 0.0).d_k == 4


class TestTheirColumnsAreOurRows:
    X = X.T
    A = torch.softmax(X.T @ X, dim=0)

    def test_their_weights_are_ours_transposed(self):
        rung = EncoderMultiHeadAttention(3, 1, 0.0).double()
        nn.init.eye_(rung.W_q.weight).data.mul_(3**0.5)
        nn.init.eye_(rung.W_k.weight)
        _, ours = rung(*[self.X.T[None]] * 3)
        torch.testing.assert_close(ours[0, 0], self.A.T)

    def test_each_column_of_theirs_sums_to_1(self):
        torch.testing.assert_close(self.A.sum(0), torch.ones(3, dtype=torch.float64))
        assert not torch.allclose(self.A.sum(1), torch.ones(3, dtype=torch.float64))

    def test_their_context_is_ours_transposed(self):
        torch.testing.assert_close((self.X @ self.A).T, simple_self_attention(self.X.T))
