"""Several texts in a block, modules that run several times, and modules that share parts.

Texts that are too short for a statistic, of which there is less to tell and no error.
"""

import pytest
import torch
from torch import nn

import glasshead as gh
from watching.small import LENGTH, Model, SelfAttention, text, watched
from watching.torch.explicit import STATISTICS, check, undisturbed, weights


def expected_of(layer, call):
    query, key, mask = layer.last[call]
    return weights(query, key, visible=mask)


def test_each_text_is_a_call_and_the_last_one_answers():
    seen, model = watched(STATISTICS, lengths=(LENGTH, 3, 5))
    for name, layer in zip(seen, model.layers, strict=True):
        assert len(seen[name]) == len(seen[name].texts) == 3
        for place, call in enumerate(seen[name]):
            check(call, expected_of(layer, place))
        check(seen[name], expected_of(layer, 2))
        assert seen[name][-1].queries == 5
        assert [call.queries for call in seen[name][:2]] == [LENGTH, 3]


def test_a_text_that_grows_is_one_and_the_next_one_begins_anew():
    model = Model()
    with torch.no_grad(), gh.watch(model, STATISTICS) as seen:
        model(text(4), cached=True)
        model(text(1), cached=True)
        model(text(3))
    texts = seen["layers.0"].texts
    assert [[call.queries for call in one] for one in texts] == [[4, 1], [3]]
    assert (seen["layers.0"].prefill.queries, seen["layers.0"].steps) == (3, [])
    check(texts[0][1], expected_of(model.layers[0], 1), offset=4)
    assert seen["layers.0"].received.shape[-1] == 3


def test_what_was_joined_is_joined_anew_when_the_text_has_grown():
    model = Model()
    with torch.no_grad(), gh.watch(model, {"received": gh.Received()}) as seen:
        model(text(4), cached=True)
        assert seen["layers.0"].received.shape[-1] == 4
        model(text(1), cached=True)
        assert seen["layers.0"].received.shape[-1] == 5
        model(text(2), cached=True)
    total = seen["layers.0"].received.sum(-1)
    torch.testing.assert_close(total, torch.full_like(total, 7.0))


def test_what_does_not_follow_from_parts_is_had_call_by_call():
    seen, _ = watched([gh.PooledMap(1, 1)], lengths=(4, 1), cached=True)
    assert seen["layers.0"][1].pooled_map.shape == (2, 3, 1, 1)
    with pytest.raises(ValueError, match="PooledMap.* cannot be computed from chunks"):
        _ = seen["layers.0"].pooled_map


def test_a_module_that_runs_several_times_has_a_call_of_each():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = SelfAttention()

        def forward(self, x):
            for _ in range(3):
                x = x + self.block(x)
            return x

    model, x = Recurrent(), text()
    seen = undisturbed(model, x)
    assert [len(watched) for watched in seen.values()] == [3]
    for place, call in enumerate(seen["block"]):
        check(call, expected_of(model.block, place - 3))


def test_a_module_under_two_names_goes_by_the_first():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = SelfAttention()
            self.second = self.first

        def forward(self, x):
            return self.second(self.first(x))

    model = Shared()
    seen = undisturbed(model, text())
    assert list(seen) == ["first"]
    assert len(seen["first"]) == 2


def test_layers_that_share_their_weights_are_told_apart():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            layers = [nn.TransformerEncoderLayer(12, 2, 29, batch_first=True) for _ in range(2)]
            self.layers = nn.ModuleList(layers)
            self.layers[1].self_attn.in_proj_weight = self.layers[0].self_attn.in_proj_weight

        def forward(self, x):
            return self.layers[1](self.layers[0](x))

    model = Tied().eval()
    with torch.no_grad():
        seen = undisturbed(model, torch.randn(2, 5, 12))
    assert list(seen) == ["layers.0.self_attn", "layers.1.self_attn"]


def test_an_attention_without_a_module_goes_by_the_one_that_calls_it():
    class Inner(nn.Module):
        def forward(self, x):
            return nn.functional.scaled_dot_product_attention(x, x, x)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = [Inner()]

        def forward(self, x):
            # It is no submodule, as it stands in a list.
            return self.inner[0](x)

    assert list(undisturbed(nn.Sequential(Outer()), torch.randn(2, 3, 5, 7))) == ["0"]


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
