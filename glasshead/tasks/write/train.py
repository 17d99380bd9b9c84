"""Train a language model: settings, presets, the objective, the job."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.models import LanguageModel, LanguageModelConfig
from glasshead.tasks.job import Job, Prepared
from glasshead.tasks.loss import IGNORED, cross_entropy
from glasshead.tasks.run_settings import Preset, RunSettings
from glasshead.tasks.tokenizers.tokenizer import Tokenizer
from glasshead.tasks.write.data import (
    HeldOutWindows,
    TextCorpus,
    TrainingWindows,
    WriteData,
    make_tokenizer,
    read_corpus,
    tokenized,
)

# Better for small models than GPT-2's components: Touvron et al. 2023 (Llama), section 2.2.
_MODERN = {"positions": "rotary", "norm": "rms", "feed_forward": "swiglu", "bias": False}
# Muon converges in fewer steps than AdamW: Jordan et al. 2024.
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
            # Three times nanoGPT's, which reaches a lower loss in 2000 steps.
            "learning_rate": 3e-3,
            "minimum_learning_rate": 3e-4,
            "warmup": 100,
            "betas": (0.9, 0.99),
            "validate_every": 500,
            "save_every": 250,
        },
    ),
}


class WriteSettings(RunSettings):
    """Settings of a language model's training run: data, model and training.

    >>> WriteSettings.from_preset("nano", ["steps=500", "d_model=64"]).training.steps
    500
    """

    task = "write"
    data_kind = WriteData
    config_kind = LanguageModelConfig
    presets = PRESETS


class LanguageModelObjective:
    """Cross-entropy of the next token, -Σ_t ln p(token_{t+1} | token_0 … token_t), in nats.

    Args:
        model: The language model.
        characters: Number of characters of the held-out targets, for bits per character.
        smoothing: Label smoothing ε, in training only.
    """

    monitor = "loss"
    higher_is_better = False

    def __init__(self, model: LanguageModel, characters: int, smoothing: float = 0.0) -> None:
        self.model = model
        self.characters = characters
        self.smoothing = smoothing

    def loss(self, batch: dict[str, Tensor]) -> Float[Tensor, ""]:
        """Return the loss, summed over the targets, in nats, with label smoothing."""
        return self._loss(batch, self.smoothing)

    def validate(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the sums `loss`, without smoothing, and `targets` of a batch."""
        return {"loss": self._loss(batch, 0.0), "targets": torch.sum(batch["targets"] != IGNORED)}

    def metrics(self, sums: dict[str, float]) -> dict[str, float]:
        """Return the loss in nats per token, the perplexity, and bits per character."""
        loss = sums["loss"] / sums["targets"]
        return {
            "loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),
            "bits_per_character": sums["loss"] / math.log(2) / max(1, self.characters),
        }

    def _loss(self, batch: dict[str, Tensor], smoothing: float) -> Tensor:
        return cross_entropy(self.model(batch["tokens"]), batch["targets"], smoothing)


def prepare(
    settings: WriteSettings, corpus: TextCorpus, tokenizer: Tokenizer
) -> Prepared[WriteSettings]:
    """Build the untrained model and the windows of text.

    Errors: a ValueError where the text is shorter than the model's context.
    """
    config = settings.model_config(vocab_size=tokenizer.vocab_size)
    length = config.context_length
    training, held_out = (tokenized(tokenizer, x) for x in (corpus.training, corpus.held_out))
    for name, part, least in (("training", training, length + 1), ("held-out", held_out, 2)):
        if len(part.ids) < least:
            raise ValueError(
                f"the {name} part of the text takes at least {least} tokens, and has "
                f"{len(part.ids)}: give more text, or a smaller --set context_length."
            )
    return Prepared(
        settings=settings,
        config=config,
        task=LanguageModelObjective(
            LanguageModel(config), held_out.characters, settings.training.label_smoothing
        ),
        source=TrainingWindows(
            training.ids, length, settings.data.batch_size, settings.training.seed
        ),
        held_out=HeldOutWindows(held_out.ids, length),
        about=f"{len(training.ids):,} tokens to train on, {len(held_out.ids):,} held out",
    )


WRITE = Job("A language model", WriteSettings, read_corpus, make_tokenizer, prepare, LanguageModel)
