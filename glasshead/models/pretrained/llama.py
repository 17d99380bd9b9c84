"""Llama, Mistral, Qwen2, Qwen3, Phi-3 and OLMo 2: convert their configs and tensors to ours.

Source: Touvron et al. 2023 (LLaMA), section 2.2; Llama Team 2024 (The Llama 3 herd of models),
section 3.2; Jiang et al. 2023 (Mistral 7B), section 2; Yang et al. 2024 (Qwen2), section 2.2; Yang
et al. 2025 (Qwen3), section 2; Abdin et al. 2024 (Phi-3), section 2; Team OLMo 2025 (2 OLMo 2
Furious), section 2.
"""

from collections.abc import Iterable
from typing import Any

from glasshead.models.language_model import LanguageModelConfig
from glasshead.models.pretrained.folder import ConfigValues, TensorSource, same, stacked
from glasshead.models.pretrained.rope import rotary, sliding_layers, windows

# Defaults of Mistral, Qwen2 and Qwen3: the window, and the number of Qwen's layers without one.
_WINDOW, _BEFORE_WINDOWS = 4096, 28
_EPS = {"phi3": 1e-5, "olmo2": 1e-5}
# Rotary frequencies, which old files store as tensors.
_IGNORED = ("*.rotary_emb.inv_freq",)
_NORMED = ("query", "key")
# Norms around attention and feed-forward, by their order.
_NORMS = {
    "pre": {
        "around_attention.norm": "input_layernorm",
        "around_feed_forward.norm": "post_attention_layernorm",
    },
    "res_post": {
        "around_attention.norm": "post_attention_layernorm",
        "around_feed_forward.norm": "post_feedforward_layernorm",
    },
    "sandwich": {
        "around_attention.norm": "input_layernorm",
        "around_attention.after": "post_attention_layernorm",
        "around_feed_forward.norm": "pre_feedforward_layernorm",
        "around_feed_forward.after": "post_feedforward_layernorm",
    },
}


def config(values: ConfigValues) -> LanguageModelConfig:
    """Convert the config.

    Errors: a ValueError for an unsupported value.
    """
    values.only("hidden_act", "silu")
    kind, heads = values.get("model_type"), values.whole("num_attention_heads")
    context = values.whole("max_position_embeddings", 4096 if kind == "phi3" else 2048)
    width = max(1, values.whole("hidden_size") // heads)
    width = values.whole("head_dim", 128 if kind == "qwen3" else width)
    of_phi3: dict[str, Any] = {"width": width, "scalings": {}} if kind == "phi3" else {}
    biased = values.flag("attention_bias", default=False)
    return LanguageModelConfig(
        vocab_size=values.whole("vocab_size"),
        context_length=context,
        d_model=values.whole("hidden_size"),
        num_heads=heads,
        num_kv_heads=values.whole("num_key_value_heads", heads),
        head_dim=width,
        num_layers=values.whole("num_hidden_layers"),
        d_hidden=values.whole("intermediate_size"),
        positions="rotary",
        **rotary(values, context=context, **of_phi3),
        norm="rms",
        norm_eps=values.number("rms_norm_eps", _EPS.get(str(kind), 1e-6)),
        order="res_post" if kind == "olmo2" else "pre",
        query_key_norm={"qwen3": "head", "olmo2": "joined"}.get(str(kind), "none"),  # type: ignore[arg-type]
        feed_forward="swiglu",
        bias=values.flag("mlp_bias", default=False),
        qkv_bias=biased or kind == "qwen2",
        output_bias=biased,
        dropout=values.number("resid_pdrop", 0.0),
        attention_dropout=values.number("attention_dropout", 0.0),
        tied=values.flag("tie_word_embeddings", default=False),
        **_windows(values),
    )


def sources(config: LanguageModelConfig, names: Iterable[str]) -> dict[str, TensorSource]:
    """Return the source of each of our tensors; `names` are the stored ones."""
    names = set(names)
    at = "model." if any(name.startswith("model.") for name in names) else ""
    found = {
        "embedding.tokens.weight": same(f"{at}embed_tokens.weight"),
        "norm.weight": same(f"{at}norm.weight"),
    }
    if not config.tied:
        found["output.weight"] = same("lm_head.weight")
    queries, gates = [f"self_attn.{one}_proj" for one in "qkv"], ["mlp.gate_proj", "mlp.up_proj"]
    if f"{at}layers.0.self_attn.qkv_proj.weight" in names:
        # Phi-3 has them stacked as we do.
        queries, gates = ["self_attn.qkv_proj"], ["mlp.gate_up_proj"]
    norms = dict(_NORMS[config.order])
    if config.query_key_norm != "none":
        norms |= {f"attention.query_key_norm.{one}": f"self_attn.{one[0]}_norm" for one in _NORMED}
    for layer in range(config.num_layers):
        for ours, theirs, biased in (
            ("attention.projections.stacks.0", queries, config.qkv_bias),
            ("attention.output", ["self_attn.o_proj"], config.output_bias),
            ("feed_forward.hidden.stacks.0", gates, config.bias),
            ("feed_forward.output", ["mlp.down_proj"], config.bias),
            *((ours, [theirs], False) for ours, theirs in norms.items()),
        ):
            for part in ("weight", "bias") if biased else ("weight",):
                found[f"blocks.{layer}.{ours}.{part}"] = stacked(
                    *(f"{at}layers.{layer}.{one}.{part}" for one in theirs)
                )
    return found


def ignored(config: LanguageModelConfig) -> tuple[str, ...]:
    """Return patterns of stored tensors that are not used."""
    return (*_IGNORED, "lm_head.weight") if config.tied else _IGNORED


def _windows(values: ConfigValues) -> dict[str, Any]:
    """Return the fields of our config that tell of windows."""
    kind = values.get("model_type")
    of_qwen = kind in ("qwen2", "qwen3")
    # Null means that there is none.
    default = _WINDOW if kind == "mistral" or of_qwen else None
    default = None if "sliding_window" in values else default
    if kind in ("llama", "olmo2") or values.get("sliding_window", default) is None:
        return {}
    if of_qwen and not values.flag("use_sliding_window", default=False):
        return {}
    before = values.number("max_window_layers", _BEFORE_WINDOWS) if of_qwen else 0
    usual = [layer >= before for layer in range(values.whole("num_hidden_layers"))]
    sliding = sliding_layers(values, usual) if of_qwen or kind == "mistral" else usual
    return windows(sliding, values.whole("sliding_window", default) - 1)
