"""Normalizers: hand-computed weights and gradients."""

import math

import pytest
import torch

import glasshead as gh
from cases import NORMALIZERS

LN2, LN3 = math.log(2), math.log(3)


@pytest.mark.parametrize(
    ("normalizer", "scores", "weights"),
    [
        (gh.Softmax(), [0.0, LN2, LN3], [1 / 6, 2 / 6, 3 / 6]),
        (gh.SoftmaxOne(), [0.0, LN2, LN3], [1 / 7, 2 / 7, 3 / 7]),
        (gh.SoftmaxOne(sink=LN3), [0.0, LN2], [1 / 6, 2 / 6]),
        (gh.HardMax(), [0.0, 2.0, 2.0], [0.0, 1.0, 0.0]),
        (gh.Sparsemax(), [1.0, 0.6, -0.2], [0.7, 0.3, 0.0]),
        (gh.Sparsemax(), [5.0, 0.0, 0.0], [1.0, 0.0, 0.0]),
        # τ = (1 - √7)/4 solves (1/2 - τ)² + τ² = 1.
        (
            gh.Entmax15(),
            [1.0, 0.0],
            [((1 + math.sqrt(7)) / 4) ** 2, ((math.sqrt(7) - 1) / 4) ** 2],
        ),
        (gh.Entmax15(), [3.0, 0.0], [1.0, 0.0]),
        (gh.Sigmoid(), [0.0, LN3, -LN3], [0.5, 0.75, 0.25]),
    ],
    ids=str,
)
def test_hand_computed_weights(normalizer, scores, weights):
    found = normalizer(torch.tensor([scores], dtype=torch.float64))
    torch.testing.assert_close(found, torch.tensor([weights], dtype=torch.float64))


@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_scores_of_any_size_give_finite_weights(normalizer):
    scores = torch.tensor([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4]])
    assert normalizer()(scores).isfinite().all()


@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_a_visible_nan_is_ordinary_data(normalizer):
    scores = torch.tensor([[0.5, torch.nan, 1.0], [0.5, 0.0, 1.0]])
    weights = normalizer()(scores)
    assert weights[0].isnan().any()
    torch.testing.assert_close(weights[1:], normalizer()(scores[1:]))


@pytest.mark.parametrize("normalizer", [n for n in NORMALIZERS if n is not gh.HardMax])
def test_gradients_are_those_of_the_weights(normalizer):
    scores = torch.randn(3, 7, dtype=torch.float64, requires_grad=True)
    visible = torch.rand(3, 7) < 0.7
    visible[1] = False

    def weights(scores):
        return normalizer()(scores.masked_fill(~visible, -torch.inf), visible)

    assert torch.autograd.gradcheck(weights, (scores,))


def test_hard_max_passes_the_gradient_of_softmax():
    scores = torch.tensor([[0.2, 0.9, -0.3]], requires_grad=True)
    weight = torch.tensor([[1.0, -2.0, 0.5]])
    (gh.HardMax()(scores) * weight).sum().backward()
    straight, scores.grad = scores.grad, None
    (scores.softmax(-1) * weight).sum().backward()
    torch.testing.assert_close(straight, scores.grad)


def test_a_sink_per_head_is_learned():
    sink = torch.nn.Parameter(torch.tensor([0.0, 1.0, -torch.inf]))
    x = torch.randn(2, 3, 5, 7)
    attention = gh.Attention(normalizer=gh.SoftmaxOne(sink=sink))
    trace = attention.trace(x, x, x)
    torch.testing.assert_close(trace.weights[:, 2], gh.Attention().trace(x, x, x).weights[:, 2])
    total = trace.scaled.exp().sum(-1)
    expected = total[:, 1] / (math.e + total[:, 1])
    torch.testing.assert_close(trace.weights[:, 1].sum(-1), expected)
    trace.context.sum().backward()
    assert sink.grad[:2].abs().min() > 0


@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_an_empty_row_has_no_gradient_by_itself(normalizer):
    scores = torch.full((1, 5), -torch.inf, requires_grad=True)
    weights = normalizer()(scores, torch.zeros(1, 5, dtype=torch.bool))
    assert not weights.any()
    weights.sum().backward()
    assert torch.equal(scores.grad, torch.zeros(1, 5))
