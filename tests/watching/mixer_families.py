"""Families of transformers that mix tokens without attention, with small random weights."""

from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

_BASE = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
    "initializer_range": 0.3,
}
_LINEAR = ["linear_attention", "full_attention", "linear_attention"]
_DELTA = {
    "linear_num_value_heads": 6,
    "linear_num_key_heads": 3,
    "linear_key_head_dim": 5,
    "linear_value_head_dim": 7,
    "linear_conv_kernel_dim": 3,
    "layer_types": _LINEAR,
}
_EXPERTS = {
    "num_experts": 3,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
_MAMBA = {"mamba_d_state": 5, "mamba_d_conv": 3, "mamba_expand": 2}
_MAMBA_2 = {
    "mamba_n_heads": 8,
    "mamba_d_head": 8,
    "mamba_n_groups": 2,
    "mamba_chunk_size": 4,
    **_MAMBA,
}
_ALONE = {
    "vocab_size": 61,
    "hidden_size": 32,
    "state_size": 5,
    "num_hidden_layers": 2,
    "conv_kernel": 3,
    "initializer_range": 0.3,
}
_CONVOLUTION = {"conv_L_cache": 3, "layer_types": ["conv", "full_attention", "conv"]}

_KIMI = {name: value for name, value in _BASE.items() if name != "head_dim"} | {
    "num_key_value_heads": 4,
    "linear_num_heads": 3,
    "linear_head_dim": 7,
    "linear_conv_kernel_dim": 3,
    "layer_types": _LINEAR,
    "kv_lora_rank": 7,
    "q_lora_rank": None,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 6,
    "v_head_dim": 5,
    "n_routed_experts": 3,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
}
_KIMI_RULE = ["0.self_attn", "2.self_attn"], "Kimi delta attention"

_RULE = ["0.linear_attn", "2.linear_attn"], "gated delta rule"

# For each family its settings, the modules that mix, and what kind they are.
FAMILIES: dict[str, tuple[dict[str, Any], list[str], str]] = {
    "Qwen3Next": (
        _BASE | _DELTA | _EXPERTS,
        ["0.linear_attn", "2.linear_attn"],
        "gated delta rule",
    ),
    "Qwen3_5Text": (_BASE | _DELTA, *_RULE),
    "Qwen3_5MoeText": (_BASE | _DELTA | _EXPERTS, *_RULE),
    "Qwen4ExpText": (
        _BASE
        | _DELTA
        | _EXPERTS
        | {"layer_types": ["linear_attention", "indexed_attention", "linear_attention"]}
        | {"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 8}
        | {"indexer_budget": 4, "indexer_compress_ratio": 2, "hc_count": 2, "hc_lowrank": 4},
        *_RULE,
    ),
    "OlmoHybrid": (_BASE | _DELTA, *_RULE),
    "KimiLinear": (_KIMI, *_KIMI_RULE),
    "BailingHybrid": (_KIMI, *_KIMI_RULE),
    "Glm5NextText": (
        _KIMI
        | {"q_lora_rank": 9, "qk_rope_head_dim": 0, "hc_mult": 2}
        | {"index_topk": 4, "index_head_dim": 4, "index_n_heads": 2, "index_kpool": 2},
        *_KIMI_RULE,
    ),
    "Mamba": (_ALONE | {"time_step_rank": 3}, ["0.mixer", "1.mixer"], "Mamba"),
    "FalconMamba": (_ALONE | {"time_step_rank": 3}, ["0.mixer", "1.mixer"], "Mamba"),
    "Jamba": (
        _BASE
        | _MAMBA
        | {"mamba_dt_rank": 3, "num_experts": 2, "num_experts_per_tok": 1}
        | {"attn_layer_period": 2, "attn_layer_offset": 1},
        ["0.mamba", "2.mamba"],
        "Mamba",
    ),
    "Mamba2": (
        _ALONE | {"num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 4},
        ["0.mixer", "1.mixer"],
        "Mamba-2",
    ),
    "Bamba": (_BASE | _MAMBA_2 | {"attn_layer_indices": [1]}, ["0.mamba", "2.mamba"], "Mamba-2"),
    "FalconH1": (
        _BASE | _MAMBA_2 | {"mamba_d_ssm": 64},
        ["0.mamba", "1.mamba", "2.mamba"],
        "Mamba-2",
    ),
    "NemotronH": (
        _BASE
        | {"mamba_num_heads": 8, "mamba_head_dim": 8, "ssm_state_size": 5, "n_groups": 2}
        | {"chunk_size": 4, "conv_kernel": 3, "layers_block_type": ["mamba", "attention", "mamba"]},
        ["0.mixer", "2.mixer"],
        "Mamba-2",
    ),
    "GraniteMoeHybrid": (
        _BASE
        | _MAMBA_2
        | {"shared_intermediate_size": 16, "num_local_experts": 2, "num_experts_per_tok": 1}
        | {"layer_types": ["mamba", "attention", "mamba"]},
        ["0.mamba", "2.mamba"],
        "Mamba-2",
    ),
    "Zamba2": (
        _BASE
        | {"mamba_d_state": 5, "mamba_d_conv": 3, "mamba_expand": 2, "n_mamba_heads": 8}
        | {"mamba_ngroups": 2, "chunk_size": 4, "num_mem_blocks": 1}
        | {"layers_block_type": ["mamba", "hybrid", "mamba"]},
        ["0.mamba", "1.mamba_decoder.mamba", "2.mamba"],
        "Mamba-2",
    ),
    "MiniMax": (
        _BASE
        | {"layer_types": _LINEAR, "block_size": 4}
        | {"num_local_experts": 2, "num_experts_per_tok": 1},
        ["0.self_attn", "2.self_attn"],
        "lightning attention",
    ),
    "RecurrentGemma": (
        {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3}
        | {"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 8, "lru_width": 32}
        | {"conv1d_width": 3, "attention_window_size": 32},
        ["0.temporal_block", "1.temporal_block"],
        "RG-LRU",
    ),
    "Lfm2": (_BASE | _CONVOLUTION | {"conv_bias": True}, ["0.conv", "2.conv"], "short convolution"),
    "Lfm2Moe": (_BASE | _CONVOLUTION | _EXPERTS, ["0.conv", "2.conv"], "short convolution"),
    "Lfm3": (_BASE | _CONVOLUTION, ["0.conv", "2.conv"], "short convolution"),
    "InklingText": (
        _BASE | _EXPERTS | {"num_hidden_layers": 2},
        [
            f"{layer}.{part}"
            for layer in range(2)
            for part in ("self_attn.k_sconv", "self_attn.v_sconv", "attn_sconv", "mlp_sconv")
        ],
        "short convolution",
    ),
    "xLSTM": (
        {"vocab_size": 61, "hidden_size": 128, "num_hidden_layers": 2, "num_heads": 4},
        ["0.mlstm_layer", "1.mlstm_layer"],
        "mLSTM",
    ),
    "Rwkv": (
        {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "context_length": 64},
        ["0.attention", "1.attention"],
        "RWKV",
    ),
}
# Zamba scans each of its heads by itself, and each is a run of its module.
SEVERAL = {
    "Zamba": _BASE
    | {"num_hidden_layers": 5, "mamba_d_state": 5, "mamba_d_conv": 3, "mamba_dt_rank": 3}
    | {"n_mamba_heads": 2, "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid", "mamba"]}
}


@cache
def built(name: str) -> nn.Module:
    """The model of a family, the same one each time."""
    import transformers

    if not hasattr(transformers, f"{name}Config"):
        pytest.skip(f"this version of transformers has no {name}")
    torch.manual_seed(7)
    settings = SEVERAL[name] if name in SEVERAL else FAMILIES[name][0]
    config = getattr(transformers, f"{name}Config")(**settings)
    written = name.removesuffix("Text")
    known = getattr(transformers, f"{written}ForCausalLM", None)
    model = (known or transformers.AutoModel.from_config)(config).eval()
    for parameter, values in model.named_parameters():
        # These begin with zeros or ones.
        if parameter.endswith(("bias", ".D")):
            nn.init.normal_(values, 0.0, 0.3)
    return model
