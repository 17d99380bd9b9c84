"""Texts that are too short for a statistic, of which there is less to tell and no error."""

import pytest
import torch

import glasshead as gh
from watching.small import watched


def test_fewer_keys_than_places_among_the_largest():
    seen, _ = watched([gh.TopK(8)], lengths=(3,))
    weights, keys = seen["layers.0"].top_k
    assert weights.shape == keys.shape == (2, 3, 3, 8)
    assert not weights[..., 3:].any()
    assert (keys[..., 3:] == -1).all()
    assert (keys[..., 2, :3] >= 0).all()


@pytest.mark.parametrize("keys", [[5], [0, 5]])
def test_keys_that_are_not_there_take_nothing(keys):
    seen, _ = watched({"on": gh.MassOn(keys), "first": gh.MassOn([0])}, lengths=(3,))
    expected = seen["layers.0"].first if 0 in keys else torch.zeros(2, 3, 3)
    torch.testing.assert_close(seen["layers.0"].on, expected)


def test_fewer_queries_than_the_last_ones():
    seen, _ = watched({"last": gh.Received(last=9), "all": gh.Received()}, lengths=(4,))
    assert torch.equal(seen["layers.0"].last, seen["layers.0"].all)


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_map_of_more_blocks_than_there_are_places(length):
    seen, _ = watched([gh.PooledMap(3, 4), gh.Entropy()], lengths=(length,))
    assert seen["layers.0"].pooled_map.shape == (2, 3, 3, 4)
    sums = seen["layers.0"].pooled_map.sum(-1)
    # A block of no queries has zeros, each other one gives all that it has.
    full = (sums - 1).abs() < 1e-5
    assert (full | (sums == 0)).all()
    assert (full.sum(-1) == min(length, 3)).all()


def test_steps_with_a_cache_grow_to_what_was_asked_for():
    statistics = {"top": gh.TopK(5), "on": gh.MassOn([4])}
    seen, _ = watched(statistics, lengths=(2, 1, 1, 1, 1), cached=True)
    watched_layer = seen["layers.1"]
    assert watched_layer.top.weights.shape == (2, 3, 6, 5)
    assert watched_layer.on.shape == (2, 3, 6)
    assert not watched_layer.on[..., :4].any()
    assert (watched_layer.on[..., 4:] > 0).all()
