"""ModernBERT: convert its config and tensors to ours.

Source: Warner et al. 2024 (Smarter, better, faster, longer), section 2.1.
"""

from collections.abc import Iterable

from glasshead.models.encoder import EncoderConfig
from glasshead.models.pretrained.folder import GATED_FEED_FORWARDS, ConfigValues, TensorSource, same
from glasshead.models.pretrained.rope import local_base, rotary, sliding_layers, windows

_OUTPUT = "decoder.weight"


def config(values: ConfigValues) -> EncoderConfig:
    """Convert the config.

    Errors: a ValueError for an unsupported value.
    """
    for name in ("norm_bias", "mlp_bias", "classifier_bias"):
        values.only(name, False)
    values.only("decoder_bias", True)
    values.only("classifier_activation", values.get("hidden_activation", "gelu"))
    context = values.whole("max_position_embeddings", 8192)
    biased = values.flag("attention_bias", default=False)
    every = values.whole("global_attn_every_n_layers", 3)
    usual = [bool(layer % every) for layer in range(values.whole("num_hidden_layers"))]
    base = values.number("global_rope_theta", 160_000.0)
    near_base = local_base(values, "local_rope_theta", 10_000.0)
    return EncoderConfig(
        vocab_size=values.whole("vocab_size"),
        context_length=context,
        d_model=values.whole("hidden_size"),
        num_heads=values.whole("num_attention_heads"),
        num_layers=values.whole("num_hidden_layers"),
        d_hidden=values.whole("intermediate_size"),
        positions="rotary",
        **rotary(values, context=context, base=base),
        **windows(
            sliding_layers(values, usual), values.whole("local_attention", 128) // 2, near_base
        ),
        feed_forward=values.choice("hidden_activation", "gelu", GATED_FEED_FORWARDS),  # type: ignore[arg-type]
        bias=False,
        qkv_bias=biased,
        output_bias=biased,
        norm_eps=values.number("norm_eps", 1e-5),
        dropout=values.number("mlp_dropout", 0.0),
        attention_dropout=values.number("attention_dropout", 0.0),
        embedding_norm=True,
        first_norm=False,
        tied=values.flag("tie_word_embeddings", default=True),
    )


def sources_of_encoder(config: EncoderConfig, names: Iterable[str]) -> dict[str, TensorSource]:
    """Return the source of each tensor of the encoder; `names` are the stored ones."""
    at = "model." if any(name.startswith("model.") for name in names) else ""
    found = {
        "embedding.tokens.weight": same(f"{at}embeddings.tok_embeddings.weight"),
        "embedding.norm.weight": same(f"{at}embeddings.norm.weight"),
        "norm.weight": same(f"{at}final_norm.weight"),
    }
    for layer in range(config.num_layers):
        for ours, theirs, biased in (
            ("attention.projections.stacks.0", "attn.Wqkv", config.qkv_bias),
            ("attention.output", "attn.Wo", config.output_bias),
            ("feed_forward.hidden.stacks.0", "mlp.Wi", False),
            ("feed_forward.output", "mlp.Wo", False),
            ("around_attention.norm", "attn_norm", False),
            ("around_feed_forward.norm", "mlp_norm", False),
        ):
            for part in ("weight", "bias") if biased else ("weight",):
                found[f"blocks.{layer}.{ours}.{part}"] = same(f"{at}layers.{layer}.{theirs}.{part}")
    # The first attention reads the normalized embeddings as they are.
    del found["blocks.0.around_attention.norm.weight"]
    return found


def sources(config: EncoderConfig, names: Iterable[str]) -> dict[str, TensorSource]:
    """Return the source of each tensor of the model; `names` are the stored ones."""
    of_encoder = sources_of_encoder(config, names)
    found = {f"encoder.{name}": one for name, one in of_encoder.items()} | {
        "hidden.weight": same("head.dense.weight"),
        "norm.weight": same("head.norm.weight"),
        "bias": same("decoder.bias"),
    }
    return found if config.tied else found | {"output.weight": same(_OUTPUT)}


def ignored_by_encoder(config: EncoderConfig) -> tuple[str, ...]:
    """Return patterns of stored tensors that the encoder does not use."""
    del config
    return ("head.*", "decoder.*")


def ignored(config: EncoderConfig) -> tuple[str, ...]:
    """Return patterns of stored tensors that the model does not use."""
    return (_OUTPUT,) if config.tied else ()
