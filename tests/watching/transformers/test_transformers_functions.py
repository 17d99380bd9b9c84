"""What the attention functions of transformers make of their arguments, each in its own way."""

import pytest
import torch

import glasshead as gh
import watched_models as models
import watched_weights as eager

pytest.importorskip("transformers")


def inputs(queries=5, keys=5):
    return (torch.randn(2, 3, n, 7) for n in (queries, keys, keys))


def softmax(query, key, visible=None):
    scores = query @ key.mT / query.shape[-1] ** 0.5
    return (scores if visible is None else scores.masked_fill(~visible, -torch.inf)).softmax(-1)


def watched(model, *given):
    with gh.watch(model, eager.STATISTICS, keep="weights") as seen:
        model(*given)
    return seen[""]


def test_without_a_mask_sdpa_is_causal_where_its_module_is():
    query, key, value = inputs()
    seen = watched(models.Alone("sdpa"), query, key, value, None)
    eager.check(seen, softmax(query, key, eager.causal(5, 5)))


@pytest.mark.parametrize("keys", [5, 8])
def test_what_a_call_says_of_causality_goes_before_what_its_module_says(keys):
    query, key, value = inputs(keys=keys)
    seen = watched(models.Alone("sdpa", is_causal=False), query, key, value, None)
    eager.check(seen, softmax(query, key))


def test_without_a_mask_the_eager_functions_hide_nothing():
    from transformers.models.bart.modeling_bart import eager_attention_forward

    query, key, value = inputs()
    model = models.Alone("eager", eager_attention_forward, scaling=7**-0.5)
    eager.check(watched(model, query, key, value, None), softmax(query, key))


def test_sdpa_drops_out_what_it_is_told_to_though_nothing_is_trained():
    query, key, value = inputs()
    model = models.Alone("sdpa", dropout=0.5).eval()
    seen = watched(model, query, key, value, None)
    eager.check(seen, softmax(query, key, eager.causal(5, 5)))


def test_sdpa_knows_nothing_of_sinks():
    query, key, value = inputs()
    model = models.Alone("sdpa", s_aux=torch.randn(3))
    seen = watched(model, query, key, value, None)
    eager.check(seen, softmax(query, key, eager.causal(5, 5)))


def test_a_mask_may_be_longer_than_the_keys():
    from transformers.models.bart.modeling_bart import eager_attention_forward

    def cut(module, query, key, value, attention_mask, **named):
        mask = attention_mask[..., : key.shape[-2]]
        return eager_attention_forward(module, query, key, value, mask, **named)

    query, key, value = inputs()
    visible = eager.causal(5, 5)
    mask = torch.zeros(1, 1, 5, 11)
    mask[..., :5].masked_fill_(~visible, torch.finfo(torch.float32).min)
    seen = watched(models.Alone("eager", cut, scaling=7**-0.5), query, key, value, mask)
    eager.check(seen, softmax(query, key, visible))


def test_a_function_that_a_user_has_registered_is_seen_with_all_that_it_is_given():
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    given = []

    def mine(module, query, key, value, attention_mask, *, name, function, **named):
        given.append((name, function))
        return sdpa_attention_forward(module, query, key, value, attention_mask, **named)

    AttentionInterface.register("mine", mine)
    try:
        query, key, value = inputs()
        model = models.Alone("mine", name="a name", function="a function", scaling=0.7)
        seen = watched(model, query, key, value, None)
    finally:
        AttentionInterface._global_mapping.pop("mine")
    assert given == [("a name", "a function")]
    eager.check(seen, softmax(query * 0.7 * 7**0.5, key, eager.causal(5, 5)))


@pytest.mark.skipif(models.TRANSFORMERS.major > 4, reason="transformers 5 has no head_mask")
@pytest.mark.parametrize("mode", ["eager", "sdpa"])
def test_weights_that_are_multiplied_are_refused(mode):
    from transformers import ViTConfig, ViTModel

    sizes = {"hidden_size": 30, "num_hidden_layers": 1, "num_attention_heads": 3}
    config = ViTConfig(image_size=12, patch_size=4, intermediate_size=29, **sizes)
    model = models.built(ViTModel, config, mode)
    given = models.inputs(models.vit) | {"head_mask": torch.tensor([[1.0, 0.0, 1.0]])}
    with (
        torch.no_grad(),
        pytest.raises(RuntimeError, match=r"does not support head_mask, which .*gh\.ablate"),
        gh.watch(model, [gh.Entropy()]),
    ):
        model(**given)
