"""The streaming engine agrees with the reference, in value, gradient and every reduction.

Tolerances: sums of float64 keep 1e-12 of their size, of which distances and diagonals are up to
some dozens. In float32 a score of size s is off by some s · 1e-7, and so is each weight by its
own share of that; half precision rounds the inputs and the context, and nothing between.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import glasshead as gh
from cases import Case, cases
from glasshead.engines import REFERENCE, STREAMING
from glasshead.engines.streaming.kernels.arguments import HalfMatrix, Matrix
from glasshead.engines.streaming.machine_code import kernel
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
from hypothesis_profiles import examples

TOLERANCE = {torch.float32: 3e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 3e-3}
# Lengths around the 8 rows of a tile, the 32 keys of a panel and the 64 queries of a block.
EDGES = st.sampled_from([1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 129, 131])


def problem_of(attention, case, *, requires_grad=False):
    inputs = case.inputs(requires_grad=requires_grad)
    bias = case.bias
    if bias is not None and requires_grad:
        bias = bias.clone().requires_grad_()
    problem = attention.problem(*inputs, case.mask, bias, case.offset)
    return problem, [*inputs, *([] if bias is None else [bias]), *attention.parameters()]


def all_reductions(case):
    generator = torch.Generator().manual_seed(case.seed)
    right = torch.randn(case.keys, 2, generator=generator, dtype=torch.float64)
    right[: case.keys // 2, 1] = 0.0
    left = torch.rand(case.heads, case.queries, 3, generator=generator, dtype=torch.float64)
    left[:, case.queries // 2 :, 0] = 0.0
    return [
        LogSum(),
        Largest(),
        EntropySum(),
        ScoreSum(),
        DistanceSum(),
        TimesKeys(right),
        TimesQueries(left),
        DiagonalSum(),
        LargestWeights(min(3, case.keys)),
        LargestWeights(1),
        BlockSum(min(2, case.queries), min(5, case.keys)),
        BlockSum(case.queries, 1),
    ]


def assert_same(case, make=gh.Attention):
    """The context and all reductions, on both engines."""
    problem, _ = problem_of(make(), case)
    reductions = all_reductions(case)
    assert STREAMING.refusal(problem) is None
    expected = REFERENCE.observe(problem, reductions)
    found = STREAMING.observe(problem, reductions)
    tolerance = TOLERANCE[case.dtype]
    torch.testing.assert_close(found.context, expected.context, rtol=tolerance, atol=tolerance)
    exact = 1e-12 if case.dtype == torch.float64 else 3e-5
    for reduction, ours, theirs in zip(reductions, found.reduced, expected.reduced, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert one.shape == other.shape
            if one.dtype == torch.int64:
                continue
            scale = max(1.0, other.nan_to_num(neginf=0.0).abs().max().item())
            torch.testing.assert_close(
                one,
                other.to(one.dtype),
                rtol=exact,
                atol=exact * scale,
                msg=lambda m, r=reduction: f"{r}: {m}",
            )
    assert_keys_hold_their_weights(problem, found.reduced)


def assert_keys_hold_their_weights(problem, reduced):
    """Where keys are told, the weights beside them are theirs: ties may fall either way."""
    weights = REFERENCE.trace(problem).weights.float()
    weight, key, _ = reduced[1]
    held = weights.gather(-1, key.clamp(min=0)[..., None])[..., 0]
    torch.testing.assert_close(held.where(key >= 0, 0.0), weight.float(), rtol=3e-5, atol=3e-5)
    top, keys = reduced[8]
    held = weights.gather(-1, keys.clamp(min=0)).where(keys >= 0, 0.0)
    torch.testing.assert_close(held, top.float(), rtol=3e-5, atol=3e-5)
    assert ((keys >= 0) == (top > 0)).all()


@given(cases())
@examples(150)
def test_values_and_reductions_equal_the_reference(case):
    assert_same(case)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_number_of_half_precision_is_converted_exactly(dtype):
    # All 2^16 of them: subnormals, infinities and NaN, too; a width of 37 leaves room to fill up.
    bits = torch.arange(2**16 + 28, dtype=torch.int32).to(torch.int16)
    expected = bits.view(dtype).reshape(-1, 37).float().numpy()
    rows = len(expected)
    for step in (37, 41):
        halves = np.zeros((rows, step), np.int16)
        halves[:, :37] = bits.reshape(-1, 37).numpy()
        for across in (37, 64):
            found = np.full(rows * across, 7, np.float32)
            is_bfloat16 = int(dtype == torch.bfloat16)
            kernel("widen", found.dtype)(
                HalfMatrix(halves.reshape(-1), step, 37), rows, across, is_bfloat16, found
            )
            found = found.reshape(rows, across)
            np.testing.assert_array_equal(found[:, :37], expected)
            assert not found[:, 37:].any()


@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_vectors_are_copied_with_zeros_beside_and_after_them(real):
    numbers, found = np.arange(1, 6 * 7 + 1).astype(real), np.full(5 * 11, -1, real)
    kernel("copy_rows", found.dtype)(Matrix(numbers, 7, 3), 2, 4, 11, found)
    expected = np.zeros((5, 11), real)
    expected[:4, :3] = numbers.reshape(6, 7)[2:, :3]
    np.testing.assert_array_equal(found.reshape(5, 11), expected)


@given(cases(dtypes=(torch.float16, torch.bfloat16)))
@examples(60)
def test_half_precision_is_accumulated_in_float32(case):
    assert_same(case)


@given(cases(), EDGES, EDGES, st.sampled_from([torch.float32, torch.float64]))
@examples(60)
def test_lengths_around_the_edges_of_blocks(case, queries, keys, dtype):
    mask = gh.causal() & gh.window(before=40) | gh.prefix(2)
    case = replace(case, queries=queries, keys=keys, mask=mask, bias=None, dtype=dtype, offset=None)
    assert_same(case)


@given(cases(batches=st.sampled_from([(2,), (3,)])), st.floats(0.5, 40))
@examples(60)
def test_rules_of_distance_softcap_and_sinks(case, softcap):
    def make():
        torch.manual_seed(5)
        return gh.Attention(
            bias=gh.RelativeBias(case.heads, buckets=8, max_distance=9).to(case.dtype),
            softcap=softcap,
            normalizer=gh.SoftmaxOne(torch.nn.Parameter(torch.linspace(-2, 2, case.heads))),
        )

    assert_same(case, make)


def gradients(engine, case, make):
    problem, leaves = problem_of(make(), case, requires_grad=True)
    right = torch.linspace(-1, 1, case.keys, dtype=torch.float64)[:, None]
    reductions = [LogSum(), EntropySum(), TimesKeys(right)]
    context, ((lse,), (entropy,), (mass,)) = engine.observe(problem, reductions)
    lse = lse.masked_fill(lse.isneginf(), 0.0)
    loss = sum(
        (
            part.double() * torch.linspace(low, 1, part.numel(), dtype=torch.float64).view_as(part)
        ).sum()
        for low, part in ((-1, context), (0, lse), (-2, entropy), (-1, mass))
    )
    return torch.autograd.grad(loss, leaves, allow_unused=True)


def assert_same_gradients(case, make=gh.Attention):
    tolerance = 10 * TOLERANCE[case.dtype]
    pairs = zip(gradients(STREAMING, case, make), gradients(REFERENCE, case, make), strict=True)
    for found, expected in pairs:
        if expected is None:
            assert found is None
            continue
        scale = max(1.0, expected.abs().max().item() if expected.numel() else 1.0)
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance * scale)


@given(cases())
@examples(100)
def test_gradients_equal_autograd_on_the_reference(case):
    assert_same_gradients(case)


@given(cases(batches=st.sampled_from([(2,), (3,)])), st.sampled_from([None, 3.0]))
@examples(60)
def test_gradients_of_what_a_recipe_learns(case, softcap):
    def make():
        torch.manual_seed(5)
        return gh.Attention(
            score=gh.Cosine(torch.nn.Parameter(torch.linspace(1, 2, case.heads).to(case.dtype))),
            bias=gh.RelativeBias(case.heads, buckets=8, max_distance=9).to(case.dtype),
            softcap=softcap,
            normalizer=gh.SoftmaxOne(
                torch.nn.Parameter(torch.linspace(-2, 2, case.heads).to(case.dtype))
            ),
        )

    assert_same_gradients(case, make)


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("kv_heads", [1, 3])
def test_gradients_over_many_blocks(kv_heads, softcap):
    case = Case((2,), kv_heads, 2, 131, 197, 13, 37, seed=4, mask=gh.causal() & gh.window(77))
    assert_same_gradients(case, lambda: gh.Attention(softcap=softcap))


# Rows of a multiple of 64 scores are laid apart, by a panel.
@pytest.mark.parametrize("keys", [64, 127, 128])
@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("mask", [None, gh.causal() & gh.window(before=77)], ids=str)
def test_gradients_over_whole_panels(keys, softcap, mask):
    def make():
        torch.manual_seed(5)
        bias = gh.RelativeBias(6, buckets=8, max_distance=9).double()
        return gh.Attention(bias=bias, softcap=softcap)

    case = Case((2,), 3, 2, 67, keys, 13, 37, seed=4, mask=mask)
    assert_same_gradients(case, make)


def test_gradients_pass_gradcheck():
    case = Case((1,), 2, 2, 5, 7, 3, 2, seed=1, mask=gh.causal())
    inputs = case.inputs(requires_grad=True)

    def run(*inputs):
        problem = gh.Attention().problem(*inputs, case.mask, None, None)
        context, ((lse,), (entropy,)) = STREAMING.observe(problem, [LogSum(), EntropySum()])
        return context, lse, entropy

    assert torch.autograd.gradcheck(run, inputs)


def both(case, make=gh.Attention):
    problem, _ = problem_of(make(), case)
    reductions = [LogSum(), Largest(), EntropySum()]
    return STREAMING.observe(problem, reductions), REFERENCE.observe(problem, reductions)


@pytest.mark.parametrize("size", [1e4, -1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_huge_scores(size, dtype):
    case = Case((2,), 1, 3, 65, 67, 5, 7, seed=3, mask=gh.causal(), dtype=dtype)
    ours, theirs = both(case, lambda: gh.Attention(score=gh.Dot(beta=size)))
    # A score of 1e4 · 10 in float32 is off by 1e-2, and the weights of near ties with it.
    tolerance = 1e-9 if dtype == torch.float64 else 5e-2
    torch.testing.assert_close(ours.context, theirs.context, rtol=tolerance, atol=tolerance)
    for one, other in zip(ours.reduced, theirs.reduced, strict=True):
        torch.testing.assert_close(one[0], other[0], rtol=tolerance, atol=tolerance)
        assert one[0].isfinite().all()


def test_ties_go_to_the_lower_key():
    query, key = torch.zeros(1, 1, 71, 3), torch.randn(1, 1, 83, 3)
    problem = gh.Attention(mask=gh.causal()).problem(query, key, key, None, None, None)
    _, ((weight, largest, _), (top, keys)) = STREAMING.observe(
        problem, [Largest(), LargestWeights(5)]
    )
    assert (largest == 0).all()
    assert torch.equal(keys, torch.arange(5).expand(1, 1, 71, 5))
    assert torch.equal(weight, top[..., 0])


def test_missing_places_are_weight_0_and_key_minus_1():
    x = torch.randn(1, 1, 5, 3)
    problem = gh.Attention(mask=gh.causal()).problem(x, x, x, None, None, None)
    _, ((top, keys),) = STREAMING.observe(problem, [LargestWeights(4)])
    assert keys[0, 0, 0].tolist() == [0, -1, -1, -1]
    assert top[0, 0, 0].tolist() == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("mask", [gh.padding([0, 67]), gh.causal(-40), gh.window(3, 0, offset=-70)])
def test_queries_that_see_nothing(mask):
    case = Case((2,), 2, 1, 65, 67, 5, 7, seed=3, mask=mask, dtype=torch.float32)
    ours, theirs = both(case)
    torch.testing.assert_close(ours.context, theirs.context)
    empty = ~case.visible().any(-1)
    assert empty.any()
    (lse,), (weight, key, score), (entropy,) = ours.reduced
    assert lse[empty].isneginf().all()
    assert score[empty].isneginf().all()
    assert (key[empty] == -1).all()
    assert (weight[empty] == 0).all()
    assert (entropy[empty] == 0).all()
    assert (ours.context[empty] == 0).all()


@pytest.mark.parametrize("anything", [torch.nan, torch.inf, -torch.inf, 1e30])
@pytest.mark.parametrize(
    "mask",
    [
        gh.padding([5, 5]),
        gh.dense(torch.arange(67) < 5),
        gh.causal(offset=-60),
        ~gh.window(None, None, 0) | gh.prefix(5),
    ],
    ids=str,
)
def test_what_is_hidden_from_all_may_hold_anything(mask, anything):
    case = Case((2,), 2, 1, 65, 67, 5, 7, seed=3, mask=mask, dtype=torch.float32)
    inputs = case.inputs(requires_grad=True)
    seen = case.visible().any(-2).any(1)
    with torch.no_grad():
        spoiled = [x.clone() for x in inputs]
        for tensor in spoiled[1:]:
            tensor.transpose(1, 2)[~seen] = anything
    spoiled = [x.requires_grad_() for x in spoiled]
    results = []
    for some in (inputs, spoiled):
        context = gh.Attention(engine="streaming")(*some, mask=mask)
        results.append((context, *torch.autograd.grad(context.square().sum(), some)))
    for clean, dirty in zip(*results, strict=True):
        assert torch.equal(clean, dirty)


def test_a_visible_nan_is_ordinary_data():
    x = torch.randn(1, 2, 65, 5)
    x[0, 0, 7, 2] = torch.nan
    # As in every library, 0 · NaN spreads it to rows that do not see it.
    found, expected = (
        gh.Attention(mask=gh.causal(), engine=engine)(x, x, x)
        for engine in ("streaming", "reference")
    )
    torch.testing.assert_close(found, expected, equal_nan=True)
    assert found[0, 0, 7:].isnan().all()
    assert found[0, 1].isfinite().all()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_number_of_threads_gives_the_same(threads):
    case = Case((1,), 1, 2, 517, 523, 13, 37, seed=4, mask=gh.causal(), dtype=torch.float32)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        ours, theirs = both(case)
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(ours.context, theirs.context)
    torch.testing.assert_close(ours.reduced[0], theirs.reduced[0])


def test_statistics_do_not_change_a_bit_of_the_context():
    case = Case((2,), 2, 2, 131, 137, 13, 17, seed=9, mask=gh.causal(), dtype=torch.float32)
    problem, _ = problem_of(gh.Attention(), case)
    plain = STREAMING.run(problem)
    assert torch.equal(plain, STREAMING.observe(problem, all_reductions(case)).context)
    assert torch.equal(plain, STREAMING.observe(problem, [LargestWeights(3)]).context)


@pytest.mark.parametrize("part", ["dense", "bias", "rule", "padding", "offset"])
def test_a_mask_that_broadcasts_over_the_first_of_several_batch_axes(part):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 4, 13, 8, dtype=torch.float64)
    visible = torch.rand(3, 4, 13, 13) > 0.3
    given = {
        "dense": {"mask": visible},
        "bias": {"bias": torch.randn(3, 4, 13, 13, dtype=torch.float64)},
        "rule": {"mask": gh.dense(visible) | gh.documents(torch.randint(0, 3, (3, 13)))},
        "padding": {"mask": gh.padding(torch.tensor([5, 13, 9]))},
        "offset": {"mask": gh.causal(offset=torch.tensor([0, 2, 1]))},
    }[part]
    problem = gh.Attention().problem(x, x, x, given.get("mask"), given.get("bias"))
    assert STREAMING.run(problem).allclose(REFERENCE.run(problem), rtol=0, atol=1e-12)


def test_layouts_in_memory_make_no_difference():
    """Queries as `[batch, length, heads, dim]` turned around, and gradients that are expanded."""
    made = [torch.randn(2, 67, 3, 13, requires_grad=True) for _ in range(3)]
    turned = [x.transpose(1, 2) for x in made]
    results = []
    for inputs in (turned, [x.contiguous() for x in turned]):
        context = gh.Attention(mask=gh.causal(), engine="streaming")(*inputs)
        results.append((context, *torch.autograd.grad(context.sum(), made)))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: gh.Attention(score=gh.Gaussian()), "Gaussian is not an inner product"),
        (lambda: gh.Attention(normalizer=gh.Sparsemax()), "Sparsemax are not exponentials"),
        (lambda: gh.Attention(dropout=0.5), "no weights that could be dropped"),
    ],
)
def test_what_it_does_not_serve_is_refused(make, match):
    attention = make()
    attention.engine = "streaming"
    x = torch.zeros(1, 1, 3, 2)
    with pytest.raises(ValueError, match=match):
        attention(x, x, x)


def test_an_error_of_a_mask_is_raised_where_the_call_was_made():
    class Broken(gh.Mask):
        def visible(self, tile):
            if tile.queries.stop > 512:
                raise RuntimeError("asked too much")
            return tile.distance() >= 0

    x = torch.randn(1, 4, 517, 64)
    with pytest.raises(RuntimeError, match="asked too much"):
        gh.Attention(mask=Broken(), engine="streaming")(x, x, x)


def test_a_learned_bias_trains_on_several_threads():
    """Whether gradients are recorded is each thread's own affair."""
    x = torch.randn(1, 4, 700, 64, requires_grad=True)
    found, expected = (
        torch.autograd.grad(
            gh.Attention(bias=gh.ALiBi(4), mask=gh.causal(), engine=engine)(x, x, x).square().sum(),
            x,
        )[0]
        for engine in ("streaming", "reference")
    )
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    learned = gh.RelativeBias(heads=4)
    gh.Attention(bias=learned, engine="streaming")(x, x, x).sum().backward()
    assert learned.weight.grad.isfinite().all()


def test_a_gradient_of_the_gradient_is_refused():
    x = torch.randn(1, 1, 5, 3, requires_grad=True)
    context = gh.Attention(engine="streaming")(x, x, x)
    (gradient,) = torch.autograd.grad(context.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"no gradient of its gradient\. Use"):
        gradient.sum().backward()


# PyTorch's own derivatives forwards are written in what it deprecates.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_a_derivative_forwards_is_refused_and_never_0():
    x = torch.randn(1, 1, 5, 3)
    attention = gh.Attention(engine="streaming")
    with pytest.raises(ValueError, match="no derivative forwards"):
        torch.func.jvp(lambda q: attention(q, x, x), (x,), (x,))
    with pytest.raises(ValueError, match=r"transforms of torch\.func"):
        torch.func.grad(lambda q: attention(q, x, x).sum())(x)


class Near(gh.Bias):
    """A rule of the distance that hides."""

    by_distance = True

    def forward(self, tile):
        far = tile.distance().abs() > 2
        return torch.zeros(far.shape, dtype=tile.dtype).masked_fill(far, -torch.inf)


def test_a_rule_of_distance_that_hides_hides_anything():
    query, key = torch.randn(1, 1, 5, 3), torch.randn(1, 1, 40, 3)
    spoiled = key.clone()
    spoiled[..., 20:, :] = torch.nan
    attention = gh.Attention(bias=Near(), engine="streaming")
    clean, dirty = (attention(query, k, k, offset=0) for k in (key, spoiled))
    assert torch.equal(clean, dirty)
    reference = gh.Attention(bias=Near(), engine="reference")(query, key, key, offset=0)
    torch.testing.assert_close(clean, reference)


@pytest.mark.parametrize("softcap", [1e-30, 1e-3, 0.5, 30.0, 1e3, 1e6, 1e30, 1e300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_softcaps_of_every_size(softcap, dtype):
    case = Case((1,), 2, 1, 33, 35, 5, 7, seed=3, mask=gh.causal(), dtype=dtype)
    ours, theirs = both(case, lambda: gh.Attention(softcap=softcap))
    if softcap > 1e30:
        torch.testing.assert_close(theirs.context, both(case)[1].context)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(ours.context, theirs.context, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(
        ours.reduced[1][2], theirs.reduced[1][2], rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("anything", [torch.nan, torch.inf])
def test_a_score_that_is_no_number_is_told(anything):
    query, key = torch.rand(1, 1, 9, 3) + 0.5, torch.rand(1, 1, 9, 3)
    key[..., 4, :] = anything
    problem = gh.Attention(mask=gh.causal()).problem(query, key, key, None, None, None)
    _, ((weight, place, score),) = STREAMING.observe(problem, [Largest()])
    expected = torch.full_like(score[..., 4:], anything)
    torch.testing.assert_close(score[..., 4:], expected, equal_nan=True)
    assert weight[..., 4:].isnan().all()
    assert (place[..., 4:] == 4).all()
    assert score[..., :4].isfinite().all()


# Seconds, as there are 2^24 keys.
@pytest.mark.slow
def test_keys_are_counted_beyond_what_a_float_counts():
    key = torch.zeros(1, 1, 2**24 + 3, 1)
    key[0, 0, 2**24 + 1] = 1.0
    query = torch.ones(1, 1, 1, 1)
    problem = gh.Attention().problem(query, key, key, None, None, None)
    _, ((_, place, _),) = STREAMING.observe(problem, [Largest()])
    assert place.item() == 2**24 + 1


class Numbers(gh.Mask):
    """A mask that gives no booleans."""

    def visible(self, tile):
        return (tile.distance() >= 0).float()


@pytest.mark.parametrize("engine", ["fused", "streaming", "reference"])
def test_a_mask_that_gives_no_booleans(engine):
    x = torch.randn(1, 1, 5, 3)
    with pytest.raises(TypeError, match=r"visible\(\) of a mask must return booleans.*float32"):
        gh.Attention(mask=Numbers(), engine=engine)(x, x, x)


def test_weights_keep_what_they_were_made_of():
    query, key = torch.randn(1, 1, 5, 3), torch.randn(1, 1, 7, 3)
    W = gh.Attention().weights(query, key)
    before = W.dense()
    key.mul_(3)
    query.zero_()
    assert torch.equal(W.dense(), before)
