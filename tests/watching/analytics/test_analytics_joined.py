"""Pᵀ·L of a text that has grown call by call."""

import pytest
import torch

import glasshead as gh
from glasshead.attention.joined_weights import JoinedWeights
from watching.small import BATCH, HEADS, watched

NEAR = {"rtol": 1e-5, "atol": 1e-5}


def grown():
    seen, _ = watched([], lengths=(4, 1, 2), cached=True, keep="weights")
    return seen["layers.0"].weights


@pytest.mark.parametrize("leading", [(), (BATCH, HEADS), (1, HEADS), (BATCH, 1)])
@pytest.mark.parametrize("columns", [1, 11])
def test_a_product_with_the_transposed(leading, columns):
    W = grown()
    left = torch.randn(*leading, 7, columns)
    torch.testing.assert_close(W.T @ left, W.dense().mT @ left, **NEAR)
    assert W.T.shape == (BATCH, HEADS, 7, 7)
    assert W.T.T is W
    assert repr(W.T) == "JoinedWeights [2, 3, 7, 7] of 3 calls, transposed"


@pytest.mark.parametrize("leading", [(1, 2), (3,), ()])
def test_a_part_that_begins_with_a_later_key_gives_nothing_to_those_before(leading):
    def part(queries, keys):
        made = torch.randn(*leading, queries, 3), torch.randn(*leading, keys, 3)
        return gh.Attention(mask=gh.causal()).weights(*made)

    W = JoinedWeights([part(3, 3), part(2, 4)], [0, 2])
    assert W.T.shape == (*leading, 6, 5)
    left = torch.randn(5, 2)
    torch.testing.assert_close(W.T @ left, W.dense().mT @ left, **NEAR)


@pytest.mark.parametrize(
    ("left", "error"),
    [
        (torch.ones(6, 1), ValueError),
        (torch.ones(7), ValueError),
        (torch.ones(5, 3, 7, 1), ValueError),
        (torch.ones(7, 1).long(), TypeError),
        ([1.0], TypeError),
    ],
)
def test_what_it_is_not_multiplied_with(left, error):
    with pytest.raises(error, match=r"^W\.T @ L takes "):
        _ = grown().T @ left
