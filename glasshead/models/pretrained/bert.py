"""BERT: convert its config and tensors to ours.

Source: Devlin et al. 2019 (BERT), section 3.
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

# The pooler, which no attention reads, and position ids, which old files store.
IGNORED = ("*embeddings.position_ids", "*pooler.*", "cls.seq_relationship.*")
# The output matrix and bias, which are also stored elsewhere.
_TIED = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias")
_BIAS = "cls.predictions.bias"


def config(values: ConfigValues) -> EncoderConfig:
    """Convert the config.

    Errors: a ValueError for an unsupported value.
    """
    values.only("position_embedding_type", "absolute")
    values.only("is_decoder", False)
    return EncoderConfig(
        vocab_size=values.whole("vocab_size"),
        context_length=values.whole("max_position_embeddings", 512),
        d_model=values.whole("hidden_size"),
        num_heads=values.whole("num_attention_heads"),
        num_layers=values.whole("num_hidden_layers"),
        d_hidden=values.whole("intermediate_size"),
        order="post",
        feed_forward=values.choice("hidden_act", "gelu", FEED_FORWARDS),  # type: ignore[arg-type]
        norm_eps=values.number("layer_norm_eps", 1e-12),
        dropout=values.number("hidden_dropout_prob", 0.1),
        attention_dropout=values.number("attention_probs_dropout_prob", 0.1),
        embedding_norm=True,
        segments=values.whole("type_vocab_size", 2),
        tied=values.flag("tie_word_embeddings", default=True),
    )


def sources_of_encoder(
    config: EncoderConfig, names: Iterable[str], prefix: str = "bert."
) -> dict[str, TensorSource]:
    """Return the source of each tensor of the encoder; `names` are the stored ones."""
    names = set(names)
    at = prefix if any(name.startswith(prefix) for name in names) else ""
    # Names of the first files, converted from TensorFlow.
    old = f"{at}embeddings.LayerNorm.gamma" in names
    norms = {"weight": "gamma", "bias": "beta"} if old else {"weight": "weight", "bias": "bias"}
    found = {
        "embedding.tokens.weight": same(f"{at}embeddings.word_embeddings.weight"),
        "embedding.positions.table.weight": same(f"{at}embeddings.position_embeddings.weight"),
        "embedding.segments.weight": same(f"{at}embeddings.token_type_embeddings.weight"),
    }
    for part, theirs in norms.items():
        found[f"embedding.norm.{part}"] = same(f"{at}embeddings.LayerNorm.{theirs}")
    projections = [f"attention.self.{one}" for one in ("query", "key", "value")]
    for layer in range(config.num_layers):
        for part, theirs in norms.items():
            for ours, there, own in (
                ("attention.projections.stacks.0", projections, part),
                ("attention.output", ["attention.output.dense"], part),
                ("feed_forward.hidden", ["intermediate.dense"], part),
                ("feed_forward.output", ["output.dense"], part),
                ("around_attention.norm", ["attention.output.LayerNorm"], theirs),
                ("around_feed_forward.norm", ["output.LayerNorm"], theirs),
            ):
                found[f"blocks.{layer}.{ours}.{part}"] = stacked(
                    *(f"{at}encoder.layer.{layer}.{name}.{own}" for name in there)
                )
    return found


def sources(config: EncoderConfig, names: Iterable[str]) -> dict[str, TensorSource]:
    """Return the source of each tensor of the model; `names` are the stored ones."""
    names = set(names)
    head = "cls.predictions.transform"
    old = f"{head}.LayerNorm.gamma" in names
    found = {f"encoder.{name}": one for name, one in sources_of_encoder(config, names).items()}
    found |= {
        "hidden.weight": same(f"{head}.dense.weight"),
        "hidden.bias": same(f"{head}.dense.bias"),
        "norm.weight": same(f"{head}.LayerNorm.{'gamma' if old else 'weight'}"),
        "norm.bias": same(f"{head}.LayerNorm.{'beta' if old else 'bias'}"),
    }
    if config.tied:
        return found | {"bias": same(_BIAS)}
    # An untied output has its own bias, too; older files store it once, by the other name.
    bias = _TIED[1] if _TIED[1] in names else _BIAS
    return found | {"output.weight": same(_TIED[0]), "bias": same(bias)}


def ignored_by_encoder(config: EncoderConfig) -> tuple[str, ...]:
    """Return patterns of stored tensors that the encoder does not use."""
    del config
    return (*IGNORED, "cls.*")


def ignored(config: EncoderConfig) -> tuple[str, ...]:
    """Return patterns of stored tensors that the model does not use."""
    return (*IGNORED, *_TIED) if config.tied else (*IGNORED, _BIAS)
