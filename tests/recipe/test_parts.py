"""Biases: hand-computed values.

Normalizers: hand-computed weights and gradients.
Scores: hand-computed values, β, and gradients.
"""

import math

import pytest
import torch

import glasshead as gh
from cases import NORMALIZERS


def test_alibi_falls_with_the_distance_on_both_sides():
    values = gh.ALiBi(2)(gh.Tile(range(2), range(3), offset=1))
    distances = torch.tensor([[1.0, 0.0, 1.0], [2.0, 1.0, 0.0]])
    torch.testing.assert_close(values[0], -distances / 16)
    torch.testing.assert_close(values[1], -distances / 256)


def test_alibi_slopes_of_heads_that_are_no_power_of_two():
    expected = [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3]
    torch.testing.assert_close(gh.ALiBi(6).slopes, torch.tensor(expected).double())


def test_relative_buckets_are_exact_when_near_and_widen_when_far():
    bias = gh.RelativeBias(heads=1, buckets=8, max_distance=16)
    before = bias.bucket(torch.tensor([0, 1, 2, 3, 5, 6, 15, 16, 99]))
    assert before.tolist() == [0, 1, 2, 2, 2, 3, 3, 3, 3]
    after = bias.bucket(-torch.tensor([1, 2, 5, 6, 99]))
    assert after.tolist() == [5, 6, 6, 7, 7]


def test_relative_buckets_of_one_direction_see_no_future():
    bias = gh.RelativeBias(heads=1, buckets=4, max_distance=8, bidirectional=False)
    assert bias.bucket(torch.tensor([-9, -1, 0, 1, 2, 3, 4, 7, 8, 50])).tolist() == [
        *(0, 0, 0, 1, 2, 2, 3, 3, 3, 3)
    ]


@pytest.mark.parametrize("offset", [2, torch.tensor([0, 4])])
def test_relative_bias_reads_its_weight_by_bucket_and_head(offset):
    bias = gh.RelativeBias(heads=3, buckets=8, max_distance=16)
    tile = gh.Tile(range(1, 5), range(2, 7), offset=offset)
    values = bias(tile)
    rows = [offset] * 2 if isinstance(offset, int) else offset.tolist()
    for batch, start in enumerate(rows):
        for i in tile.queries:
            for j in tile.keys:
                bucket = bias.bucket(torch.tensor(i + start - j))
                row = values if values.ndim == 3 else values[batch]
                assert torch.equal(row[:, i - 1, j - 2], bias.weight[bucket])


def test_biases_of_the_object_and_of_the_call_are_added():
    x = torch.randn(2, 3, 5, 7)
    own, extra = torch.randn(3, 5, 5), torch.randn(2, 1, 1, 5)
    both = gh.Attention(bias=own)(x, x, x, bias=extra)
    torch.testing.assert_close(both, gh.Attention()(x, x, x, bias=own + extra))
    learned = gh.Attention(bias=torch.nn.Parameter(own))
    assert [name for name, _ in learned.named_parameters()] == ["bias"]


def test_a_rule_of_ones_own_may_hide():
    class Blinkers(gh.Bias):
        hides = True

        def forward(self, tile):
            return torch.where(tile.distance() > 1, -torch.inf, 0.5)

    x = torch.randn(2, 5, 7)
    expected = gh.Attention(mask=gh.window(before=1, after=None))(x, x, x)
    for engine in ("auto", "reference"):
        context = gh.Attention(bias=Blinkers(), engine=engine)(x, x, x)
        torch.testing.assert_close(context, expected)


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
