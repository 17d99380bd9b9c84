"""Steps 11 to 16 are the layers of transformers that have their ideas, with the same weights."""

from functools import partial

import pytest
import torch

from glasshead.ladder import (
    GatedAttention,
    GatedDeltaNet,
    GroupedQueryAttention,
    LatentAttention,
    SlidingWindowAttention,
    SparseAttention,
    delta_rule,
    rotated,
)
from ladder.random_layers import (
    ALIKE,
    BATCH,
    D_IN,
    HEADS,
    KV_HEADS,
    TOKENS,
    shaken,
    words,
)

transformers = pytest.importorskip("transformers", minversion="5.23")

from transformers.masking_utils import create_sliding_window_causal_mask  # noqa: E402
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as v3  # noqa: E402
from transformers.models.glm_moe_dsa import modeling_glm_moe_dsa as glm  # noqa: E402
from transformers.models.gpt_oss import modeling_gpt_oss as gpt_oss  # noqa: E402
from transformers.models.llama import modeling_llama as llama  # noqa: E402
from transformers.models.qwen3_next import modeling_qwen3_next as qwen3_next  # noqa: E402


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20230522)


def copied(rung, sources):
    """A step with the tensors of another layer, by its own names."""
    with torch.no_grad():
        assert {name for name, _ in rung.named_parameters()} == set(sources)
        for name, parameter in rung.named_parameters():
            assert parameter.shape == sources[name].shape
            parameter.copy_(sources[name])
    return rung.eval()


def projections(layer):
    """The four projections of a layer of transformers, by the names of step 11."""
    twins = {"W_query": "q_proj", "W_key": "k_proj", "W_value": "v_proj", "out_proj": "o_proj"}
    return {
        f"{mine}.{part}": getattr(getattr(layer, theirs), part)
        for mine, theirs in twins.items()
        for part in ("weight", "bias")
    }


BASE = 500.0
ROTATION = {"rope_type": "default", "rope_theta": BASE}
PLACES = torch.arange(TOKENS)[None].expand(BATCH, -1)


def neighbours(tensor, head_dim, turned):
    """The rows of each head, so that numbers that are turned together are next to each other."""
    order = torch.arange(turned).unflatten(0, (2, -1)).T.flatten()
    order = torch.cat([order, torch.arange(turned, head_dim)])
    return tensor.unflatten(0, (-1, head_dim))[:, order].flatten(0, 1)


def turned_together(sources, head_dim, turned):
    """The tensors of a step from a layer that turns number i with number i + turned/2."""
    own = [name for name in sources if name.split(".")[0] in ("W_query", "W_key")]
    return sources | {name: neighbours(sources[name], head_dim, turned) for name in own}


def turn(x, turned=None):
    """Turn the first numbers of each word, or all of them, by its position."""
    turned = x.shape[-1] if turned is None else turned
    return torch.cat([rotated(x[..., :turned], BASE), x[..., turned:]], dim=-1)


def causal():
    """The mask of transformers, by which no word sees the words after it."""
    hidden = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
    mask = torch.zeros(TOKENS, TOKENS).masked_fill(hidden, torch.finfo(torch.float32).min)
    return mask.expand(BATCH, 1, -1, -1)


class TestGroupedQueries:
    def test_is_the_layer_of_llama(self):
        d_in = 11 * HEADS  # of which Llama wants a multiple of the heads
        config = transformers.LlamaConfig(
            hidden_size=d_in, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
            head_dim=14, attention_bias=True, attn_implementation="eager", rope_parameters=ROTATION,
        )  # fmt: skip
        layer, x = shaken(llama.LlamaAttention(config, 0)), torch.randn(BATCH, TOKENS, d_in) / 4
        rung = GroupedQueryAttention(d_in, 14, HEADS, KV_HEADS, bias=True, turn=turn)
        expected, _ = layer(x, llama.LlamaRotaryEmbedding(config)(x, PLACES), causal())
        sources = turned_together(projections(layer), 14, 14)
        torch.testing.assert_close(copied(rung, sources)(x), expected, **ALIKE)


class TestLatent:
    latent_dim, head_dim, rotary_dim = 7, 5, 4

    def sizes(self):
        return {
            "hidden_size": D_IN, "num_attention_heads": 3, "num_key_value_heads": 3,
            "kv_lora_rank": self.latent_dim, "qk_nope_head_dim": self.head_dim,
            "qk_rope_head_dim": self.rotary_dim, "v_head_dim": self.head_dim,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
            "attn_implementation": "eager",
        }  # fmt: skip

    def sources(self, layer):
        """The tensors of step 12 in a layer of DeepSeek, which stacks two of them in one."""
        down, position = layer.kv_a_proj_with_mqa.weight.split([self.latent_dim, self.rotary_dim])
        both = layer.kv_b_proj.weight.unflatten(0, (3, 2 * self.head_dim))
        key, value = (part.flatten(0, 1) for part in both.split(self.head_dim, dim=1))
        return {
            "W_down.weight": down,
            "W_position.weight": position,
            "norm.weight": layer.kv_a_layernorm.weight,
            "W_key.weight": key,
            "W_value.weight": value,
            "out_proj.weight": layer.o_proj.weight,
        }

    def test_is_the_layer_of_deepseek_v3(self):
        config = transformers.DeepseekV3Config(**self.sizes(), q_lora_rank=None)
        layer, x = shaken(v3.DeepseekV3Attention(config, layer_idx=0)), words()
        rung = LatentAttention(D_IN, 3, self.latent_dim, self.head_dim, self.rotary_dim)
        sources = self.sources(layer) | {"W_query.weight": layer.q_proj.weight}
        rotation = v3.DeepseekV3RotaryEmbedding(config)(x, PLACES)
        assert rotation[0].shape[-1] == self.rotary_dim
        expected, _ = layer(x, rotation, causal())
        torch.testing.assert_close(copied(rung, sources)(x), expected, **ALIKE)

    def test_is_the_layer_of_glm_with_a_selection(self):
        config = transformers.GlmMoeDsaConfig(
            **self.sizes(), q_lora_rank=17, index_n_heads=2, index_head_dim=7, index_topk=3
        )
        layer, x = shaken(glm.GlmMoeDsaAttention(config, layer_idx=0)), words()
        rung = SparseAttention(
            D_IN, 3, self.latent_dim, self.head_dim, self.rotary_dim,
            query_dim=17, index_heads=2, index_dim=7, top_k=3,
        )  # fmt: skip
        indexer = layer.indexer
        sources = self.sources(layer) | {
            "W_query_down.weight": layer.q_a_proj.weight,
            "query_norm.weight": layer.q_a_layernorm.weight,
            "W_query.weight": layer.q_b_proj.weight,
            "W_index_query.weight": indexer.wq_b.weight,
            "W_index_key.weight": indexer.wk.weight,
            "index_norm.weight": indexer.k_norm.weight,
            "index_norm.bias": indexer.k_norm.bias,
            "W_index.weight": indexer.weights_proj.weight,
        }
        rotation = glm.GlmMoeDsaRotaryEmbedding(config)(x, PLACES)
        expected, weights, *_ = layer(x, rotation, causal(), position_ids=PLACES)
        rung = copied(rung, sources)
        torch.testing.assert_close(rung(x), expected, **ALIKE)
        # It is a selection: from the fourth word on, each word sees three.
        seen = (~rung.hidden(x)).sum(-1)
        assert seen.tolist() == [[[1, 2] + [3] * (TOKENS - 2)]] * BATCH
        assert torch.equal(weights[:, :1] > 0, ~rung.hidden(x))


class TestWindowAndSinks:
    window = 5

    def test_is_the_layer_of_gpt_oss(self):
        config = transformers.GptOssConfig(
            hidden_size=D_IN, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=14,
            sliding_window=self.window, layer_types=["sliding_attention"], num_hidden_layers=1,
            attention_bias=True, attn_implementation="eager", rope_parameters=ROTATION,
        )  # fmt: skip
        layer, x = shaken(gpt_oss.GptOssAttention(config, layer_idx=0)), words()
        rung = SlidingWindowAttention(D_IN, 14, HEADS, KV_HEADS, self.window, True, turn)
        mask = create_sliding_window_causal_mask(
            config=config, inputs_embeds=x, attention_mask=None, past_key_values=None,
            position_ids=torch.arange(TOKENS)[None],
        )  # fmt: skip
        expected, _ = layer(x, gpt_oss.GptOssRotaryEmbedding(config)(x, PLACES), mask)
        sources = turned_together(projections(layer), 14, 14) | {"sinks": layer.sinks}
        torch.testing.assert_close(copied(rung, sources)(x), expected, **ALIKE)


class TestGate:
    head_dim, turned = 13, 6

    def test_is_the_layer_of_qwen3_next(self):
        config = transformers.Qwen3NextConfig(
            hidden_size=D_IN, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
            head_dim=self.head_dim, attention_bias=True, attn_implementation="eager",
            rope_parameters=ROTATION | {"partial_rotary_factor": self.turned / self.head_dim},
        )  # fmt: skip
        layer, x = shaken(qwen3_next.Qwen3NextAttention(config, layer_idx=0)), words()
        sources = projections(layer)
        # One matrix makes the query and the gate of a head.
        for part in ("weight", "bias"):
            both = sources[f"W_query.{part}"].unflatten(0, (HEADS, 2, self.head_dim))
            query, gate = (both[:, place].flatten(0, 1) for place in (0, 1))
            sources |= {f"W_query.{part}": query, f"W_gate.{part}": gate}
        sources = turned_together(sources, self.head_dim, self.turned)
        # Its norms keep what is to be added to 1.
        for name, norm in (("query_norm", layer.q_norm), ("key_norm", layer.k_norm)):
            sources[f"{name}.weight"] = neighbours(1 + norm.weight, self.head_dim, self.turned)
        rung = GatedAttention(
            D_IN, self.head_dim, HEADS, KV_HEADS, True, partial(turn, turned=self.turned)
        )
        rotation = qwen3_next.Qwen3NextRotaryEmbedding(config)(x, PLACES)
        assert rotation[0].shape[-1] == self.turned
        expected, _ = layer(x, rotation, causal())
        torch.testing.assert_close(copied(rung, sources)(x), expected, **ALIKE)


class TestDeltaRule:
    key_dim, value_dim, heads = 5, 7, 3

    def test_is_the_layer_of_qwen3_next(self):
        config = transformers.Qwen3NextConfig(
            hidden_size=D_IN, linear_num_value_heads=self.heads, linear_num_key_heads=self.heads,
            linear_key_head_dim=self.key_dim, linear_value_head_dim=self.value_dim,
            linear_conv_kernel_dim=4, num_hidden_layers=1, layer_types=["linear_attention"],
        )  # fmt: skip
        layer, x = shaken(qwen3_next.Qwen3NextGatedDeltaNet(config, layer_idx=0)), words()
        rung = copied(
            GatedDeltaNet(D_IN, self.heads, self.key_dim, self.value_dim), self.sources(layer)
        )
        torch.testing.assert_close(rung(x), layer(x), **ALIKE)

    def sources(self, layer):
        """The tensors of step 16 in a layer of Qwen3-Next, which stacks them head by head."""
        widths = [self.key_dim, self.key_dim, self.value_dim, self.value_dim]
        stacked = layer.in_proj_qkvz.weight.unflatten(0, (self.heads, -1)).split(widths, dim=1)
        query, key, value, gate = (part.flatten(0, 1) for part in stacked)
        rate, decay = layer.in_proj_ba.weight.unflatten(0, (self.heads, 2)).unbind(1)
        return {
            "W_query.weight": query,
            "W_key.weight": key,
            "W_value.weight": value,
            "W_gate.weight": gate,
            "W_rate.weight": rate,
            "W_decay.weight": decay,
            "A_log": layer.A_log,
            "dt_bias": layer.dt_bias,
            "conv.weight": layer.conv1d.weight,
            "norm.weight": layer.norm.weight,
            "out_proj.weight": layer.out_proj.weight,
        }

    @pytest.mark.parametrize(
        "name", ["torch_recurrent_gated_delta_rule", "torch_chunk_gated_delta_rule"]
    )
    def test_is_the_rule_of_transformers(self, name):
        shape = (BATCH, self.heads, TOKENS)
        queries, keys = torch.nn.functional.normalize(torch.randn(2, *shape, self.key_dim), dim=-1)
        values = torch.randn(*shape, self.value_dim)
        rates, decays = torch.rand(2, *shape)
        rule = getattr(qwen3_next, name)
        expected, memory = rule(
            queries.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2),
            g=decays.transpose(1, 2).log(), beta=rates.transpose(1, 2), output_final_state=True,
        )  # fmt: skip
        outputs, mine = delta_rule(queries, keys, values, rates, decays)
        torch.testing.assert_close(outputs, expected.transpose(1, 2), **ALIKE)
        torch.testing.assert_close(mine, memory, **ALIKE)
