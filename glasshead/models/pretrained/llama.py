"""Llama, Mistral and Qwen2: convert their configs and tensors to ours.

Source: Touvron et al. 2023 (LLaMA), section 2.2; Llama Team 2024 (The Llama 3 herd of models),
section 3.2; Jiang et al. 2023 (Mistral 7B), section 2; Yang et al. 2024 (Qwen2), section 2.2.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from glasshead.models.language_model import LanguageModelConfig
from glasshead.models.pretrained.folder import ConfigValues, TensorSource, same, stacked

# Defaults of Mistral and Qwen2: the window, and Qwen2's number of layers without one.
_WINDOW, _BEFORE_WINDOWS = 4096, 28
# Rotary frequencies, which old files store as tensors.
_IGNORED = ("*.rotary_emb.inv_freq",)
_SCALINGS = {
    "linear": {"factor": "factor"},
    "llama3": {
        "factor": "factor",
        "low_freq_factor": "low_frequency_factor",
        "high_freq_factor": "high_frequency_factor",
        "original_max_position_embeddings": "original_length",
    },
    "yarn": {
        "factor": "factor",
        "beta_fast": "fast",
        "beta_slow": "slow",
        "original_max_position_embeddings": "original_length",
    },
}


def config(values: ConfigValues) -> LanguageModelConfig:
    """Convert the config.

    Errors: a ValueError for an unsupported value.
    """
    values.only("hidden_act", "silu")
    kind, heads = values.get("model_type"), values.whole("num_attention_heads")
    context = values.whole("max_position_embeddings", 2048)
    base, scaling = _rotary(values, context)
    biased = values.flag("attention_bias", default=False)
    return LanguageModelConfig(
        vocab_size=values.whole("vocab_size"),
        context_length=context,
        d_model=values.whole("hidden_size"),
        num_heads=heads,
        num_kv_heads=values.whole("num_key_value_heads", heads),
        head_dim=values.whole("head_dim", max(1, values.whole("hidden_size") // heads)),
        num_layers=values.whole("num_hidden_layers"),
        d_hidden=values.whole("intermediate_size"),
        positions="rotary",
        rotary_base=base,
        rotary_scaling=scaling,
        norm="rms",
        norm_eps=values.number("rms_norm_eps", 1e-6),
        feed_forward="swiglu",
        bias=values.flag("mlp_bias", default=False),
        qkv_bias=biased or kind == "qwen2",
        output_bias=biased,
        dropout=0.0,
        attention_dropout=values.number("attention_dropout", 0.0),
        tied=values.flag("tie_word_embeddings", default=False),
        window=_window(values),
    )


def sources(config: LanguageModelConfig, names: Iterable[str]) -> Mapping[str, TensorSource]:
    """Return the source of each of our tensors; `names` are the stored ones."""
    at = "model." if any(name.startswith("model.") for name in names) else ""
    found = {
        "embedding.tokens.weight": same(f"{at}embed_tokens.weight"),
        "norm.weight": same(f"{at}norm.weight"),
    }
    if not config.tied:
        found["output.weight"] = same("lm_head.weight")
    queries = [f"self_attn.{one}_proj" for one in "qkv"]
    for layer in range(config.num_layers):
        for ours, theirs, biased in (
            ("attention.projections.stacks.0", queries, config.qkv_bias),
            ("attention.output", ["self_attn.o_proj"], config.output_bias),
            ("feed_forward.hidden.stacks.0", ["mlp.gate_proj", "mlp.up_proj"], config.bias),
            ("feed_forward.output", ["mlp.down_proj"], config.bias),
            ("around_attention.norm", ["input_layernorm"], False),
            ("around_feed_forward.norm", ["post_attention_layernorm"], False),
        ):
            for part in ("weight", "bias") if biased else ("weight",):
                found[f"blocks.{layer}.{ours}.{part}"] = stacked(
                    *(f"{at}layers.{layer}.{one}.{part}" for one in theirs)
                )
    return found


def ignored(config: LanguageModelConfig) -> tuple[str, ...]:
    """Return patterns of stored tensors that are not used."""
    return (*_IGNORED, "lm_head.weight") if config.tied else _IGNORED


def _rotary(values: ConfigValues, context: int) -> tuple[float, dict[str, Any] | None]:
    """Return the base of the rotary angles, and their scaling."""
    given = values.get("rope_parameters") or values.get("rope_scaling") or {}
    if not isinstance(given, dict):
        raise ValueError(f"{values.where} takes rope_parameters as an object, and has {given!r}.")  # noqa: TRY004 - what the file has is a value
    rope = ConfigValues(given, f"{values.where}, rope_parameters")
    rope.only("partial_rotary_factor", 1.0)
    values.only("partial_rotary_factor", 1.0)
    base = rope.number("rope_theta", values.number("rope_theta", 10_000.0))
    kind = given.get("rope_type", given.get("type", "default"))
    if kind == "default":
        return base, None
    rope.choice("rope_type", kind, {one: one for one in _SCALINGS})
    for name in ("attention_factor", "mscale", "mscale_all_dim"):
        rope.only(name, None)
    rope.only("truncate", True)
    defaults = {"original_max_position_embeddings": context}
    scaling: dict[str, Any] = {"kind": kind}
    for theirs, ours in _SCALINGS[kind].items():
        # Null counts as missing.
        if rope.get(theirs) is not None or theirs in defaults:
            scaling[ours] = rope.number(theirs, float(defaults.get(theirs, 0)))
    return base, scaling


def _window(values: ConfigValues) -> int | None:
    """Return the sliding window of the layers; None without one.

    Errors: a ValueError where only some layers have a window.
    """
    kind = values.get("model_type")
    # Null means that there is none.
    default = _WINDOW if kind in ("mistral", "qwen2") and "sliding_window" not in values else None
    if values.get("sliding_window", default) is None or kind == "llama":
        return None
    if kind == "qwen2" and not values.flag("use_sliding_window", default=False):
        return None
    kinds = set(values.get("layer_types") or _layer_types(values, kind))
    if len(kinds) > 1:
        raise ValueError(
            f"{values.where} has a window in some layers and none in others, and glasshead knows "
            "one rule for all: watch the model of transformers itself, by gh.watch(model, …)."
        )
    return values.whole("sliding_window", default) if kinds == {"sliding_attention"} else None


def _layer_types(values: ConfigValues, kind: Any) -> set[str]:
    """Return the kinds of layers of a config without `layer_types`."""
    before = values.number("max_window_layers", _BEFORE_WINDOWS) if kind == "qwen2" else 0
    there = {
        "full_attention": before > 0,
        "sliding_attention": before < values.whole("num_hidden_layers"),
    }
    return {name for name, some in there.items() if some}
