"""Scores: hand-computed values, β, and gradients."""

import math

import pytest
import torch

import glasshead as gh

QUERY = torch.tensor([[1.0, 2.0, 2.0]], dtype=torch.float64)
KEYS = torch.tensor([[2.0, 1.0, 2.0], [0.0, -3.0, 4.0]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("score", "raw", "scaled"),
    [
        (gh.Dot(), [8.0, 2.0], [8.0, 2.0]),
        (gh.Dot(beta=0.5), [8.0, 2.0], [4.0, 1.0]),
        (gh.ScaledDot(), [8.0, 2.0], [8 / math.sqrt(3), 2 / math.sqrt(3)]),
        (gh.ScaledDot(beta=2.0), [8.0, 2.0], [16.0, 4.0]),
        (gh.Cosine(beta=3.0), [8 / 9, 2 / 15], [8 / 3, 2 / 5]),
        (gh.Gaussian(beta=0.1), [-2.0, -30.0], [-0.2, -3.0]),
    ],
    ids=str,
)
def test_hand_computed_scores(score, raw, scaled):
    trace = gh.Attention(score=score).trace(QUERY, KEYS, KEYS)
    torch.testing.assert_close(trace.scores, torch.tensor([raw], dtype=torch.float64))
    torch.testing.assert_close(trace.scaled, torch.tensor([scaled], dtype=torch.float64))


def test_additive_is_bahdanaus_formula():
    score = gh.Additive(dim=3, hidden=2).double()
    weights = score.W_query.weight @ QUERY[0], score.W_key.weight @ KEYS[1]
    expected = (score.v * torch.tanh(weights[0] + weights[1])).sum()
    torch.testing.assert_close(score(QUERY, KEYS)[0, 1], expected)
    gh.Attention(score=score)(QUERY, KEYS, KEYS).sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in score.parameters())


def test_gaussian_keeps_its_digits_far_from_the_origin():
    far = torch.full((1, 3), 1e4)
    near = far + torch.tensor([[0.25, 0.0, 0.0], [0.5, 0.0, 0.0]])
    torch.testing.assert_close(gh.Gaussian()(far, near), torch.tensor([[-0.0625, -0.25]]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_vector_of_zeros_has_cosine_zero(dtype):
    zeros = torch.zeros(1, 3, dtype=dtype)
    assert gh.Cosine()(zeros, KEYS.to(dtype)).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("score", [gh.ScaledDot, gh.Dot, gh.Cosine, gh.Gaussian])
@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_beta_per_head_is_learned(score, engine):
    beta = torch.nn.Parameter(torch.tensor([0.5, 1.5, 0.0]))
    x = torch.randn(2, 3, 5, 7)
    attention = gh.Attention(score=score(beta=beta), engine=engine)
    assert [name for name, _ in attention.named_parameters()] == ["score.beta"]
    context = attention(x, x, x)
    torch.testing.assert_close(context[:, 2], x[:, 2].mean(-2, keepdim=True).expand(2, 5, 7))
    context.square().sum().backward()
    step = 1e-3
    for head in range(3):
        sides = []
        for sign in (1, -1):
            moved = beta.detach().double()
            moved[head] += sign * step
            y = x.double()
            sides.append(gh.Attention(score=score(beta=moved))(y, y, y).square().sum())
        slope = (sides[0] - sides[1]) / (2 * step)
        torch.testing.assert_close(beta.grad[head].double(), slope, rtol=1e-3, atol=1e-4)


def test_a_plain_tensor_moves_and_saves_but_does_not_learn():
    attention = gh.Attention(score=gh.Dot(beta=torch.ones(3)))
    assert list(attention.state_dict()) == ["score.beta"]
    assert not list(attention.parameters())
