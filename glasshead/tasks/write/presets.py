"""Presets: settings that are known to work, from two minutes on two cores upwards."""

from dataclasses import dataclass
from typing import Any

from glasshead.models.config import closest


@dataclass(frozen=True)
class Preset:
    """A starting point; `--set` changes any of it.

    Attributes:
        about: What it is for, in a line.
        data: Of `WriteData`.
        model: Of `LanguageModelConfig`.
        training: Of `TrainingSettings`.
    """

    about: str
    data: dict[str, Any]
    model: dict[str, Any]
    training: dict[str, Any]


PRESETS = {
    "tiny": Preset(
        about="two minutes on two cores",
        data={"tokenizer": "bpe", "vocabulary": 512, "batch_size": 16},
        model={
            "context_length": 128,
            "d_model": 96,
            "num_heads": 4,
            "num_layers": 3,
            "dropout": 0.0,
            "positions": "rotary",
        },
        training={
            "steps": 800,
            "learning_rate": 3e-3,
            "minimum_learning_rate": 3e-4,
            "warmup": 50,
            "validate_every": 200,
            "save_every": 100,
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
            "learning_rate": 1e-3,
            "minimum_learning_rate": 1e-4,
            "warmup": 100,
            "betas": (0.9, 0.99),
            "validate_every": 500,
            "save_every": 250,
        },
    ),
}


def preset(name: str) -> Preset:
    """The preset of a name.

    Errors: a ValueError where there is none.

    >>> preset("nano").model["d_model"]
    128
    """
    if name not in PRESETS:
        raise ValueError(f"--preset knows no {name!r}{closest(name, PRESETS)}.")
    return PRESETS[name]
