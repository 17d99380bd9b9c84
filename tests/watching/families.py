"""Families of transformers that write texts, with small random weights."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import nn

import watched_models as models

PAD = models.TOKENS["pad_token_id"]
FRAMES = 22


@dataclass(frozen=True)
class Family:
    """One family: how it is built, and what it takes.

    Attributes:
        name: The name before "Config".
        model: The name of the class that writes.
        sizes: The arguments of its config.
        kind: "decoder", "translator" or "listener", which reads sound.
        sides: Where a prompt, or the source of a translator, may be padded without a change of
            what the model computes for a text.
        modes: The attention modes that it has.
        windowed: Whether its caches slide.
        dtype: The most precise that it runs in under sdpa.
        cannot: The caches with which it computes something else.
    """

    name: str
    model: str
    sizes: Mapping[str, Any] = field(repr=False)
    kind: str = "decoder"
    sides: tuple[str, ...] = ("none", "left", "right")
    modes: tuple[str, ...] = ("sdpa", "eager")
    windowed: bool = False
    dtype: torch.dtype = torch.float64
    cannot: tuple[str, ...] = ()

    def dtype_of(self, mode: str) -> torch.dtype:
        """The most precise that it runs in."""
        # Of softmaxes in float32 the lowest number of float64 makes NaN.
        return self.dtype if mode == "sdpa" else torch.float32

    def build(self, mode: str) -> nn.Module:
        """The model; the same one each time, though with a config of its own."""
        return _built(self.name, mode)


@cache
def _built(name: str, mode: str) -> nn.Module:
    import transformers

    family = FAMILIES[name]
    config = getattr(transformers, f"{name}Config")(**models.settings(dict(family.sizes)))
    model = models.built(getattr(transformers, family.model), config, mode).to(
        family.dtype_of(mode)
    )
    model.generation_config.suppress_tokens = model.generation_config.begin_suppress_tokens = None
    model.generation_config.forced_eos_token_id = None
    return model


# Where absolute positions, or a window, count padding, a padded text is another one.
_LEFT = ("none", "left")
_RIGHT = ("none", "right")
_EXPERTS = {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
_LATENT = {
    "kv_lora_rank": 7,
    "q_lora_rank": 11,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 6,
    "v_head_dim": 5,
    "head_dim": 4,
    "num_key_value_heads": 6,
    "first_k_dense_replace": 5,
}
_WINDOW = {"windowed": True, "sides": _LEFT}
# Experts take no more, and some masks hold the lowest number of float32.
_SINGLE = {"dtype": torch.float32}
_EAGER = {"modes": ("eager",)}


def _decoder(name: str, model: str = "", traits: Mapping[str, Any] | None = None, **changes: Any):
    sizes = models.sizes_of_a_decoder(**changes)
    return Family(name, model or f"{name}ForCausalLM", sizes, **traits or {})


def _older(name: str, model: str = "", traits: Mapping[str, Any] | None = None, **sizes: Any):
    """One whose config has names of its own."""
    own = {"vocab_size": models.VOCABULARY} | models.TOKENS | sizes
    return Family(name, model or f"{name}ForCausalLM", own, **traits or {})


def _translator(name: str, model: str = "", traits: Mapping[str, Any] | None = None, **sizes: Any):
    traits = {"kind": "translator", "sides": _RIGHT} | dict(traits or {})
    model = model or f"{name}ForConditionalGeneration"
    return Family(name, model, models.sizes_of_a_translator(**sizes), **traits)


def _t5(name: str) -> Family:
    return Family(name, f"{name}ForConditionalGeneration", models.sizes_of_t5(), kind="translator")


def _listener(name: str, traits: Mapping[str, Any] | None = None, **sizes: Any) -> Family:
    traits = {"kind": "listener", "sides": ("none",)} | dict(traits or {})
    return _translator(name, traits=traits, **models.sizes_of_a_listener(**sizes))


_ALL = [
    # Rotary positions, grouped heads.
    _decoder("Llama"),
    _decoder("Qwen2"),
    _decoder("Qwen3"),
    _decoder("Phi3", hidden_size=60),
    _decoder("Phi", hidden_size=60, partial_rotary_factor=0.4),
    _decoder("Olmo2"),
    _decoder("Cohere", hidden_size=60),
    _decoder("StableLm", hidden_size=60),
    _decoder("Granite"),
    _decoder("Glm4", hidden_size=60),
    _decoder("SmolLM3", no_rope_layer_interval=2),
    _decoder("Nemotron", hidden_size=60),
    _decoder("GPTNeoX", hidden_size=60, initializer_range=0.15),
    _older("GPTJ", traits=_EAGER, n_embd=30, n_layer=2, n_head=3, n_positions=64, rotary_dim=4),
    _older(
        "CodeGen",
        traits=_EAGER,
        n_embd=48,
        n_ctx=64,
        n_layer=2,
        n_head=4,
        n_positions=64,
        rotary_dim=4,
    ),
    # One head of keys.
    _decoder("Gemma", num_key_value_heads=1),
    _older(
        "Falcon",
        hidden_size=30,
        num_hidden_layers=2,
        num_attention_heads=3,
        initializer_range=0.3,
    ),
    _older("GPTBigCode", n_embd=30, n_layer=2, n_head=3, n_positions=64, initializer_range=0.3),
    # Latent keys.
    _decoder("DeepseekV2", **_LATENT),
    _decoder("DeepseekV3", **_LATENT),
    # Sliding windows, softcap, sinks.
    _decoder("Mistral", traits=_WINDOW, sliding_window=5),
    _decoder("Starcoder2", traits=_WINDOW, hidden_size=60, sliding_window=5),
    _decoder(
        "Gemma2",
        traits=_WINDOW | _EAGER,
        sliding_window=5,
        attn_logit_softcapping=3.0,
        query_pre_attn_scalar=7,
    ),
    _decoder(
        "Gemma3Text",
        "Gemma3ForCausalLM",
        _WINDOW | _SINGLE,
        query_pre_attn_scalar=10,
        sliding_window=4,
        layer_types=["sliding_attention", "full_attention"],
    ),
    _decoder(
        "Cohere2",
        traits=_WINDOW,
        hidden_size=60,
        sliding_window=5,
        layer_types=["sliding_attention", "full_attention"],
    ),
    _decoder(
        "GptOss",
        traits=_WINDOW | _EAGER,
        sliding_window=5,
        num_local_experts=3,
        num_experts_per_tok=2,
        hidden_size=28,
        intermediate_size=20,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    ),
    # Experts.
    _decoder("Mixtral", traits=_SINGLE, num_local_experts=3, hidden_size=28, intermediate_size=20),
    _decoder("Qwen3Moe", traits=_SINGLE, hidden_size=28, **_EXPERTS),
    # Learned positions.
    _older("GPT2", "GPT2LMHeadModel", n_embd=35, n_layer=2, n_head=5, n_positions=64),
    _decoder("OPT", ffn_dim=29, word_embed_proj_dim=30, init_std=0.3),
    _older(
        "GPTNeo",
        hidden_size=30,
        num_layers=2,
        num_heads=3,
        attention_types=[[["global", "local"], 1]],
        window_size=5,
        max_position_embeddings=64,
        traits={"sides": _LEFT, "cannot": ("static",)} | _EAGER,
    ),
    _older(
        "BioGpt",
        hidden_size=30,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=29,
        max_position_embeddings=64,
        initializer_range=0.3,
    ),
    # Linear biases.
    _older(
        "Bloom",
        traits=_EAGER,
        hidden_size=30,
        n_layer=2,
        n_head=3,
        initializer_range=0.3,
    ),
    _older(
        "Mpt",
        traits={"sides": _LEFT} | _EAGER,
        d_model=32,
        n_layers=2,
        n_heads=4,
        max_seq_len=64,
        initializer_range=0.3,
        use_cache=True,
    ),
    # Encoders with decoders.
    _t5("T5"),
    _t5("MT5"),
    _t5("UMT5"),
    _translator("Bart"),
    _translator("MBart"),
    _translator("Marian", "MarianMTModel", share_encoder_decoder_embeddings=True),
    _translator("Pegasus"),
    _translator("M2M100"),
    _translator("Blenderbot"),
    _listener("Whisper"),
    _listener(
        "Speech2Text", _EAGER, input_feat_per_channel=3, conv_channels=8, conv_kernel_sizes=[3, 3]
    ),
]
FAMILIES = {one.name: one for one in _ALL}
