"""Presets: settings that are known to work, from two minutes on two cores upwards."""

from glasshead.tasks.runs import Preset

# What serves a small model better than the parts of 2017: Touvron et al. 2023, section 2.2.
_MODERN = {"positions": "rotary", "norm": "rms", "feed_forward": "swiglu", "bias": False}
# Muon makes more of each step than AdamW: Jordan et al. 2024.
_MUON = {"optimizer": "muon", "betas": (0.9, 0.98), "label_smoothing": 0.1}

PRESETS = {
    "tiny": Preset(
        about="two minutes on two cores",
        data={"tokenizer": "bpe", "vocabulary": 1000, "batch_tokens": 1000},
        model={
            **_MODERN,
            "context_length": 64,
            "d_model": 96,
            "num_heads": 4,
            "num_layers": 2,
            "num_decoder_layers": 1,
            "dropout": 0.1,
        },
        training={
            **_MUON,
            "steps": 1000,
            "learning_rate": 5e-3,
            "warmup": 50,
            "validate_every": 200,
            "save_every": 200,
        },
    ),
    "small": Preset(
        about="an hour or so on two cores",
        data={"tokenizer": "bpe", "vocabulary": 8000, "lowercase": True, "batch_tokens": 3000},
        model={
            **_MODERN,
            "context_length": 256,
            "d_model": 256,
            "num_heads": 4,
            "num_layers": 3,
            "d_hidden": 512,
            "dropout": 0.25,
        },
        training={
            **_MUON,
            "steps": 2385,
            "learning_rate": 3e-3,
            "warmup": 200,
            "validate_every": 159,
            "save_every": 80,
        },
    ),
    "base": Preset(
        about="for a GPU: of the size of the base model of Vaswani et al. 2017",
        data={"tokenizer": "bpe", "vocabulary": 32_000, "batch_tokens": 25_000},
        model={
            **_MODERN,
            "context_length": 512,
            "d_model": 512,
            "num_heads": 8,
            "num_layers": 6,
            "dropout": 0.1,
        },
        training={
            **_MUON,
            "steps": 50_000,
            "learning_rate": 2e-3,
            "warmup": 1000,
            "validate_every": 1000,
            "save_every": 500,
            "patience": 10,
        },
    ),
}
