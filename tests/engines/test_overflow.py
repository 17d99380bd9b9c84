"""Scores that overflow: the streaming engine gives the results of the reference, but for two."""

import pytest
import torch

import glasshead as gh

ASKED = [gh.LogSumExp(), gh.MaxScore(), gh.MaxWeight(), gh.ArgMax(), gh.Entropy()]
QUERIES, KEYS = 5, 67


def observed(engine, large, dtype=torch.float32, **recipe):
    """Observe queries of which the second overflows at keys: 1 to +inf, -1 to -inf."""
    query = torch.linspace(-1, 1, QUERIES * 2, dtype=dtype).view(QUERIES, 2)
    query[:, 1] = 0
    query[1, 1] = 16
    key = torch.linspace(-2, 2, KEYS * 2, dtype=dtype).view(KEYS, 2)
    key[:, 1] = large * torch.finfo(dtype).max
    value = torch.linspace(-1, 1, KEYS * 3, dtype=dtype).view(KEYS, 3)
    attention = gh.Attention(score=gh.Dot(), engine=engine, **recipe)
    return attention.observe(query, key, value, ASKED)


def at(places, sign=1.0):
    large = torch.zeros(KEYS, dtype=torch.float64)
    large[places] = sign
    return large


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("large", "logsumexp"),
    [
        (at([0]), torch.inf),
        (at([41]), torch.inf),
        (at([3, 66]), torch.inf),
        (at([0, 41], -1.0), None),
        (at([5]) + at([7], -1.0), torch.inf),
    ],
)
def test_what_overflows_has_the_results_of_the_reference(dtype, large, logsumexp):
    expected, found = (
        observed(engine, large.to(dtype), dtype) for engine in ("reference", "streaming")
    )
    torch.testing.assert_close(found.context, expected.context, equal_nan=True)
    for name, value in expected.values.items():
        torch.testing.assert_close(found[name], value, equal_nan=True, msg=name)
    if logsumexp is not None:
        assert found.log_sum_exp[1] == logsumexp
        assert found.arg_max[1] == large.gt(0).nonzero()[0]


def test_a_row_of_scores_that_are_all_minus_infinity_is_empty_but_in_the_reference():
    expected, found = (
        observed(engine, at(range(KEYS), -1.0).float()) for engine in ("reference", "streaming")
    )
    assert expected.context[1].isnan().all()
    assert found.context[1].eq(0).all()
    assert found.entropy[1] == 0
    assert found.arg_max[1] == -1
    assert found.log_sum_exp[1].isneginf()
    assert expected.log_sum_exp[1].isneginf()
    others = torch.arange(QUERIES) != 1
    torch.testing.assert_close(found.context[others], expected.context[others])


def test_a_query_of_nan_makes_what_its_keys_receive_nan():
    """Of its block, the streaming engine gives NaN for other keys, too, and never a number."""
    x = torch.ones(1, 1, 40, 32)
    query = x.clone()
    query[0, 0, 20, 0] = torch.nan
    received = {
        engine: gh.Attention(engine=engine, mask=gh.causal())
        .observe(query, x, x, [gh.Received()])
        .received[0, 0]
        for engine in ("reference", "streaming")
    }
    assert received["reference"].isnan().equal(torch.arange(40) <= 20)
    assert received["streaming"][:21].isnan().all()
    same = received["streaming"].isfinite()
    torch.testing.assert_close(received["streaming"][same], received["reference"][same])
