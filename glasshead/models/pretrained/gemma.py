"""Gemma 2 and 3: convert their configs and tensors to ours.

Source: Gemma Team 2024 (Gemma 2), section 2; Gemma Team 2025 (Gemma 3), section 2.
"""

from collections.abc import Iterable

from torch import Tensor

from glasshead.models.language_model import LanguageModelConfig
from glasshead.models.pretrained import llama
from glasshead.models.pretrained.folder import GATED_FEED_FORWARDS, ConfigValues, TensorSource
from glasshead.models.pretrained.rope import local_base, rotary, sliding_layers, windows

# Where a config of Gemma 2 tells none; Gemma 3 has none.
_SCORE_CAP, _LOGIT_CAP = 50.0, 30.0

ignored = llama.ignored


def config(values: ConfigValues) -> LanguageModelConfig:
    """Convert the config.

    Errors: a ValueError for an unsupported value.
    """
    values.only("use_bidirectional_attention", False)
    second = values.get("model_type") == "gemma2"
    context = values.whole("max_position_embeddings", 8192 if second else 131_072)
    d_model, width = values.whole("hidden_size"), values.whole("head_dim", 256)
    scalar = values.number("query_pre_attn_scalar", 256)
    if scalar <= 0:
        raise ValueError(
            f"{values.where} takes query_pre_attn_scalar as a number above 0, and has {scalar}."
        )
    biased = values.flag("attention_bias", default=False)
    # Every second layer of Gemma 2 sees all, and every sixth one of Gemma 3.
    every = 2 if second else values.whole("sliding_window_pattern", 6)
    usual = [bool((layer + 1) % every) for layer in range(values.whole("num_hidden_layers"))]
    near_base = None if second else local_base(values, "rope_local_base_freq", 10_000.0)
    return LanguageModelConfig(
        vocab_size=values.whole("vocab_size"),
        context_length=context,
        d_model=d_model,
        num_heads=values.whole("num_attention_heads"),
        num_kv_heads=values.whole("num_key_value_heads", 4),
        head_dim=width,
        num_layers=values.whole("num_hidden_layers"),
        d_hidden=values.whole("intermediate_size"),
        positions="rotary",
        **rotary(values, context=context, base=10_000.0 if second else 1e6),
        **windows(
            sliding_layers(values, usual), values.whole("sliding_window", 4096) - 1, near_base
        ),
        norm="rms",
        norm_eps=values.number("rms_norm_eps", 1e-6),
        order="sandwich",
        query_key_norm="none" if second else "head",
        score_scale=None if scalar == width else scalar**-0.5,
        softcap=_cap(values, "attn_logit_softcapping", _SCORE_CAP if second else None),
        feed_forward=values.choice("hidden_activation", "gelu_pytorch_tanh", GATED_FEED_FORWARDS),  # type: ignore[arg-type]
        bias=False,
        qkv_bias=biased,
        output_bias=biased,
        dropout=0.0,
        attention_dropout=values.number("attention_dropout", 0.0),
        tied=values.flag("tie_word_embeddings", default=True),
        embedding_scale=d_model**0.5,
        logit_softcap=_cap(values, "final_logit_softcapping", _LOGIT_CAP if second else None),
    )


def sources(config: LanguageModelConfig, names: Iterable[str]) -> dict[str, TensorSource]:
    """Return the source of each of our tensors; `names` are the stored ones.

    The norms of Gemma multiply by 1 + weight, ours by the weight.
    """
    return {
        name: TensorSource(source.names, _one_more) if "norm" in name or "after" in name else source
        for name, source in llama.sources(config, names).items()
    }


def _one_more(weight: Tensor) -> Tensor:
    # A half-precision sum would lose digits of small weights.
    return weight.double() + 1.0


def _cap(values: ConfigValues, name: str, default: float | None) -> float | None:
    """Return a softcap; null means that there is none."""
    if values.get(name) is None:
        return None if name in values else default
    return values.number(name, 0.0)
