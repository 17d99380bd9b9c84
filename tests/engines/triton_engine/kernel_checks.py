"""Checks of the Triton kernel against the reference: on a CUDA device, or else in its interpreter.

`test_triton_kernel.py` runs this file in a process of its own, as Triton decides on import whether
it interprets; by hand: `TRITON_INTERPRET=1 pytest tests/engines/triton_engine/kernel_checks.py`.

The interpreter takes some tenths of a second for each block, so that there are few of them.
"""

import pytest
import torch

import glasshead as gh
from cases import Case
from glasshead.engines import FUSED, REFERENCE, TRITON
from glasshead.engines.streaming import Streaming
from glasshead.statistics.reductions import (
    BlockSum,
    DiagonalSum,
    DistanceSum,
    EntropySum,
    Largest,
    LargestWeights,
    LogSum,
    ScoreSum,
    TimesKeys,
    TimesQueries,
)

# NumPy, which interprets, warns of infinities and NaN in what is hidden.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SINGLE, HALF, BRAIN = torch.float32, torch.float16, torch.bfloat16
EXACT = 3e-5


def problem_of(case, attention=None):
    inputs = [x.to(DEVICE) for x in case.inputs()]
    bias = None if case.bias is None else case.bias.to(DEVICE, case.dtype)
    attention = gh.Attention() if attention is None else attention
    problem = attention.to(DEVICE).problem(*inputs, case.mask, bias, case.offset)
    assert TRITON.refusal(problem.detached()) in (None, "its statistics have no gradient")
    return problem


def of_rows():
    return [LogSum(), Largest(), EntropySum(), ScoreSum(), DistanceSum()]


def all_reductions(problem):
    heads, queries, keys = problem.scores_shape[-3:]
    generator = torch.Generator().manual_seed(5)
    right = torch.randn(keys, 3, generator=generator)
    right[: keys // 2, 1] = 0.0
    left = torch.rand(heads, queries, 2, generator=generator)
    return [
        *of_rows(),
        TimesKeys(right.to(DEVICE)),
        TimesQueries(left.to(DEVICE)),
        LargestWeights(min(3, keys)),
        BlockSum(min(2, queries), min(5, keys)),
    ]


def assert_same(problem, reductions, logsumexp=None, exact=EXACT):
    with torch.no_grad():
        found = TRITON.reduce(problem, reductions, logsumexp)
        expected = REFERENCE.observe(problem, reductions).reduced
        weights = REFERENCE.trace(problem).weights
    for reduction, ours, theirs in zip(reductions, found, expected, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert one.shape == other.shape
            if one.dtype == torch.int64:
                continue
            size = max(1.0, other.nan_to_num(neginf=0.0).abs().max().item())
            torch.testing.assert_close(
                one, other, rtol=exact, atol=exact * size, msg=lambda m, r=reduction: f"{r}: {m}"
            )
        if isinstance(reduction, Largest | LargestWeights):
            # Of ties that round otherwise either key may be named, with its own weight.
            weight, key = ours[:2]
            key = key if isinstance(reduction, LargestWeights) else key[..., None]
            held = weights.gather(-1, key.clamp(min=0)).where(key >= 0, 0.0)
            torch.testing.assert_close(held.reshape(weight.shape), weight, rtol=exact, atol=exact)
            assert ((key >= 0).reshape(weight.shape) == (weight > 0)).all()


# Around the edges of blocks of 64 or 128 queries and 32 or 64 keys.
@pytest.mark.parametrize(
    ("queries", "keys", "dtype"),
    [
        (1, 1, SINGLE),
        (1, 7, HALF),
        (63, 31, SINGLE),
        (64, 64, SINGLE),
        (65, 33, SINGLE),
        (127, 65, HALF),
        (128, 64, HALF),
        (129, 63, BRAIN),
    ],
)
def test_every_reduction_at_the_edges_of_blocks(queries, keys, dtype):
    case = Case((1,), 1, 2, queries, keys, 11, 3, seed=2, mask=gh.causal(), dtype=dtype)
    problem = problem_of(case)
    assert_same(problem, all_reductions(problem))


@pytest.mark.parametrize("dim", [1, 16, 47, 64])
def test_every_width(dim):
    problem = problem_of(Case((1,), 1, 1, 13, 37, dim, 3, seed=3, dtype=SINGLE))
    assert_same(problem, of_rows())


def some_booleans(*shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(7)) < 0.4


DOCUMENTS = torch.tensor([0, 1, 0, 2, 1, 2, 2, 0] * 5)[:37]
MASKS = [
    None,
    gh.causal(offset=0),
    gh.causal(offset=-17),
    gh.causal(torch.tensor([3, -40])),
    gh.window(before=5, after=3),
    gh.padding([0, 23]),
    gh.documents(DOCUMENTS),
    gh.documents(DOCUMENTS.sort().values) & gh.causal(),
    gh.prefix(torch.tensor([2, 19])) | gh.causal(),
    ~gh.window(before=4),
    gh.causal() & gh.padding([37, 11]) & ~gh.documents(DOCUMENTS),
    gh.dense(some_booleans(2, 19, 37)),
    gh.dense(some_booleans(2, 1, 1, 37)),
    gh.dense(some_booleans(19, 1)),
]


@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_every_kind_of_mask_with_hidden_numbers_that_are_none(mask):
    case = Case((2,), 1, 2, 19, 37, 5, 3, seed=4, mask=mask, dtype=SINGLE)
    problem = problem_of(case)
    visible = case.visible().to(DEVICE)
    seen = visible.any(-2).any(1)[:, None, :, None]
    sees = visible.any(-1)[..., None]
    # A key or query that no visible pair reads may hold anything.
    problem.key.masked_fill_(~seen, torch.nan)
    problem.query.masked_fill_(~sees, torch.inf)
    assert_same(problem, all_reductions(problem))


RECIPES = {
    "softcap": lambda: gh.Attention(softcap=2.0),
    "a wide softcap": lambda: gh.Attention(softcap=300.0),
    "a sink": lambda: gh.Attention(normalizer=gh.SoftmaxOne(0.7)),
    "sinks": lambda: gh.Attention(normalizer=gh.SoftmaxOne(torch.linspace(-90, 90, 4))),
    "ALiBi": lambda: gh.Attention(bias=gh.ALiBi(4), mask=gh.causal()),
    "relative": lambda: gh.Attention(bias=gh.RelativeBias(4, buckets=8, max_distance=9)),
    "cosine": lambda: gh.Attention(score=gh.Cosine(torch.linspace(-3, 3, 4))),
    "negative": lambda: gh.Attention(score=gh.Dot(beta=-1.3)),
}


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("offset", [None, torch.tensor([5, -9])], ids=["aligned", "per row"])
def test_recipes_and_offsets_with_grouped_heads(recipe, offset):
    case = Case((2,), 2, 2, 17, 23, 7, 3, seed=5, offset=offset, dtype=SINGLE)
    problem = problem_of(case, RECIPES[recipe]())
    assert_same(problem, [*of_rows(), TimesQueries(torch.rand(17, 1, device=DEVICE))])


@pytest.mark.parametrize("shape", [(23,), (4, 17, 23), (2, 1, 1, 23), (2, 4, 17, 1)], ids=str)
def test_biases_that_broadcast_and_hide(shape):
    bias = torch.randn(shape).masked_fill(some_booleans(*shape), -torch.inf)
    case = Case((2,), 2, 2, 17, 23, 7, 3, seed=6, bias=bias, dtype=SINGLE)
    problem = problem_of(case)
    assert_same(problem, [*of_rows(), TimesQueries(torch.rand(17, 1, device=DEVICE))])


def test_leading_axes_of_several_batches():
    problem = problem_of(Case((2, 3), 1, 2, 5, 11, 3, 2, seed=7, mask=gh.causal(), dtype=SINGLE))
    assert_same(problem, all_reductions(problem))


def test_vectors_at_any_stride():
    query = torch.randn(2, 19, 3, 5, device=DEVICE).transpose(1, 2)
    key = torch.randn(2, 3, 5, 23, device=DEVICE).mT
    problem = gh.Attention(mask=gh.causal()).problem(query, key, key)
    assert_same(problem, of_rows())


@pytest.mark.parametrize("constant", [-1e9, -3e38, -2e3])
def test_rows_that_a_finite_constant_masks(constant):
    bias = torch.zeros(7, 11)
    bias[3], bias[5], bias[5, 2] = constant, constant, constant / 2
    problem = problem_of(Case((1,), 1, 2, 7, 11, 3, 2, seed=8, bias=bias, dtype=SINGLE))
    reductions = [*of_rows(), TimesQueries(torch.ones(7, 1, device=DEVICE))]
    assert_same(problem, reductions)
    # The rounded logsumexp of such a row is no help, and is found out.
    assert_same(problem, reductions, REFERENCE.observe(problem, [LogSum()]).reduced[0][0])


@pytest.mark.parametrize("error", [0.0, 1e-6, 1e-3, -200.0, torch.nan])
def test_a_known_logsumexp_saves_a_pass_and_a_wrong_one_changes_nothing(error):
    case = Case((2,), 1, 2, 19, 37, 5, 3, seed=9, mask=gh.causal(), dtype=SINGLE)
    problem = problem_of(case)
    known = REFERENCE.observe(problem, [LogSum()]).reduced[0][0].clone()
    known[1, 1, 13:17] += error
    assert_same(problem, all_reductions(problem), known)


@pytest.mark.parametrize("nothing", [0.0, torch.inf, -torch.inf])
def test_what_kernels_say_of_rows_that_see_nothing(nothing):
    case = Case((2,), 1, 2, 19, 37, 5, 3, seed=9, mask=gh.padding([0, 23]), dtype=SINGLE)
    problem = problem_of(case)
    known = REFERENCE.observe(problem, [LogSum()]).reduced[0][0]
    assert_same(problem, all_reductions(problem), known.masked_fill(known.isneginf(), nothing))


def test_many_columns_and_maps_take_several_launches():
    problem = problem_of(Case((1,), 2, 1, 13, 17, 3, 2, seed=10, mask=gh.causal(), dtype=SINGLE))
    reductions = [
        TimesKeys(torch.randn(2, 17, 11, device=DEVICE)),
        TimesQueries(torch.randn(2, 13, 19, device=DEVICE)),
        BlockSum(13, 17),
        BlockSum(1, 2),
        BlockSum(3, 1),
    ]
    assert_same(problem, reductions)
    assert_same(problem, reductions, REFERENCE.observe(problem, [LogSum()]).reduced[0][0])


def test_ties_go_to_the_lower_key_and_missing_places_have_none():
    query, key = torch.zeros(1, 1, 7, 3, device=DEVICE), torch.randn(1, 1, 83, 3, device=DEVICE)
    problem = gh.Attention(mask=gh.causal(offset=2)).problem(query, key, key)
    (_, largest, _), (weights, keys) = TRITON.reduce(problem, [Largest(), LargestWeights(5)])
    assert (largest == 0).all()
    assert keys[0, 0, 6].tolist() == [0, 1, 2, 3, 4]
    assert keys[0, 0, 0].tolist() == [0, 1, 2, -1, -1]
    assert weights[0, 0, 0].tolist() == pytest.approx([1 / 3] * 3 + [0, 0])


def test_a_visible_number_that_is_none_spoils_its_own_rows_alone():
    query, key = torch.randn(1, 1, 7, 3, device=DEVICE), torch.randn(1, 1, 7, 3, device=DEVICE)
    key[..., 4, :] = torch.nan
    problem = gh.Attention(mask=gh.causal()).problem(query, key, key)
    (lse,), (weight, at, _), (entropy,) = TRITON.reduce(
        problem, [LogSum(), Largest(), EntropySum()]
    )
    for numbers in (lse, weight, entropy):
        assert numbers[0, 0].isnan().tolist() == [False] * 4 + [True] * 3
    assert at[0, 0, 4:].tolist() == [4, 4, 4]


def test_what_the_kernel_lacks_takes_rows():
    problem = problem_of(Case((1,), 1, 1, 7, 71, 3, 2, seed=11, mask=gh.causal(), dtype=SINGLE))
    reductions = [DiagonalSum(), LogSum(), LargestWeights(67)]
    assert [TRITON.knows(one) for one in reductions] == [False, True, False]
    assert_same(problem, reductions)


STATISTICS = [gh.Entropy(), gh.Received(), gh.MassOn([0]), gh.TopK(3), gh.DistanceHistogram([0, 2])]


@pytest.mark.parametrize("gradients", [False, True])
def test_observe_takes_the_kernel_beside_the_fused_engine(monkeypatch, gradients):
    if DEVICE.type == "cpu":
        monkeypatch.setattr(Streaming, "refusal", lambda *_: "it is not to serve here")
    launched = []
    reduce = type(TRITON).reduce

    def spy(self, problem, reductions, logsumexp=None):
        launched.append(logsumexp)
        return reduce(self, problem, reductions, logsumexp)

    monkeypatch.setattr(type(TRITON), "reduce", spy)
    x = torch.randn(3, 1, 1, 257, 16, device=DEVICE, requires_grad=gradients)
    attention = gh.Attention(mask=gh.causal(), engine="fused")
    seen = attention.observe(*x, STATISTICS)
    trace = gh.Attention(mask=gh.causal()).trace(*x)
    assert len(launched) == 1
    if DEVICE.type == "cpu" or gradients:
        torch.testing.assert_close(launched[0], trace.masked.logsumexp(-1).detach())
    assert torch.equal(seen.context, attention(*x))
    assert seen.context.requires_grad == gradients
    for statistic in STATISTICS:
        expected, found = statistic.of(trace), seen[statistic]
        if isinstance(statistic, gh.TopK):
            expected, found = expected.weights, found.weights
        assert not found.requires_grad
        torch.testing.assert_close(found, expected.detach(), rtol=EXACT, atol=EXACT)


def test_statistics_with_a_gradient_take_rows(monkeypatch):
    if DEVICE.type == "cpu":
        monkeypatch.setattr(Streaming, "refusal", lambda *_: "it is not to serve here")
    x = torch.randn(3, 1, 1, 257, 16, device=DEVICE, requires_grad=True)
    attention = gh.Attention(mask=gh.causal(), engine="fused")
    problem = attention.problem(*x)
    assert TRITON.refusal(problem) == "its statistics have no gradient"
    entropy = attention.observe(*x, [gh.Entropy()], gradient=True).entropy
    (found,) = torch.autograd.grad(entropy.sum(), x)
    trace = attention.trace(*x)
    (expected,) = torch.autograd.grad(gh.Entropy().of(trace).sum(), x)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_products_of_lazy_weights(monkeypatch):
    if DEVICE.type == "cpu":
        monkeypatch.setattr(Streaming, "refusal", lambda *_: "it is not to serve here")
    query, key = torch.randn(1, 2, 97, 8, device=DEVICE), torch.randn(1, 1, 349, 8, device=DEVICE)
    attention = gh.Attention(mask=gh.causal())
    W, P = attention.weights(query, key), attention.trace(query, key, key).weights
    right, left = torch.randn(349, 3, device=DEVICE), torch.randn(97, 1, device=DEVICE)
    for found, expected in (
        (W @ right, P @ right),
        (W.T @ left, P.mT @ left),
        (W[..., 31:67, 5:300], P[..., 31:67, 5:300]),
        (W[..., 96, :], P[..., 96, :]),
        (W.logsumexp, REFERENCE.observe(W._problem, [LogSum()]).reduced[0][0]),
    ):
        torch.testing.assert_close(found, expected, rtol=EXACT, atol=EXACT)


def test_the_fused_engine_is_not_recorded_where_no_kernel_could_use_it(monkeypatch):
    monkeypatch.setattr(type(TRITON), "refusal", lambda *_: "it is not to serve here")
    problem = problem_of_refused()
    (entropy,) = FUSED.observe(problem, [EntropySum()]).reduced[0]
    expected = REFERENCE.observe(problem, [EntropySum()]).reduced[0][0]
    torch.testing.assert_close(entropy, expected, rtol=EXACT, atol=EXACT)


def problem_of_refused():
    x = torch.randn(1, 1, 13, 5, device=DEVICE)
    return gh.Attention(mask=gh.causal()).problem(x, x, x)
