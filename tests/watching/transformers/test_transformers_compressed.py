"""Keys that stand for several tokens each are kept, and steps with them are not joined."""

from pathlib import Path

import pytest
import torch
from torch import nn

import glasshead as gh
import watched_models as models

transformers = pytest.importorskip("transformers")

LENGTH, NEW = 11, 3


def deepseek():
    """Layers without compressed keys, with some chosen for each query, and with all of them."""
    if not hasattr(transformers, "DeepseekV4Config"):
        pytest.skip(f"transformers {models.TRANSFORMERS} has no DeepSeek-V4")
    kinds = ("sliding", "compressed_sparse", "heavily_compressed")
    sizes = {"num_hidden_layers": 3, "layer_types": [f"{kind}_attention" for kind in kinds]}
    sizes |= {"compress_rates": {"compressed_sparse_attention": 2}, "sliding_window": 4}
    sizes["compress_rates"]["heavily_compressed_attention"] = 3
    sizes |= {"vocab_size": models.VOCABULARY, "hidden_size": 32, "moe_intermediate_size": 16}
    sizes |= {"num_attention_heads": 4, "head_dim": 16, "q_lora_rank": 12, "o_lora_rank": 8}
    sizes |= {"o_groups": 2, "n_routed_experts": 4, "num_experts_per_tok": 2}
    sizes |= {"index_n_heads": 2, "index_head_dim": 8, "index_topk": 2}
    sizes |= {"hc_mult": 2, "hc_sinkhorn_iters": 3, "initializer_range": 0.3, "eos_token_id": None}
    config = transformers.DeepseekV4Config(**sizes, bos_token_id=1, pad_token_id=0)
    model = models.built(transformers.DeepseekV4ForCausalLM, config, "eager")
    for parameter in model.parameters():
        if parameter.ndim < 2:
            nn.init.normal_(parameter, 0.0, 0.3)
    return model


def test_the_reference_names_the_family():
    page = (Path(__file__).parents[3] / "docs/reference/watching.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith("| compressed keys"))
    assert "DeepSeek-V4" in row


@pytest.mark.parametrize("mixers", [False, True])
def test_compressed_keys_are_kept_and_a_sinkhorn_softmax_is_no_attention(mixers):
    model, tokens = deepseek(), models.tokens(2, LENGTH)
    with torch.no_grad(), gh.watch(model, [gh.Received()], keep="weights", mixers=mixers) as seen:
        expected = model(tokens, output_attentions=True).attentions
    assert list(seen) == [f"model.layers.{layer}.self_attn" for layer in range(3)]
    # One for each two tokens, and one for each three.
    assert [one[0].compressed for one in seen.values()] == [0, LENGTH // 2, LENGTH // 3]
    for watched, weights in zip(seen.values(), expected, strict=True):
        torch.testing.assert_close(watched.weights.dense(), weights, rtol=0.0, atol=1e-6)
        torch.testing.assert_close(watched.received, weights.sum(-2), rtol=0.0, atol=1e-5)


def test_steps_have_their_own_weights_and_are_joined_where_no_key_is_named():
    model, tokens = deepseek(), models.tokens(2, LENGTH)
    statistics = [gh.Entropy(), gh.Received(), gh.MeanDistance(), gh.ArgMax()]
    asked = {"max_new_tokens": NEW, "do_sample": False, "return_dict_in_generate": True}
    with torch.no_grad(), gh.watch(model, statistics, keep="weights") as seen:
        output = model.generate(tokens, **asked, output_attentions=True)
    for layer, watched in enumerate(seen.values()):
        assert [call.position for call in watched] == [0, LENGTH, LENGTH + 1]
        for call, weights in zip(watched, output.attentions, strict=True):
            torch.testing.assert_close(
                call.weights.dense(), weights[layer], rtol=0.0, atol=1e-6, check_stride=False
            )
        assert watched.entropy.shape == (2, 4, LENGTH + NEW - 1)
        for name in ("received", "mean_distance", "arg_max", "weights") if layer else ():
            with pytest.raises(ValueError, match=rf"{name} of several calls .* are compressed"):
                getattr(watched, name)
