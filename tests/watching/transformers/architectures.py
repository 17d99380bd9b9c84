"""Architectures of transformers with small random weights, and batches of padded texts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from packaging.version import Version
from torch import nn

import watched_models as models

# The real tokens of the three texts of a batch; one of them is a single token.
LENGTHS = (11, 6, 1)
SOURCE_LENGTHS = (2, 13, 5)
PAD = 0
IMAGE_SIZE, PATCH_SIZE = 12, 4


@dataclass(frozen=True)
class Architecture:
    """One architecture: how it is built, where its attention is, and how it takes a text.

    Attributes:
        build: Takes an attention mode.
        attentions: The name of the attention of each layer, by the output that has its weights.
        kind: "encoder", "decoder", "encoder-decoder", "image" or "sound": what it reads.
        modes: The attention modes that it has.
        dtype: The most precise that it runs in.
        positions: Whether `forward` takes `position_ids`.
        tables: The modules of absolute positions that cannot be told where a text begins.
    """

    build: Callable[[str], nn.Module]
    attentions: dict[str, str]
    kind: str
    modes: tuple[str, ...] = ("sdpa", "eager")
    dtype: torch.dtype = torch.float64
    positions: bool = True
    tables: dict[str, str] = field(default_factory=dict)

    @property
    def has_decoder(self) -> bool:
        """Whether it reads a source and writes a text."""
        return self.kind in ("encoder-decoder", "sound")

    @property
    def writes(self) -> bool:
        """Whether it generates."""
        return self.kind == "decoder" or self.has_decoder

    def model(self, mode: str) -> nn.Module:
        """The model; the same one each time."""
        return _model(self.build, mode, self.dtype)

    def layers(self, model: nn.Module) -> dict[str, list[str]]:
        """The names of its attentions, layer by layer, by the output that has their weights."""
        count = model.config.get_text_config().num_hidden_layers
        return {
            output: [name.format(layer) for layer in range(count)]
            for output, name in self.attentions.items()
        }


@cache
def _model(build: Callable[[str], nn.Module], mode: str, dtype: torch.dtype) -> nn.Module:
    return build(mode).to(dtype)


def _decoder(name: str, attention: str, config: str = "", **changes: Any) -> nn.Module:
    import transformers

    sizes = models.sizes_of_a_decoder(**changes)
    settings = getattr(transformers, config or f"{name}Config")(**sizes)
    return models.built(getattr(transformers, f"{name}ForCausalLM"), settings, attention)


def _encoder(name: str, attention: str, **changes: Any) -> nn.Module:
    import transformers

    sizes = {
        "vocab_size": models.VOCABULARY,
        "hidden_size": 35,
        "num_hidden_layers": 2,
        "num_attention_heads": 5,
        "intermediate_size": 29,
        "max_position_embeddings": 64,
        "initializer_range": 0.4,
        "pad_token_id": PAD,
    }
    config = getattr(transformers, f"{name}Config")(**sizes | changes)
    return models.built(getattr(transformers, f"{name}Model"), config, attention)


def _translator(name: str, attention: str) -> nn.Module:
    import transformers

    config = getattr(transformers, f"{name}Config")(**models.sizes_of_a_translator())
    return models.built(getattr(transformers, f"{name}ForConditionalGeneration"), config, attention)


def qwen3(attention: str) -> nn.Module:
    return _decoder("Qwen3", attention)


def phi3(attention: str) -> nn.Module:
    return _decoder("Phi3", attention, hidden_size=60, sliding_window=None)


def gemma3(attention: str) -> nn.Module:
    windows = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
    return _decoder("Gemma3", attention, "Gemma3TextConfig", query_pre_attn_scalar=10, **windows)


def gpt_neox(attention: str) -> nn.Module:
    return _decoder("GPTNeoX", attention, hidden_size=60, initializer_range=0.15)


def opt(attention: str) -> nn.Module:
    changes = {"ffn_dim": 29, "word_embed_proj_dim": 30, "init_std": 0.3}
    return _decoder("OPT", attention, **changes)


def albert(attention: str) -> nn.Module:
    return _encoder("Albert", attention, num_hidden_layers=3, embedding_size=17)


def roberta(attention: str) -> nn.Module:
    return _encoder("Roberta", attention)


def distilbert(attention: str) -> nn.Module:
    sizes = {"dim": 35, "n_layers": 2, "n_heads": 5, "hidden_dim": 29}
    return _encoder("DistilBert", attention, **sizes)


def electra(attention: str) -> nn.Module:
    return _encoder("Electra", attention, embedding_size=17)


def modernbert(attention: str) -> nn.Module:
    windows = {"local_attention": 4, "layer_types": ["sliding_attention", "full_attention"]}
    changes = {"hidden_size": 30, "initializer_range": 0.3, "cls_token_id": 1, "sep_token_id": 2}
    return _encoder("ModernBert", attention, **windows, **changes, bos_token_id=1, eos_token_id=2)


def mbart(attention: str) -> nn.Module:
    return _translator("MBart", attention)


def pegasus(attention: str) -> nn.Module:
    return _translator("Pegasus", attention)


def m2m(attention: str) -> nn.Module:
    return _translator("M2M100", attention)


def vit(attention: str) -> nn.Module:
    return models.vit(attention, image_size=IMAGE_SIZE, patch_size=PATCH_SIZE)


_LAYERS = {"attentions": "model.layers.{}.self_attn"}
_ENCODER = {"attentions": "encoder.layer.{}.attention.self"}
# Transformers 4 tells DistilBERT's positions by itself.
_PLACED = {"positions": False, "tables": {"decoder": "embeddings.position_embeddings"}}
_TABLES = {
    "encoder": "model.encoder.embed_positions",
    "decoder": "model.decoder.embed_positions",
}
# Experts take no more, and of softmaxes in float32 the lowest number of float64 makes NaN.
_SINGLE = {"dtype": torch.float32}
# Before, its function of the eager mode was called without the interface.
MODERNBERT_MODES = ("sdpa", "eager") if Version("5.9") <= models.TRANSFORMERS else ("sdpa",)
ARCHITECTURES = {
    "llama": Architecture(models.llama, _LAYERS, "decoder"),
    "mistral": Architecture(models.mistral, _LAYERS, "decoder"),
    "qwen3": Architecture(qwen3, _LAYERS, "decoder"),
    "phi3": Architecture(phi3, _LAYERS, "decoder"),
    "gemma2": Architecture(models.gemma2, _LAYERS, "decoder", ("eager",), **_SINGLE),
    "gemma3": Architecture(gemma3, _LAYERS, "decoder", **_SINGLE),
    "gpt_oss": Architecture(models.gpt_oss, _LAYERS, "decoder", ("eager",), **_SINGLE),
    "gpt2": Architecture(models.gpt2, {"attentions": "transformer.h.{}.attn"}, "decoder"),
    "gpt_neox": Architecture(gpt_neox, {"attentions": "gpt_neox.layers.{}.attention"}, "decoder"),
    "opt": Architecture(opt, {"attentions": "model.decoder.layers.{}.self_attn"}, "decoder"),
    "bert": Architecture(models.bert, _ENCODER, "encoder"),
    "roberta": Architecture(roberta, _ENCODER, "encoder", positions=False),
    "electra": Architecture(electra, _ENCODER, "encoder"),
    "distilbert": Architecture(
        distilbert,
        {"attentions": "transformer.layer.{}.attention"},
        "encoder",
        **({} if models.TRANSFORMERS.major > 4 else _PLACED),
    ),
    "modernbert": Architecture(
        modernbert, {"attentions": "layers.{}.attn"}, "encoder", MODERNBERT_MODES, **_SINGLE
    ),
    "albert": Architecture(
        albert,
        {"attentions": "encoder.albert_layer_groups.0.albert_layers.0.attention#{}"},
        "encoder",
    ),
    "t5": Architecture(models.t5, models.NAMES[models.t5], "encoder-decoder", positions=False),
    "bart": Architecture(
        models.bart, models.NAMES[models.bart], "encoder-decoder", positions=False, tables=_TABLES
    ),
    "mbart": Architecture(
        mbart, models.NAMES[models.bart], "encoder-decoder", positions=False, tables=_TABLES
    ),
    "pegasus": Architecture(
        pegasus, models.NAMES[models.bart], "encoder-decoder", positions=False, tables=_TABLES
    ),
    "whisper": Architecture(
        models.whisper,
        models.NAMES[models.bart],
        "sound",
        positions=False,
        tables={"decoder": "model.decoder.embed_positions"},
    ),
    "vit": Architecture(vit, models.NAMES[models.vit], "image", positions=False),
}
