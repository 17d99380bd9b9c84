"""Masks that a user makes, and those of texts that are packed one behind the other.

A model that runs on FlexAttention, which is compiled, is seen as it runs.
A model of transformers that computes attention by code of its own is named, not passed over.
"""

import gc

import pytest
import torch

import glasshead as gh
import watched_models as models
import watched_weights as eager
from glasshead.watching.interception.session import THREADS

pytest.importorskip("transformers")


def watched(build, mode, given):
    model = build(mode)
    with torch.no_grad(), gh.watch(model, eager.STATISTICS, keep="weights") as seen:
        model(**given)
    return seen


def some_pairs(batch=3, length=7):
    """Pairs as nobody would guess them; each query sees itself."""
    visible = torch.rand(batch, 1, length, length) < 0.4
    return visible | torch.eye(length, dtype=torch.bool)


@pytest.mark.parametrize("build", [models.llama, models.gpt2, models.bert])
def test_a_mask_of_pairs_is_a_mask(build):
    visible = some_pairs()
    hidden = torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(torch.float32).min)
    given = models.inputs(build)
    model = build("eager")
    with torch.no_grad():
        weights = model(**given, attention_mask=hidden, output_attentions=True).attentions
    seen = watched(build, "sdpa", given | {"attention_mask": visible})
    for one, name in zip(weights, seen, strict=True):
        eager.check(seen[name], one)
    seen = watched(build, "eager", given | {"attention_mask": hidden})
    for one, name in zip(weights, seen, strict=True):
        eager.check(seen[name], one)


@pytest.mark.parametrize("mode", ["eager", "sdpa"])
def test_numbers_in_a_mask_of_pairs_are_a_bias(mode):
    bias = torch.randn(3, 1, 7, 7).masked_fill(~some_pairs(), -torch.inf)
    given = models.inputs(models.llama) | {"attention_mask": bias}
    seen = watched(models.llama, mode, given)
    with torch.no_grad():
        weights = models.llama("eager")(**given, output_attentions=True).attentions
    for one, name in zip(weights, seen, strict=True):
        eager.check(seen[name], one)


@pytest.mark.parametrize("mode", ["eager", "sdpa"])
def test_a_mask_that_is_written_to_is_read_again(mode):
    from transformers.models.bert.modeling_bert import eager_attention_forward

    model = models.Alone(mode, eager_attention_forward, scaling=7**-0.5)
    query, key, value = torch.randn(3, 2, 5, 7, 7).unbind()
    mask = torch.zeros(1, 1, 7, 7)
    hidden = ~some_pairs(1)
    with gh.watch(model, eager.STATISTICS) as seen:
        model(query, key, value, mask)
        model(query, key, value, mask.masked_fill_(hidden, -torch.inf))
    scores = query @ key.mT / 7**0.5
    eager.check(seen[""], scores.masked_fill(hidden, -torch.inf).softmax(-1))


@pytest.mark.parametrize("mode", ["eager", "sdpa"])
def test_no_mask_outlives_the_model_that_made_it(mode):
    THREADS.session.masks.forget()
    watched(models.llama, mode, models.inputs(models.llama, "left"))
    gc.collect()
    assert THREADS.session.masks.last == []


@pytest.mark.parametrize("mode", ["eager", "sdpa"])
@pytest.mark.parametrize("build", [models.llama, models.mistral])
def test_packed_texts_do_not_see_each_other(build, mode):
    packed = models.tokens(1, 10)
    places = torch.tensor([[*range(4), *range(6)]])
    given = {"input_ids": packed, "position_ids": places, "use_cache": False}
    seen = watched(build, mode, given)
    first = eager.weights_of(build, {"input_ids": packed[:, :4]})
    second = eager.weights_of(build, {"input_ids": packed[:, 4:]})
    for name in seen:
        whole = torch.zeros(1, 6, 10, 10)
        whole[..., :4, :4], whole[..., 4:, 4:] = first[name], second[name]
        eager.check(seen[name], whole)


pytest.importorskip("transformers")


# One test alone, as compiling takes longer than all others together.
@pytest.mark.filterwarnings("ignore")
def test_flex_attention_is_seen_and_stays_compiled():
    from torch._dynamo.utils import counters

    given = models.inputs(models.mistral, "left")
    model = models.mistral("flex_attention", num_attention_heads=4)
    with torch.no_grad():
        alone = model(**given).logits
        # What makes the mask is compiled for the watch, and the attention is not.
        with gh.watch(model, [gh.Entropy()]):
            model(**given)
        compiled = counters["stats"]["unique_graphs"]
        with gh.watch(model, eager.STATISTICS, keep="weights") as seen:
            watched = model(**given).logits
        assert torch.equal(watched, alone)
        assert torch.equal(model(**given).logits, alone)
    assert counters["stats"]["unique_graphs"] == compiled > 0
    for name, weights in eager.weights_of(models.mistral, given, num_attention_heads=4).items():
        real = eager.real_queries(models.mistral, given, name)
        eager.check(seen[name], weights, real=real)


pytest.importorskip("transformers")


def bloom():
    from transformers import BloomConfig, BloomModel

    sizes = {"hidden_size": 15, "n_layer": 2, "n_head": 3}
    return BloomModel(BloomConfig(vocab_size=models.VOCABULARY, **sizes)).eval()


def deberta():
    from transformers import DebertaV2Config, DebertaV2Model

    sizes = {"hidden_size": 15, "num_hidden_layers": 2, "num_attention_heads": 3}
    sizes |= {"intermediate_size": 7, "vocab_size": models.VOCABULARY}
    return DebertaV2Model(DebertaV2Config(**sizes)).eval()


def upcasting():
    return models.gpt2("eager", reorder_and_upcast_attn=True)


@pytest.mark.parametrize("without_gradients", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(
    ("build", "named"),
    [
        (
            bloom,
            (
                "BloomAttention at 'h.0.self_attention' and 1 more computes its own: call "
                "F.scaled_dot_product_attention in BloomAttention, as BloomModel has no "
                "attn_implementation='sdpa' in this version of transformers, or leave these out"
            ),
        ),
        (
            deberta,
            (
                "DisentangledSelfAttention at 'encoder.layer.0.attention.self' and 1 more "
                "computes its own: call .*, as DebertaV2Model has no attn_implementation='sdpa' in"
            ),
        ),
        (
            upcasting,
            (
                "GPT2Attention at 'transformer.h.0.attn' and 1 more computes its own: load the "
                "model with attn_implementation='sdpa', or leave these out by layers="
            ),
        ),
    ],
)
def test_attention_of_its_own_is_named_with_what_its_class_offers(build, named, without_gradients):
    model = build()
    with (
        pytest.raises(RuntimeError, match=named),
        without_gradients(),
        gh.watch(model, [gh.Entropy()]),
    ):
        model(models.tokens(2, 7))


def test_a_class_of_ones_own_within_a_model_of_transformers_is_told_what_to_call():
    class PastedAttention(torch.nn.Module):
        def forward(self, hidden_states, **named):
            scores = hidden_states @ hidden_states.transpose(-1, -2)
            return scores.softmax(-1) @ hidden_states, None

    model = models.llama("sdpa")
    model.model.layers[1].self_attn = PastedAttention()
    with (
        pytest.raises(RuntimeError) as refused,
        torch.no_grad(),
        gh.watch(model, [gh.Entropy()]),
    ):
        model(models.tokens(2, 7))
    assert "PastedAttention at 'model.layers.1.self_attn' computes its own" in str(refused.value)
    assert "call F.scaled_dot_product_attention there" in str(refused.value)
    assert "attn_implementation" not in str(refused.value)


def test_the_same_model_is_seen_where_it_has_another_way():
    model = models.gpt2("sdpa", reorder_and_upcast_attn=True)
    given = models.inputs(models.gpt2)
    with torch.no_grad(), gh.watch(model, eager.STATISTICS) as seen:
        model(**given)
    for name, weights in eager.weights_of(models.gpt2, given).items():
        eager.check(seen[name], weights)


def test_an_attention_that_is_not_what_it_seems_is_refused():
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    def doubled(module, query, key, value, attention_mask, **named):
        output, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **named)
        return output * 2, None

    AttentionInterface.register("doubled", doubled)
    AttentionMaskInterface.register("doubled", sdpa_mask)
    try:
        model = models.llama("doubled")
        with (
            pytest.raises(RuntimeError, match=r"'model\.layers\.0\.self_attn' gave another output"),
            gh.watch(model, [gh.Entropy()]),
        ):
            model(models.tokens(2, 7))
    finally:
        AttentionInterface._global_mapping.pop("doubled")
        AttentionMaskInterface._global_mapping.pop("doubled")
