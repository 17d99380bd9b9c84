"""The fused engine agrees with the reference, in value and gradient."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import glasshead as gh
from cases import cases
from hypothesis_profiles import examples

TOLERANCE = {torch.float32: 3e-5, torch.float64: 1e-11, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def value_and_gradients(engine, case, make=gh.Attention):
    """The context, and the gradient of one weighted sum of it for each input."""
    inputs = case.inputs(requires_grad=True)
    bias = None if case.bias is None else case.bias.clone().requires_grad_()
    attention = make(engine=engine)
    context = attention(*inputs, mask=case.mask, bias=bias, offset=case.offset)
    weight = torch.linspace(-1, 1, context.numel(), dtype=torch.float64).view_as(context)
    (context.double() * weight).sum().backward()
    learned = [*inputs, *([] if bias is None else [bias]), *attention.parameters()]
    return context, [x.grad for x in learned]


def assert_engines_agree(case, make=gh.Attention):
    context, gradients = value_and_gradients("reference", case, make)
    fused, fused_gradients = value_and_gradients("fused", case, make)
    tolerance = TOLERANCE[case.dtype]
    torch.testing.assert_close(fused, context, rtol=tolerance, atol=tolerance)
    for found, expected in zip(fused_gradients, gradients, strict=True):
        torch.testing.assert_close(found, expected, rtol=10 * tolerance, atol=10 * tolerance)


@given(cases())
@examples(300)
def test_fused_equals_reference_in_value_and_gradient(case):
    assert_engines_agree(case)


@given(cases(dtypes=(torch.float16, torch.bfloat16)))
@examples(100)
def test_fused_equals_reference_in_half_precision(case):
    assert_engines_agree(case)


@given(cases(), st.sampled_from([gh.Dot, gh.ScaledDot, gh.Cosine]), st.booleans())
@examples(100)
def test_fused_serves_every_inner_product_with_learned_beta(case, score, per_head):
    def make(engine):
        beta = torch.linspace(0.3, 1.7, case.heads) if per_head else torch.tensor(0.7)
        parameter = torch.nn.Parameter(beta.to(case.dtype))
        return gh.Attention(score=score(beta=parameter), engine=engine)

    assert_engines_agree(case, make)


@given(cases(batches=st.sampled_from([(2,), (3,)])))
@examples(100)
def test_fused_serves_rules_of_distance(case):
    def alibi(engine):
        return gh.Attention(bias=gh.ALiBi(case.heads), engine=engine)

    def relative(engine):
        torch.manual_seed(7)
        bias = gh.RelativeBias(case.heads, buckets=8, max_distance=9).to(case.dtype)
        return gh.Attention(bias=bias, engine=engine)

    assert_engines_agree(case, alibi)
    assert_engines_agree(case, relative)


@pytest.mark.parametrize("constant", [-1e9, -3e38, -1e5, -2e3, 1e4])
def test_rows_at_a_finite_constant_have_the_reference_gradients(constant):
    bias = torch.zeros(7, 11)
    bias[3], bias[5], bias[5, 2] = constant, constant, constant / 2
    gradients = {}
    for engine in ("fused", "reference"):
        torch.manual_seed(5)
        leaves = [torch.randn(1, 2, n, 3, requires_grad=True) for n in (7, 11, 11)]
        context = gh.Attention(engine=engine)(*leaves, bias=bias)
        upstream = torch.linspace(-1, 1, context.numel()).view_as(context)
        gradients[engine] = torch.autograd.grad(context, leaves, upstream)
    for found, expected in zip(gradients["fused"], gradients["reference"], strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (5, 7), (7, 5), (1, 7), (7, 1)])
@pytest.mark.parametrize("offset", [None, 0, 2, -2])
def test_causal_agrees_for_every_alignment(queries, keys, offset):
    query, key, value = torch.randn(queries, 3), torch.randn(keys, 3), torch.randn(keys, 2)
    found, expected = (
        gh.Attention(mask=gh.causal(), engine=engine)(query, key, value, offset=offset)
        for engine in ("fused", "reference")
    )
    torch.testing.assert_close(found, expected)


def seen_by_sdpa(monkeypatch, attention, *inputs, **call):
    """The keyword arguments that SDPA is called with."""
    seen = {}
    original = torch.nn.functional.scaled_dot_product_attention

    def spy(*arguments, **keywords):
        seen.update(keywords, shapes=[x.shape for x in arguments])
        return original(*arguments, **keywords)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    attention(*inputs, **call)
    return seen


@pytest.mark.parametrize(
    "mask",
    [
        gh.causal(),
        gh.causal(offset=0),
        gh.window(before=None, after=0),
        gh.window(before=12) & gh.causal(),
    ],
    ids=str,
)
def test_a_square_causal_mask_needs_no_tensor(monkeypatch, mask):
    x = torch.randn(2, 3, 11, 5)
    seen = seen_by_sdpa(monkeypatch, gh.Attention(mask=mask), x, x, x)
    assert seen["is_causal"]
    assert seen["attn_mask"] is None


def test_a_decoding_step_needs_no_mask_at_all(monkeypatch):
    query, key = torch.randn(2, 3, 1, 5), torch.randn(2, 3, 11, 5)
    seen = seen_by_sdpa(monkeypatch, gh.Attention(mask=gh.causal()), query, key, key)
    assert not seen["is_causal"]
    assert seen["attn_mask"] is None


@pytest.mark.parametrize("value_dim", [2, 5, 7])
def test_unequal_widths_reach_the_fast_kernel(monkeypatch, value_dim):
    query, value = torch.randn(2, 3, 11, 5), torch.randn(2, 3, 11, value_dim)
    seen = seen_by_sdpa(monkeypatch, gh.Attention(), query, query, value)
    assert {shape[-1] for shape in seen["shapes"]} == {max(5, value_dim)}


@pytest.mark.parametrize("shape", [(11, 5), (3, 11, 5), (2, 3, 5, 11, 7)])
def test_every_layout_reaches_sdpa_on_four_axes(monkeypatch, shape):
    x = torch.randn(shape)
    seen = seen_by_sdpa(monkeypatch, gh.Attention(), x, x, x)
    assert {len(shape) for shape in seen["shapes"]} == {4}


@pytest.mark.parametrize("beta", [0.0, -1.0, -0.3, 2.5])
@pytest.mark.parametrize("score", [gh.Dot, gh.ScaledDot, gh.Cosine])
@pytest.mark.parametrize("mask", [gh.causal(), gh.padding([3, 5]), None], ids=str)
def test_any_beta_agrees(beta, score, mask):
    x = torch.randn(2, 3, 5, 7)
    found, expected = (
        gh.Attention(score=score(beta=beta), mask=mask, engine=engine)(x, x, x)
        for engine in ("fused", "reference")
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("anything", [torch.nan, torch.inf, 1e30])
@pytest.mark.parametrize(
    "mask",
    [
        gh.causal(offset=0),
        gh.padding([5, 5]),
        gh.dense(torch.arange(11) < 5),
        gh.causal(offset=0) & gh.padding([5, 4]),
    ],
    ids=str,
)
def test_what_is_hidden_may_hold_anything(anything, mask):
    query, key, value = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7), torch.randn(2, 3, 11, 7)
    contexts, gradients = [], []
    for filling in (0.0, anything):
        leaves = [query.clone(), key.clone(), value.clone()]
        for leaf in leaves[1:]:
            leaf[..., 5:, :] = filling
        leaves = [leaf.requires_grad_() for leaf in leaves]
        contexts.append(gh.Attention(mask=mask, engine="fused")(*leaves))
        contexts[-1].square().sum().backward()
        gradients.append([leaf.grad for leaf in leaves])
    assert torch.equal(*contexts)
    assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True))
    assert not any(gradient[..., 5:, :].any() for gradient in gradients[1][1:])


def calls_of_sdpa(monkeypatch):
    """Each call of SDPA: the length of its keys, and whether it has a mask tensor."""
    calls, original = [], torch.nn.functional.scaled_dot_product_attention

    def spy(query, key, value, attn_mask=None, **keywords):
        calls.append((len(query), key.shape[-2], attn_mask is not None))
        return original(query, key, value, attn_mask=attn_mask, **keywords)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    return calls


def left_padded(first, keys):
    """A boolean tensor that shows the keys of each batch row from one on."""
    return (torch.arange(keys) >= torch.tensor(first)[:, None])[:, None, None]


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (gh.padding([61, 97, 103]), [(1, 61, False), (1, 97, False), (1, 103, False)]),
        (gh.padding([61, 61, 61]), [(3, 61, False)]),
        (gh.padding(61), [(3, 61, False)]),
        (gh.dense(left_padded([41, 0, 7], 103)), [(1, 62, False), (1, 103, False), (1, 96, False)]),
        (
            gh.padding([61, 97, 103]) & gh.dense(left_padded([5, 0, 11], 103)),
            [(1, 56, False), (1, 97, False), (1, 92, False)],
        ),
        # A gap, a row that sees nothing, and queries that see different keys.
        (gh.dense(torch.arange(103) != 50), [(3, 103, True)]),
        (gh.padding([61, 0, 103]), [(3, 103, True)]),
        (gh.padding([61, 97, 103]) & gh.window(before=50), [(3, 103, True)]),
    ],
    ids=str,
)
@pytest.mark.parametrize("kv_heads", [6, 2])
def test_keys_that_a_whole_batch_row_hides_are_not_given_to_sdpa(
    monkeypatch, mask, expected, kv_heads
):
    """In value and gradient as the reference, whatever is hidden."""
    torch.manual_seed(3)
    query = torch.randn(3, 6, 109, 7)
    key, value = torch.randn(3, kv_heads, 103, 7), torch.randn(3, kv_heads, 103, 5)
    tile = gh.Tile(range(109), range(103))
    seen = gh.Attention().problem(query, key, value, mask).mask.visible(tile)
    hidden = ~seen.broadcast_to(3, 1, 109, 103).any(-2)[..., None]
    given = [query, key.masked_fill(hidden, torch.nan), value.masked_fill(hidden, torch.nan)]
    contexts, gradients, calls = [], [], calls_of_sdpa(monkeypatch)
    for engine in ("fused", "reference"):
        leaves = [x.clone().requires_grad_() for x in given]
        contexts.append(gh.Attention(engine=engine)(*leaves, mask=mask))
        contexts[-1].square().sum().backward()
        gradients.append([leaf.grad for leaf in leaves])
    assert calls == expected
    torch.testing.assert_close(*contexts)
    for found, other in zip(*gradients, strict=True):
        torch.testing.assert_close(found, other)


@pytest.mark.parametrize(
    ("mask", "keys", "given"),
    [
        (gh.window(before=3), 11, True),
        (gh.window(before=3, after=2) & gh.causal(), 11, True),
        (gh.window(before=3), 13, False),
        (gh.window(before=3) & gh.window(before=5, offset=2), 11, False),
        (gh.window(before=3) & gh.dense(torch.arange(11) != 7), 11, False),
    ],
    ids=str,
)
def test_inputs_of_which_every_row_is_read_are_not_copied(monkeypatch, mask, keys, given):
    query, key = torch.randn(2, 3, 11, 5), torch.randn(2, 3, keys, 5)
    calls, original = [], torch.nn.functional.scaled_dot_product_attention

    def spy(*inputs, **keywords):
        calls.extend(x.data_ptr() for x in inputs)
        return original(*inputs, **keywords)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    found = gh.Attention(mask=mask, engine="fused")(query, key, key)
    assert (calls == [x.data_ptr() for x in (query, key, key)]) is given
    expected = gh.Attention(mask=mask, engine="reference")(query, key, key)
    torch.testing.assert_close(found, expected)


def test_small_rows_of_a_batch_share_one_call_of_sdpa(monkeypatch):
    x, calls = torch.randn(3, 2, 11, 5), calls_of_sdpa(monkeypatch)
    gh.Attention(mask=gh.padding([11, 7, 5]))(x, x, x)
    assert calls == [(3, 11, True)]


@pytest.mark.parametrize("offset", [7, torch.tensor([7, 7, 7])])
def test_a_query_into_a_long_cache_reads_what_is_filled(monkeypatch, offset):
    """As in generation with a static cache; 0 · NaN of what is not filled would be NaN."""
    query, key = torch.randn(3, 6, 1, 5), torch.randn(3, 2, 101, 5)
    key[..., 8:, :] = torch.nan
    calls = calls_of_sdpa(monkeypatch)
    found = gh.Attention(mask=gh.causal(), engine="fused")(query, key, key, offset=offset)
    assert calls == [(3, 8, False)]
    expected = gh.Attention()(query, key[..., :8, :], key[..., :8, :])
    torch.testing.assert_close(found, expected)


def test_dropout_and_several_batch_axes_of_padded_rows(monkeypatch):
    x, calls = torch.randn(2, 3, 5, 127, 4), calls_of_sdpa(monkeypatch)
    lengths = torch.tensor([[127, 61, 83], [3, 127, 7]])
    found = gh.Attention(mask=gh.padding(lengths), engine="fused")(x, x, x)
    assert [keys for _, keys, _ in calls] == lengths.flatten().tolist()
    expected = gh.Attention(mask=gh.padding(lengths), engine="reference")(x, x, x)
    torch.testing.assert_close(found, expected)
    dropped = gh.Attention(mask=gh.padding(lengths), engine="fused", dropout=0.5)
    # Weights of ⅓, each dropped or doubled.
    sums = dropped(torch.zeros_like(x), x, torch.ones_like(x))[1, 2].mul(7 / 2)
    assert set(sums.round().flatten().tolist()) == set(range(8))


def half_error(attention, inputs, **call):
    """How far the fused engine is from float64, in halves that hold the same numbers."""
    exact = [x.double() for x in inputs]
    attention.engine = "reference"
    expected = attention(*exact, **call)
    attention.engine = "fused"
    return (attention(*inputs, **call).double() - expected).abs().max().item()


@pytest.mark.parametrize(("dtype", "most"), [(torch.bfloat16, 0.02), (torch.float16, 2e-3)])
def test_half_precision_is_not_rounded_twice(dtype, most):
    x = torch.randn(2, 3, 31, 8).to(dtype)
    inputs = (x, x.flip(-2), x.roll(3, -2))
    per_head = torch.tensor([0.1, 0.9, 3.3])
    assert half_error(gh.Attention(score=gh.Cosine(beta=100.0)), inputs) < most
    assert half_error(gh.Attention(score=gh.Dot(beta=per_head)), inputs) < most
    bias = 300 + torch.linspace(-3, 3, 31)
    assert half_error(gh.Attention(), inputs, bias=bias) < most
    huge = gh.Attention(score=gh.Dot(beta=torch.full((3,), 1e6)))
    assert huge(*inputs).isfinite().all()


def test_a_mask_without_the_first_batch_axis_serves_all_of_it():
    x = torch.randn(2, 3, 5, 7, 4)
    visible, bias = torch.rand(3, 5, 7, 7) < 0.6, torch.randn(3, 1, 7, 7)
    found, expected = (
        gh.Attention(engine=engine)(x, x, x, mask=visible, bias=bias)
        for engine in ("fused", "reference")
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("engine", ["fused", "reference"])
@pytest.mark.parametrize("mask", [None, gh.padding([53])], ids=str)
def test_dropout_drops_at_its_rate_and_keeps_the_mean(engine, mask):
    query, keys = torch.zeros(1, 2, 53, 3), 53 if mask is None else 59
    key, value = torch.zeros(1, 2, keys, 3), torch.eye(keys)[:, :53].expand(1, 2, keys, 53)
    attention = gh.Attention(dropout=0.25, engine=engine, mask=mask)
    dropped = torch.cat([attention(query, key, value) * 53 for _ in range(40)])
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], torch.full_like(dropped[kept], 1 / 0.75))
    assert abs(kept.float().mean().item() - 0.75) < 0.005
    assert torch.equal(attention.eval()(query, key, value), attention(query, key, value))


class HalvedDot(gh.Dot):
    def forward(self, query, key):
        return query @ key.mT / 2


class CubedSoftmax(gh.Softmax):
    def normalize(self, scores):
        return (3 * scores).softmax(-1)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"softcap": 3.0}, "no softcap"),
        ({"score": gh.Gaussian()}, "not an inner product"),
        ({"score": gh.Additive(5)}, "not an inner product"),
        ({"normalizer": gh.SoftmaxOne()}, "not by SoftmaxOne"),
        ({"normalizer": gh.Sparsemax()}, "not by Sparsemax"),
        ({"score": HalvedDot()}, "HalvedDot is not an inner product"),
        ({"normalizer": CubedSoftmax()}, "not by CubedSoftmax"),
    ],
)
def test_what_sdpa_cannot_express_is_refused_with_the_reason(options, reason):
    x = torch.randn(2, 3, 7, 5)
    plan = gh.Attention(**options).plan(x, x, x)
    assert plan.engine == "reference"
    assert reason in plan.refused["fused"]
    with pytest.raises(ValueError, match=f"engine='fused' cannot compute this call: .*{reason}"):
        gh.Attention(**options, engine="fused")(x, x, x)


def test_values_without_a_width_are_served_by_the_reference():
    x = torch.randn(2, 3, 7, 5)
    assert gh.Attention().plan(x, x, x[..., :0]).engine == "reference"
    assert gh.Attention()(x, x, x[..., :0]).shape == (2, 3, 7, 0)
