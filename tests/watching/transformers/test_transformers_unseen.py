"""A model of transformers that computes attention by code of its own is named, not passed over."""

import pytest
import torch

import glasshead as gh
import watched_models as models
import watched_weights as eager

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
