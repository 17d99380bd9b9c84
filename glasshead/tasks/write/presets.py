"""Presets: settings that are known to work, from two minutes on two cores upwards."""

from glasshead.tasks.runs import Preset

# What serves a small model better than GPT-2's parts: Touvron et al. 2023 (Llama), section 2.2.
_MODERN = {"positions": "rotary", "norm": "rms", "feed_forward": "swiglu", "bias": False}
# Muon makes more of each step than AdamW: Jordan et al. 2024.
_MUON = {"optimizer": "muon", "betas": (0.9, 0.99)}

PRESETS = {
    "tiny": Preset(
        about="two minutes on two cores",
        data={"tokenizer": "bpe", "vocabulary": 512, "batch_size": 8},
        model={
            **_MODERN,
            "context_length": 96,
            "d_model": 128,
            "num_heads": 4,
            "num_layers": 2,
            "dropout": 0.0,
        },
        training={
            **_MUON,
            "steps": 2200,
            "learning_rate": 5e-3,
            "warmup": 30,
            "validate_every": 440,
            "save_every": 110,
        },
    ),
    "small": Preset(
        about="ten minutes on two cores",
        data={"tokenizer": "characters", "batch_size": 8},
        model={
            **_MODERN,
            "context_length": 256,
            "d_model": 192,
            "num_heads": 6,
            "num_layers": 4,
            "dropout": 0.05,
        },
        training={
            **_MUON,
            "steps": 1900,
            "learning_rate": 7e-3,
            "weight_decay": 0.3,
            "warmup": 50,
            "validate_every": 380,
            "save_every": 100,
        },
    ),
    "base": Preset(
        about="some hours on a GPU",
        data={"tokenizer": "bpe", "vocabulary": 8192, "batch_size": 64},
        model={
            **_MODERN,
            "context_length": 512,
            "d_model": 512,
            "num_heads": 8,
            "num_layers": 8,
            "dropout": 0.1,
        },
        training={
            **_MUON,
            "steps": 20_000,
            "learning_rate": 4e-3,
            "minimum_learning_rate": 4e-4,
            "warmup": 500,
            "validate_every": 1000,
            "save_every": 500,
            "patience": 5,
        },
    ),
    "nano": Preset(
        about="nanoGPT's setting for a CPU: 4 layers, 4 heads, width 128, context 64, by character",
        data={"tokenizer": "characters", "batch_size": 12},
        model={
            "context_length": 64,
            "d_model": 128,
            "num_heads": 4,
            "num_layers": 4,
            "dropout": 0.0,
            "bias": False,
        },
        training={
            "steps": 2000,
            # Three times nanoGPT's, by which its 2000 steps reach further.
            "learning_rate": 3e-3,
            "minimum_learning_rate": 3e-4,
            "warmup": 100,
            "betas": (0.9, 0.99),
            "validate_every": 500,
            "save_every": 250,
        },
    ),
}
