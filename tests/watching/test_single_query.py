"""The short path of single queries, alone and together, gives what the reference gives."""

import math

import pytest
import torch

import glasshead as gh
from glasshead.engines.reference import by_rows
from glasshead.statistics import normalize_statistics
from glasshead.statistics.reductions import StatisticRequest
from glasshead.watching.padding import of_real, without_padding
from glasshead.watching.single_query import QueryBatch, RowRule, single_query

STATISTICS = [
    gh.Entropy(),
    gh.LogSumExp(),
    gh.MaxWeight(),
    gh.ArgMax(),
    gh.MaxScore(),
    gh.MassOn([0, 4, 100]),
    gh.MeanDistance(),
    gh.TopK(3),
    gh.Received(),
    gh.DistanceHistogram([0, 1, 3, math.inf]),
    gh.PooledMap(1, 3),
]
BATCH, HEADS, KEYS, DIM = 2, 6, 11, 5
hidden = (
    torch.arange(KEYS).expand(BATCH, 1, 1, KEYS) % 3 != torch.tensor([0, 1])[:, None, None, None]
)
bias = torch.linspace(-1, 1, KEYS).expand(BATCH, HEADS, 1, KEYS)
RULES = {
    "plain": gh.Attention(),
    "one key": gh.Attention(mask=gh.dense(torch.arange(KEYS) == 7)),
    "no key": gh.Attention(mask=gh.dense(torch.zeros(1, KEYS, dtype=torch.bool))),
    "causal": gh.Attention(mask=gh.causal()),
    "holes": gh.Attention(mask=gh.dense(hidden)),
    "bias": gh.Attention(bias=bias),
    "bias and mask": gh.Attention(bias=bias, mask=gh.dense(hidden)),
    "softcap": gh.Attention(softcap=1.5),
    "beta": gh.Attention(score=gh.ScaledDot(beta=0.3)),
    "dot": gh.Attention(score=gh.Dot()),
    "sink": gh.Attention(normalizer=gh.SoftmaxOne(0.5)),
    "sinks": gh.Attention(normalizer=gh.SoftmaxOne(torch.linspace(-1, 1, HEADS))),
}
OTHERS = {
    "beta of each head": gh.Attention(score=gh.ScaledDot(beta=torch.linspace(0.1, 1, HEADS))),
    "cosine": gh.Attention(score=gh.Cosine()),
    "sigmoid": gh.Attention(normalizer=gh.Sigmoid()),
}


# What PyTorch's kernel would round, or does not know.
NOT_OF_THE_KERNEL = {"bias", "bias and mask", "softcap", "sink", "sinks"}


def inputs(dtype: torch.dtype = torch.float64, kv_heads: int = HEADS, queries: int = 1):
    torch.manual_seed(0)
    query = torch.randn(BATCH, HEADS, queries, DIM, dtype=dtype)
    key, value = torch.randn(2, BATCH, kv_heads, KEYS, DIM, dtype=dtype)
    return 2 * query, key, value


def both(rule: gh.Attention, *given: torch.Tensor):
    """What the short path gives, and what the reference does."""
    problem, statistics = rule.problem(*given), normalize_statistics(STATISTICS)
    request = StatisticRequest(problem, statistics)
    return single_query(problem, statistics), request.finished(by_rows(problem, request.reductions))


def assert_same(found, expected, **tolerance):
    assert list(found) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, **tolerance)


@pytest.mark.parametrize("kv_heads", [HEADS, 2, 1])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_values_are_those_of_the_reference(rule: gh.Attention, kv_heads: int) -> None:
    assert_same(*both(rule, *inputs(kv_heads=kv_heads)), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("kv_heads", [HEADS, 2, 1])
@pytest.mark.parametrize("name", RULES)
def test_the_context_of_the_kernel_is_that_of_the_trace(name: str, kv_heads: int) -> None:
    given = inputs(kv_heads=kv_heads)
    problem = RULES[name].problem(*given)
    rule = RowRule.of(problem, problem.tile())
    made = rule.by_kernel(problem.query, problem.key, problem.value)
    if name in NOT_OF_THE_KERNEL:
        assert made is None
    else:
        expected = RULES[name].trace(*given).context[..., 0, :]
        torch.testing.assert_close(made, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    found, expected = both(RULES["holes"], *inputs(dtype))
    assert found["entropy"].dtype == torch.float32
    assert_same(found, expected, rtol=1e-5, atol=1e-6)


def test_three_axes_have_no_heads() -> None:
    query, key, value = (x[:, 0] for x in inputs())
    found, expected = both(RULES["plain"], query, key, value)
    assert found["received"].shape == (BATCH, KEYS)
    assert_same(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_hidden_key_may_hold_anything(number: float) -> None:
    query, key, value = inputs()
    _, expected = both(RULES["one key"], query, key, value)
    key = key.clone()
    key[:, :, :7] = number
    found, of_reference = both(RULES["one key"], query, key, value)
    assert_same(found, expected, rtol=1e-12, atol=1e-13)
    assert_same(found, of_reference, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("rule", OTHERS.values(), ids=OTHERS)
def test_other_recipes_are_left_to_the_engines(rule: gh.Attention) -> None:
    assert single_query(rule.problem(*inputs()), {"entropy": gh.Entropy()}) is None


@pytest.mark.parametrize("queries", [0, 2])
def test_other_numbers_of_queries_are_left_to_the_engines(queries: int) -> None:
    problem = RULES["plain"].problem(*inputs(queries=queries))
    assert single_query(problem, {"entropy": gh.Entropy()}) is None


def test_an_own_statistic_is_computed_from_its_reductions() -> None:
    class Twice(gh.Entropy):
        def finish(self, problem, *reduced):
            return 2 * reduced[0][0]

    problem = RULES["plain"].problem(*inputs())
    found = single_query(problem, {"one": gh.Entropy(), "two": Twice()})
    assert found is not None
    torch.testing.assert_close(found["two"], 2 * found["one"])


# Of these a row of weights tells directly, so that those of several layers are computed together.
TOGETHER = normalize_statistics(
    {
        "entropy": gh.Entropy(),
        "max_weight": gh.MaxWeight(),
        "several": gh.MassOn([0, 4, 100]),
        "third": gh.MassOn([3]),
        "received": gh.Received(last=2),
    }
)


def in_batch(problems, real=None, statistics=TOGETHER):
    """What a batch gives for each problem."""
    batch, found = QueryBatch(statistics), [{} for _ in problems]
    for problem, values in zip(problems, found, strict=True):
        assert batch.add(problem, real, values)
        assert not values
    batch.settle()
    return found


def of_reference(problem, statistics=TOGETHER):
    request = StatisticRequest(problem, statistics)
    return request.finished(by_rows(problem, request.reductions))


def test_queries_of_several_layers_are_those_of_the_reference() -> None:
    other = {"sinks of another layer": gh.Attention(normalizer=gh.SoftmaxOne(-0.25))}
    long = gh.Attention().problem(*(x.repeat_interleave(2, 1) for x in inputs()))
    problems = [rule.problem(*inputs(kv_heads=2)) for rule in (RULES | other).values()]
    problems += [long, *(rule.problem(*inputs(torch.float32)) for rule in RULES.values())]
    for found, problem in zip(in_batch(problems), problems, strict=True):
        close = 1e-12 if problem.dtype == torch.float64 else 1e-5
        assert_same(found, of_reference(problem), rtol=close, atol=close)


@pytest.mark.parametrize("rule", ["plain", "holes"])
def test_padded_queries_count_in_no_sum(rule: str) -> None:
    problem, real = RULES[rule].problem(*inputs()), torch.tensor([[True], [False]])
    received = {"received": gh.Received(last=2)}
    for found in in_batch([problem] * 3, real):
        shown = of_reference(
            without_padding(problem, real),
            {name: of_real(one, real) for name, one in received.items()},
        )
        assert not found["received"][1].any()
        torch.testing.assert_close(found["received"], shown["received"], rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(found["entropy"], of_reference(problem)["entropy"])


def test_a_model_may_write_to_what_it_attended_with() -> None:
    query, key, value = inputs()
    shown = torch.ones(1, 1, 1, KEYS, dtype=torch.bool)
    shown[..., 4] = False
    problem = gh.Attention(mask=gh.dense(shown)).problem(query, key, value)
    expected, batch, found = of_reference(problem), QueryBatch(TOGETHER), {}
    batch.add(problem, None, found)
    for tensor in (query, key, value):
        tensor.data.fill_(math.nan)
    shown.fill_(False)
    batch.settle()
    assert_same(found, expected, rtol=1e-12, atol=1e-13)


def test_many_layers_do_not_wait_for_the_last() -> None:
    batch, problem = QueryBatch(TOGETHER), RULES["plain"].problem(*inputs())
    found = [{} for _ in range(67)]
    for values in found:
        batch.add(problem, None, values)
    assert [bool(values) for values in found] == [True] * 64 + [False] * 3


@pytest.mark.parametrize("statistic", [gh.TopK(3), gh.MeanDistance()])
def test_statistics_of_other_kinds_do_not_wait(statistic) -> None:
    batch = QueryBatch(normalize_statistics([gh.Entropy(), statistic]))
    assert not batch.add(RULES["plain"].problem(*inputs()), None, {})
