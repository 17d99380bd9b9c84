"""Train a classifier: settings, presets, the objective, the job."""

from collections.abc import Mapping
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from glasshead.models import Classifier, ClassifierConfig
from glasshead.tasks.classify.data import (
    ClassifyData,
    LabelledBatches,
    LabelledCorpus,
    make_tokenizer,
    read_corpus,
)
from glasshead.tasks.job import Job, Prepared
from glasshead.tasks.loss import CrossEntropyObjective
from glasshead.tasks.run_settings import Preset, RunSettings
from glasshead.tasks.tokenizers.tokenizer import Tokenizer

# What serves a small model better than the parts of 2017: Touvron et al. 2023, section 2.2.
_MODERN = {"positions": "rotary", "norm": "rms", "feed_forward": "swiglu", "bias": False}

PRESETS = {
    "tiny": Preset(
        about="a minute on two cores",
        data={"vocabulary": 1000, "first": 64, "last": 0, "batch_tokens": 1500},
        model={
            **_MODERN,
            "context_length": 64,
            "d_model": 64,
            "num_heads": 4,
            "num_layers": 2,
            "dropout": 0.1,
        },
        training={
            "steps": 1000,
            "learning_rate": 1e-3,
            "warmup": 100,
            "validate_every": 200,
            "save_every": 200,
        },
    ),
    "small": Preset(
        about="some minutes on two cores, for texts of hundreds of words",
        data={
            "vocabulary": 20_000,
            "first": 400,
            "last": 400,
            "batch_tokens": 12_800,
            "blocks": 50,
        },
        model={
            "positions": "rotary",
            "context_length": 800,
            "d_model": 64,
            "d_hidden": 64,
            "num_heads": 4,
            "num_layers": 1,
            # Above the embeddings of rare words, which so stay as quiet as they are rare.
            "norm_eps": 0.1,
            "dropout": 0.2,
            "embedding_dropout": 0.5,
            "word_dropout": 0.6,
        },
        training={
            "steps": 2200,
            "learning_rate": 1e-3,
            "warmup": 100,
            "validate_every": 275,
            "save_every": 275,
        },
    ),
    "base": Preset(
        about="for a GPU",
        data={
            "tokenizer": "bpe",
            "vocabulary": 32_000,
            "first": 256,
            "last": 256,
            "batch_tokens": 32_768,
        },
        model={
            **_MODERN,
            "context_length": 512,
            "d_model": 512,
            "num_heads": 8,
            "num_layers": 6,
            "dropout": 0.2,
            "word_dropout": 0.1,
        },
        training={
            "steps": 10_000,
            "learning_rate": 5e-4,
            "warmup": 500,
            "validate_every": 500,
            "save_every": 500,
            "patience": 5,
        },
    ),
    "course": Preset(
        about="rung 9 of the ladder, trained as in the course notebook, but with padding masked",
        data={
            "vocabulary": 50_002,
            "first": 200,
            "last": 0,
            "batch_tokens": 32_800,
            "held_out": 0.1,
        },
        model={
            "context_length": 200,
            "d_model": 32,
            "num_heads": 2,
            "num_layers": 1,
            "d_hidden": 128,
            "positions": "sinusoidal",
            "norm": "layer",
            "norm_eps": 1e-6,
            "order": "post",
            "feed_forward": "relu",
            "qkv_bias": False,
            "dropout": 0.0,
            "pooling": "max",
            "embedding_norm": True,
            "initial": "torch",
        },
        training={
            "steps": 1240,
            "learning_rate": 1e-3,
            "minimum_learning_rate": 1e-3,
            "weight_decay": 0.01,
            "betas": (0.9, 0.999),
            "clip": None,
            "validate_every": 124,
            "save_every": 124,
        },
    ),
}


class ClassifySettings(RunSettings):
    """Settings of a classifier's training run: data, model and training.

    >>> ClassifySettings.from_preset("course", ["steps=500"]).model["d_model"]
    32
    """

    task = "classify"
    data_kind = ClassifyData
    config_kind = ClassifierConfig
    presets = PRESETS
    unknown: ClassVar[Mapping[str, int]] = {"vocab_size": 1, "num_answers": 2}


class ClassifyObjective(CrossEntropyObjective[Classifier]):
    """Cross-entropy of the labels, -Σ ln p(answer | text), in nats, with label smoothing.

    Args: as of `CrossEntropyObjective`.
    """

    def logits(self, batch: dict[str, Tensor]) -> Float[Tensor, "batch answers"]:
        """Return the logits of the labels of each text."""
        return self.model(batch["tokens"], batch["lengths"])


def prepare(
    settings: ClassifySettings, corpus: LabelledCorpus, tokenizer: Tokenizer
) -> Prepared[ClassifySettings]:
    """Build the untrained model and the batches of texts.

    Errors: a ValueError where truncated texts are longer than a batch or the model's context.
    """
    data = settings.data
    config = settings.model_config(vocab_size=tokenizer.vocab_size, num_answers=len(data.answers))
    read = data.first + data.last
    for name, room in (
        ("batch_tokens", data.batch_tokens),
        ("context_length", config.context_length),
    ):
        if read > room:
            raise ValueError(
                f"{name} takes at least first + last, which is {read}, and got {room}: set it "
                "higher, or first and last lower."
            )
    seed = settings.training.seed
    return Prepared(
        settings=settings,
        config=config,
        task=ClassifyObjective(Classifier(config), settings.training.label_smoothing),
        source=LabelledBatches(tokenizer, corpus.training, data, seed),
        held_out=LabelledBatches(tokenizer, corpus.held_out, data),
        about=f"{len(corpus.training):,} texts to train on, {len(corpus.held_out):,} held out, "
        f"labelled {' or '.join(data.answers)}",
    )


CLASSIFY = Job("A classifier", ClassifySettings, read_corpus, make_tokenizer, prepare, Classifier)
