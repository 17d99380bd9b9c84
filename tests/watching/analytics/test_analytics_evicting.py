"""Eviction scores of what was watched, against whole matrices of weights."""

import pytest
import torch

import glasshead as gh
import watched_models as models
import watched_weights as eager
from watching.analytics.direct import explicit
from watching.small import BATCH, HEADS, LENGTH, watched

NEAR = {"rtol": 1e-5, "atol": 1e-5, "check_dtype": False}
METHODS = {"h2o": gh.Received(), "snapkv": gh.Received(last=3), "tova": gh.Received(last=1)}
SNAPKV = {"window": 3, "kernel": 3, "pooling": "max"}
EMPTY = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
EMPTY[[0, 3]] = False


def directly(method, weights, kv_heads):
    """The scores from a matrix `[batch, heads, queries, keys]`."""
    heads, queries, keys = weights.shape[-3:]
    if method == "h2o":
        mass = weights.sum(-2)
    elif method == "tova":
        mass = weights[..., -1, :].mean(-2, keepdim=True).expand(-1, heads, -1)
    else:
        mass = weights[..., queries - 3 :, :].sum(-2)
        around = torch.nn.functional.pad(mass[..., : keys - 3], (1, 1)).unfold(-1, 3, 1).amax(-1)
        mass = torch.cat([around, torch.full_like(mass[..., -3:], torch.inf)], -1)
    groups = mass.split(heads // kv_heads, -2)
    return torch.stack([group.mean(-2) for group in groups], -2)


@pytest.mark.parametrize("mask", [None, EMPTY])
@pytest.mark.parametrize("method", METHODS)
def test_scores_from_weights_and_from_statistics(method, mask):
    kept, model = watched([], keep="weights", mask=mask)
    found = gh.eviction_scores(kept, method, **SNAPKV)
    for name, matrix in zip(found, explicit(model), strict=True):
        torch.testing.assert_close(found[name], directly(method, matrix, HEADS), **NEAR)
    told, model = watched([METHODS[method]], mask=mask)
    found = gh.eviction_scores(told, method, **SNAPKV, kv_heads=1, layers="layers.1")
    assert list(found) == ["layers.1"]
    assert found["layers.1"].shape == (BATCH, 1, LENGTH)
    expected = directly(method, explicit(model)[1], 1)
    torch.testing.assert_close(found["layers.1"], expected, **NEAR)


@pytest.mark.parametrize("method", METHODS)
def test_of_heads_that_share_keys(method):
    pytest.importorskip("transformers")
    given, model = models.inputs(models.llama, "left"), models.llama("sdpa")
    with torch.no_grad(), gh.watch(model, keep="weights") as seen:
        model(**given)
    found = gh.eviction_scores(seen, method, **SNAPKV)
    for name, weights in eager.weights_of(models.llama, given).items():
        assert found[name].shape == (3, 2, 7)
        torch.testing.assert_close(found[name], directly(method, weights, 2), **NEAR)


@pytest.mark.parametrize("method", METHODS)
def test_of_a_text_that_has_grown(method):
    seen, model = watched([], keep="weights", lengths=(4, 1, 2), cached=True)
    whole = torch.zeros(BATCH, HEADS, 7, 7, dtype=torch.double)
    for call, (first, keys) in enumerate(((0, 4), (4, 5), (5, 7))):
        whole[..., first:keys, :keys] = explicit(model, 1, call)[0]
    found = gh.eviction_scores(seen, method, **SNAPKV)["layers.0"]
    torch.testing.assert_close(found, directly(method, whole, HEADS), **NEAR)


def test_of_a_text_that_has_grown_from_statistics():
    seen, model = watched(METHODS, lengths=(4, 1, 2), cached=True)
    last = explicit(model)[0][..., -1, :]
    found = gh.eviction_scores(seen, "tova")["layers.0"]
    torch.testing.assert_close(found, last.mean(-2, keepdim=True).expand(-1, HEADS, -1), **NEAR)
    found = gh.eviction_scores(seen, "h2o")["layers.0"]
    torch.testing.assert_close(found, seen["layers.0"]["h2o"], **NEAR)
    sentence = (
        r"^these scores of 'layers.0' follow from Received\(last=3\) of one call, or from the"
    )
    with pytest.raises(ValueError, match=sentence):
        gh.eviction_scores(seen, "snapkv", **SNAPKV)


def test_of_a_rule_without_heads():
    rule, x = gh.Attention(mask=gh.causal()), torch.randn(2, 7, 5)
    with gh.watch(rule, [gh.Received()], keep="weights") as seen:
        rule(x, x, x)
    expected = rule.weights(x, x).dense().sum(-2, keepdim=True)
    torch.testing.assert_close(gh.eviction_scores(seen, "h2o")[""], expected)
    with gh.watch(rule, [gh.Received()]) as seen:
        rule(x, x, x)
    torch.testing.assert_close(gh.eviction_scores(seen, "h2o")[""], expected)


@pytest.mark.parametrize(
    ("method", "asked", "error", "sentence"),
    [
        (
            "h20",
            {},
            ValueError,
            "^the method of eviction_scores must be 'h2o', 'snapkv' or 'tova', got 'h20'.$",
        ),
        ("tova", {}, ValueError, r"^these scores of 'layers.0' follow from Received\(last=1\) of"),
        ("snapkv", {"window": 0}, ValueError, "^window must be a whole number of at least 1"),
        (
            "h2o",
            {"kv_heads": 2},
            ValueError,
            "^the number of query heads must be a multiple of kv_heads=2, got 3",
        ),
        ("h2o", {"layers": "block"}, ValueError, "^layers must be names"),
    ],
)
def test_what_it_does_not_take(method, asked, error, sentence):
    seen, _ = watched([gh.Received()])
    with pytest.raises(error, match=sentence):
        gh.eviction_scores(seen, method, **asked)


def test_of_some_heads_nothing_is_told():
    seen, _ = watched([gh.Received()], heads=[0, 2])
    sentence = r"^eviction scores need all heads, but 'layers.0' was watched with heads=\[0, 2\]\."
    with pytest.raises(ValueError, match=sentence):
        gh.eviction_scores(seen, "h2o")
