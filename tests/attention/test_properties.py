"""What holds for every attention, whatever the engine: hidden values, empty rows, order, layout."""

from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import glasshead as gh
from cases import NORMALIZERS, cases
from hypothesis_profiles import examples

ENGINES = st.sampled_from(["reference", "auto"])
DOUBLE = cases(dtypes=(torch.float64,))


def context_and_gradients(attention, inputs, call):
    inputs = [x.detach().clone().requires_grad_() for x in inputs]
    context = attention(*inputs, **call)
    context.sum().backward()
    return context.detach(), [x.grad for x in inputs]


@given(
    DOUBLE,
    ENGINES,
    st.sampled_from(NORMALIZERS),
    st.sampled_from([torch.nan, torch.inf, 7.0, 1e300]),
)
@examples(200)
def test_keys_hidden_from_all_queries_may_hold_anything(case, engine, normalizer, anything):
    query, key, value = case.inputs()
    hidden = ~case.visible().any(-2).any(-2)[..., None, :, None]
    spoiled = [query, key.masked_fill(hidden, anything), value.masked_fill(hidden, anything)]
    attention = gh.Attention(normalizer=normalizer(), engine=engine)
    expected, gradients = context_and_gradients(attention, (query, key, value), case.call())
    context, found = context_and_gradients(attention, spoiled, case.call())
    assert torch.equal(context, expected)
    assert context.isfinite().all()
    for gradient, clean in zip(found, gradients, strict=True):
        assert torch.equal(gradient, clean)
    assert not found[1].masked_select(hidden.expand_as(key)).any()
    assert not found[2].masked_select(hidden.expand_as(value)).any()


@given(DOUBLE, ENGINES, st.data())
@examples(200)
def test_a_finite_change_to_a_hidden_key_changes_nothing(case, engine, data):
    query, key, value = case.inputs()
    place = data.draw(st.integers(0, case.keys - 1))
    blind = ~case.visible()[..., place]
    assume(blind.any())
    attention = gh.Attention(engine=engine)
    before = attention(query, key, value, **case.call())
    key[..., place, :] += 100.0
    value[..., place, :] -= 1000.0
    after = attention(query, key, value, **case.call())
    torch.testing.assert_close(after[blind], before[blind], rtol=1e-12, atol=1e-12)


@given(DOUBLE, ENGINES, st.sampled_from(NORMALIZERS))
@examples(200)
def test_empty_rows_are_zero_in_value_and_gradient(case, engine, normalizer):
    hide = gh.dense(torch.arange(case.queries)[:, None] % 2 == 1)
    case = replace(case, mask=hide if case.mask is None else case.mask & hide)
    empty = ~case.visible().any(-1)
    query, key, value = case.inputs()
    query = query.masked_fill(empty[..., None], torch.nan)
    attention = gh.Attention(normalizer=normalizer(), engine=engine)
    context, gradients = context_and_gradients(attention, (query, key, value), case.call())
    assert not context[empty].any()
    assert context.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert not gradients[0][empty].any()
    assert not attention.trace(query, key, value, **case.call()).weights[empty].any()


@given(DOUBLE, st.sampled_from(NORMALIZERS))
@examples(200)
def test_weights_are_zero_where_hidden_and_sum_to_one_or_zero(case, normalizer):
    trace = gh.Attention(normalizer=normalizer()).trace(*case.inputs(), **case.call())
    visible = case.visible()
    assert not trace.weights[~visible].any()
    assert (trace.weights >= 0).all()
    total, expected = trace.weights.sum(-1), visible.any(-1).double()
    if normalizer is gh.SoftmaxOne:
        assert (total < 1).all()
    elif normalizer is not gh.Sigmoid:
        torch.testing.assert_close(total, expected, rtol=1e-12, atol=1e-12)


@given(DOUBLE, ENGINES)
@examples(100)
def test_a_batch_row_does_not_depend_on_its_neighbours(case, engine):
    query, key, value = case.inputs()
    attention = gh.Attention(engine=engine)
    before = attention(query, key, value, **case.call())
    others = torch.ones(case.batch, dtype=torch.bool)
    others[(0,) * len(case.batch)] = False
    for tensor in (query, key, value):
        tensor[others] = torch.nan
    after = attention(query, key, value, **case.call())
    assert torch.equal(after[~others], before[~others])


@given(DOUBLE, ENGINES, st.data())
@examples(100)
def test_the_order_of_keys_does_not_matter_and_that_of_queries_carries_over(case, engine, data):
    query, key, value = case.inputs()
    rows = torch.tensor(data.draw(st.permutations(range(case.queries))))
    columns = torch.tensor(data.draw(st.permutations(range(case.keys))))
    visible = case.visible()
    attention = gh.Attention(engine=engine)
    context = attention(query, key, value, mask=visible)
    moved = attention(
        query[..., rows, :],
        key[..., columns, :],
        value[..., columns, :],
        mask=visible[..., rows, :][..., columns],
    )
    torch.testing.assert_close(moved, context[..., rows, :], rtol=1e-11, atol=1e-11)


@given(DOUBLE, ENGINES, st.integers(0, 10))
@examples(100)
def test_causal_attention_never_reads_the_future(case, engine, now):
    query, key, value = case.inputs()
    attention = gh.Attention(mask=gh.causal(offset=0), engine=engine)
    before = attention(query, key, value)
    key[..., now + 1 :, :] += 50.0
    value[..., now + 1 :, :] += 50.0
    after = attention(query, key, value)
    past = slice(0, now + 1)
    torch.testing.assert_close(after[..., past, :], before[..., past, :], rtol=1e-12, atol=1e-12)
    assert not torch.equal(after, before) or now + 1 >= min(case.keys, case.queries)


@given(cases(dtypes=(torch.float64,), batches=st.just((2,))), ENGINES)
@examples(100)
def test_grouped_heads_read_the_head_of_their_group(case, engine):
    query, key, value = case.inputs()
    attention = gh.Attention(engine=engine)
    context = attention(query, key, value, **case.call())
    for head in range(case.heads):
        mask = case.visible()[:, head : head + 1]
        bias = None if case.bias is None else case.bias.expand(mask.shape[0], case.heads, -1, -1)
        alone = attention(
            query[:, head : head + 1],
            key[:, head // case.group, None],
            value[:, head // case.group, None],
            mask=mask,
            bias=None if bias is None else bias[:, head : head + 1],
        )
        torch.testing.assert_close(context[:, head : head + 1], alone, rtol=1e-12, atol=1e-12)


@given(cases(dtypes=(torch.float64,), batches=st.just((3,))), ENGINES)
@examples(50)
def test_inputs_without_heads_are_one_head(case, engine):
    query, key, value = (x[:, :1] for x in case.inputs())
    visible = case.visible()[:, :1]
    attention = gh.Attention(engine=engine)
    context = attention(query, key, value, mask=visible)
    three = attention(query[:, 0], key[:, 0], value[:, 0], mask=visible[:, 0])
    two = attention(query[1, 0], key[1, 0], value[1, 0], mask=visible[1, 0])
    torch.testing.assert_close(three, context[:, 0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(two, context[1, 0], rtol=1e-12, atol=1e-12)


@given(DOUBLE)
@examples(50)
def test_beta_to_infinity_reaches_hard_max(case):
    inputs = case.inputs()
    scores = gh.Attention(score=gh.Dot()).trace(*inputs, **case.call()).masked
    best = scores.topk(min(2, case.keys)).values
    assume(case.bias is None)
    assume(((best[..., 0] - best[..., -1] > 1e-3) | (best[..., -1] == -torch.inf)).all())
    hard = gh.Attention(score=gh.Dot(), normalizer=gh.HardMax()).trace(*inputs, **case.call())
    soft = gh.Attention(score=gh.Dot(beta=1e6)).trace(*inputs, **case.call())
    torch.testing.assert_close(soft.weights, hard.weights)
    assert set(hard.weights.unique().tolist()) <= {0.0, 1.0}


@given(cases(), st.sampled_from(NORMALIZERS), st.sampled_from([None, 1.5]))
@examples(100)
def test_a_trace_is_the_recipe_in_its_order(case, normalizer, softcap):
    query, key, value = case.inputs()
    attention = gh.Attention(normalizer=normalizer(), softcap=softcap, score=gh.Dot(beta=0.3))
    trace = attention.trace(query, key, value, **case.call())
    bias = torch.zeros(()) if case.bias is None else case.bias
    keys = key.repeat_interleave(case.group, -3)
    assert torch.equal(trace.queries, query)
    torch.testing.assert_close(trace.scores, query @ keys.mT)
    torch.testing.assert_close(trace.scaled, 0.3 * trace.scores)
    capped = trace.scaled if softcap is None else softcap * (trace.scaled / softcap).tanh()
    torch.testing.assert_close(trace.capped, capped)
    masked = (trace.capped + bias).masked_fill(~case.visible(), -torch.inf)
    torch.testing.assert_close(trace.masked, masked)
    assert torch.equal(trace.dropped, trace.weights)
    values = value.repeat_interleave(case.group, -3)
    torch.testing.assert_close(trace.context, trace.dropped @ values)
    reference = gh.Attention(
        normalizer=normalizer(), softcap=softcap, score=gh.Dot(beta=0.3), engine="reference"
    )
    assert torch.equal(trace.context, reference(query, key, value, **case.call()))


def test_visible_infinities_are_ordinary_data():
    query, key = torch.ones(1, 2), torch.tensor([[1.0, 0.0], [torch.nan, 0.0]])
    assert gh.Attention()(query, key, torch.ones(2, 3)).isnan().all()


@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("engine", ["reference", "auto"])
@pytest.mark.parametrize(("queries", "keys"), [(0, 3), (3, 0), (0, 0)])
def test_empty_sequences_give_empty_or_zero_contexts(normalizer, engine, queries, keys):
    attention = gh.Attention(normalizer=normalizer(), engine=engine)
    context = attention(torch.ones(queries, 2), torch.ones(keys, 2), torch.ones(keys, 5))
    assert torch.equal(context, torch.zeros(queries, 5))


def test_a_hidden_score_has_no_gradient_whatever_made_it():
    query, key = torch.ones(3, 2, requires_grad=True), torch.ones(5, 2)
    key[3:] = 3e38
    attention = gh.Attention(mask=gh.padding(3), softcap=2.0, score=gh.Dot(beta=2.0))
    attention(query, key.requires_grad_(), torch.randn(5, 7)).sum().backward()
    assert query.grad.isfinite().all()
    assert not key.grad[3:].any()


@pytest.mark.parametrize("engine", ["reference", "auto"])
def test_a_bias_of_another_dtype_does_not_change_that_of_the_context(engine):
    x = torch.randn(3, 2)
    bias = torch.tensor([0.0, torch.finfo(torch.float64).min, 1.0], dtype=torch.float64)
    context = gh.Attention(engine=engine)(x, x, x, bias=bias)
    assert context.dtype == torch.float32
    torch.testing.assert_close(
        context, gh.Attention()(x, x, x, bias=torch.tensor([0.0, -torch.inf, 1.0]))
    )
