"""Sparsemax and Entmax15 equal the `entmax` package, in value and gradient."""

import entmax
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import glasshead as gh
from hypothesis_profiles import examples

PAIRS = [(gh.Sparsemax, entmax.sparsemax), (gh.Entmax15, entmax.entmax15)]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
@given(
    rows=st.sampled_from([1, 3, 5]),
    columns=st.sampled_from([1, 2, 7, 31]),
    spread=st.sampled_from([1e-3, 0.5, 3.0, 100.0]),
    seed=st.integers(0, 999),
)
@examples(100)
def test_equals_the_entmax_package(ours, theirs, rows, columns, spread, seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(rows, columns, generator=generator, dtype=torch.float64) * spread
    weight = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    values, gradients = [], []
    for function in (ours(), lambda s: theirs(s, dim=-1)):
        leaf = scores.clone().requires_grad_()
        value = function(leaf)
        (value * weight).sum().backward()
        values.append(value.detach())
        gradients.append(leaf.grad)
    torch.testing.assert_close(*values, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(*gradients, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_hidden_scores_are_as_if_they_were_not_there(ours, theirs):
    scores = torch.tensor([[0.3, -torch.inf, 0.1, -torch.inf, -0.4]])
    weights = ours()(scores, ~scores.isneginf())
    kept = theirs(scores[:, [0, 2, 4]], dim=-1)
    torch.testing.assert_close(weights[:, [0, 2, 4]], kept)
    assert not weights[:, [1, 3]].any()


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_ties_share(ours, theirs):
    scores = torch.tensor([[1.0, 1.0, 1.0, -5.0]], requires_grad=True)
    weights = ours()(scores)
    torch.testing.assert_close(weights, torch.tensor([[1 / 3, 1 / 3, 1 / 3, 0.0]]))
    weights[0, 0].backward()
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
@pytest.mark.parametrize("spread", [0.1, 1.0, 5.0, 14.0])
def test_long_rows_in_float32_keep_their_digits(ours, theirs, spread):
    scores = torch.randn(3, 4096) * spread
    scores[0], scores[0, 3] = -9.0, 5.0
    weight = torch.randn(3, 4096)
    values, gradients = [], []
    for function, dtype in ((ours(), torch.float32), (lambda s: theirs(s, dim=-1), torch.float64)):
        leaf = scores.to(dtype, copy=True).requires_grad_()
        value = function(leaf)
        (value * weight).sum().backward()
        values.append(value.detach().double())
        gradients.append(leaf.grad.double())
    torch.testing.assert_close(*values, rtol=1e-4, atol=2e-6)
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=2e-5)
    torch.testing.assert_close(values[0].sum(-1), torch.ones(3).double(), rtol=0, atol=1e-5)
