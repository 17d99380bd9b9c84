"""DistilBERT: convert its config and tensors to ours.

Source: Sanh et al. 2019 (DistilBERT), section 3.
"""

from collections.abc import Iterable

from glasshead.models.encoder import EncoderConfig
from glasshead.models.pretrained.folder import (
    FEED_FORWARDS,
    ConfigValues,
    TensorSource,
    same,
    stacked,
)

_IGNORED = ("*embeddings.position_ids",)
_OUTPUT = "vocab_projector.weight"


def config(values: ConfigValues) -> EncoderConfig:
    """Convert the config.

    Errors: a ValueError for an unsupported value.
    """
    return EncoderConfig(
        vocab_size=values.whole("vocab_size"),
        context_length=values.whole("max_position_embeddings", 512),
        d_model=values.whole("dim"),
        num_heads=values.whole("n_heads"),
        num_layers=values.whole("n_layers"),
        d_hidden=values.whole("hidden_dim"),
        order="post",
        feed_forward=values.choice("activation", "gelu", FEED_FORWARDS),  # type: ignore[arg-type]
        norm_eps=1e-12,
        dropout=values.number("dropout", 0.1),
        attention_dropout=values.number("attention_dropout", 0.1),
        embedding_norm=True,
        tied=values.flag("tie_word_embeddings", default=True),
    )


def sources_of_encoder(config: EncoderConfig, names: Iterable[str]) -> dict[str, TensorSource]:
    """Return the source of each tensor of the encoder; `names` are the stored ones."""
    at = "distilbert." if any(name.startswith("distilbert.") for name in names) else ""
    found = {
        "embedding.tokens.weight": same(f"{at}embeddings.word_embeddings.weight"),
        "embedding.positions.table.weight": same(f"{at}embeddings.position_embeddings.weight"),
    }
    for part in ("weight", "bias"):
        found[f"embedding.norm.{part}"] = same(f"{at}embeddings.LayerNorm.{part}")
        for layer in range(config.num_layers):
            for ours, theirs in (
                ("attention.projections.stacks.0", [f"attention.{one}_lin" for one in "qkv"]),
                ("attention.output", ["attention.out_lin"]),
                ("feed_forward.hidden", ["ffn.lin1"]),
                ("feed_forward.output", ["ffn.lin2"]),
                ("around_attention.norm", ["sa_layer_norm"]),
                ("around_feed_forward.norm", ["output_layer_norm"]),
            ):
                found[f"blocks.{layer}.{ours}.{part}"] = stacked(
                    *(f"{at}transformer.layer.{layer}.{name}.{part}" for name in theirs)
                )
    return found


def sources(config: EncoderConfig, names: Iterable[str]) -> dict[str, TensorSource]:
    """Return the source of each tensor of the model; `names` are the stored ones."""
    of_encoder = sources_of_encoder(config, names)
    found = {f"encoder.{name}": one for name, one in of_encoder.items()}
    for part in ("weight", "bias"):
        found[f"hidden.{part}"] = same(f"vocab_transform.{part}")
        found[f"norm.{part}"] = same(f"vocab_layer_norm.{part}")
    if not config.tied:
        found["output.weight"] = same(_OUTPUT)
    return found | {"bias": same("vocab_projector.bias")}


def ignored_by_encoder(config: EncoderConfig) -> tuple[str, ...]:
    """Return patterns of stored tensors that the encoder does not use."""
    del config
    return (*_IGNORED, "vocab_*")


def ignored(config: EncoderConfig) -> tuple[str, ...]:
    """Return patterns of stored tensors that the model does not use."""
    return (*_IGNORED, _OUTPUT) if config.tied else _IGNORED
