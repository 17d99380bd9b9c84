"""Train a translator: settings, presets, the objective, the job."""

import math

from jaxtyping import Float
from torch import Tensor

from glasshead.models import Translator, TranslatorConfig
from glasshead.tasks.job import Job, Prepared
from glasshead.tasks.loss import CrossEntropyObjective
from glasshead.tasks.run_settings import Preset, RunSettings
from glasshead.tasks.tokenizers.tokenizer import Tokenizer
from glasshead.tasks.translate.data import (
    PairBatches,
    ParallelCorpus,
    TranslateData,
    make_tokenizer,
    read_corpus,
)

# Better for small models than the components of 2017: Touvron et al. 2023, section 2.2.
_MODERN = {"positions": "rotary", "norm": "rms", "feed_forward": "swiglu", "bias": False}
# Muon converges in fewer steps than AdamW: Jordan et al. 2024.
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


class TranslateSettings(RunSettings):
    """Settings of a translator's training run: data, model and training.

    >>> TranslateSettings.from_preset("small", ["steps=500", "d_model=64"]).training.steps
    500
    """

    task = "translate"
    data_kind = TranslateData
    config_kind = TranslatorConfig
    presets = PRESETS


class TranslateObjective(CrossEntropyObjective[Translator]):
    """Cross-entropy, -Σ_t ln p(y_t | y_0 … y_{t-1}, x), in nats, with label smoothing.

    Args: as of `CrossEntropyObjective`.

    Source: Vaswani et al. 2017, section 5.4, for the smoothing.
    """

    def logits(self, batch: dict[str, Tensor]) -> Float[Tensor, "batch length vocab"]:
        """Return the logits of the next token at each position of the translation."""
        return self.model(batch["source"], batch["lengths"], batch["target"])

    def metrics(self, sums: dict[str, float]) -> dict[str, float]:
        """Return the loss in nats per token, the perplexity, and the token accuracy."""
        metrics = super().metrics(sums)
        perplexity = math.exp(min(metrics["loss"], 700.0))
        return {"loss": metrics["loss"], "perplexity": perplexity, "accuracy": metrics["accuracy"]}


def prepare(
    settings: TranslateSettings, corpus: ParallelCorpus, tokenizer: Tokenizer
) -> Prepared[TranslateSettings]:
    """Build the untrained model and the batches of pairs.

    Errors: a ValueError where a text is longer than the model's context, or than a batch.
    """
    config = settings.model_config(vocab_size=tokenizer.vocab_size)
    tokens, seed = settings.data.batch_tokens, settings.training.seed
    source = PairBatches(tokenizer, corpus.training, tokens, seed)
    held_out = PairBatches(tokenizer, corpus.held_out, tokens)
    for part in (source, held_out):
        for name, room in (("context_length", config.context_length), ("batch_tokens", tokens)):
            if part.longest > room:
                raise ValueError(
                    f"{name} takes at least {part.longest}, the tokens of the longest text, and "
                    f"got {room}: set it higher, or leave that text out."
                )
    about = f"{len(corpus.training):,} pairs to train on, {len(corpus.held_out):,} held out"
    if corpus.empty:
        about += f", {corpus.empty:,} with an empty side left out"
    return Prepared(
        settings=settings,
        config=config,
        task=TranslateObjective(Translator(config), settings.training.label_smoothing),
        source=source,
        held_out=held_out,
        about=about,
    )


TRANSLATE = Job("A translator", TranslateSettings, read_corpus, make_tokenizer, prepare, Translator)
