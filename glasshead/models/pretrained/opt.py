"""OPT: convert its config and tensors to ours.

Source: Zhang et al. 2022 (OPT), section 2.1.
"""

from collections.abc import Iterable

from glasshead.models.language_model import LanguageModelConfig
from glasshead.models.pretrained.folder import (
    FEED_FORWARDS,
    ConfigValues,
    TensorSource,
    below,
    same,
    stacked,
)

# Rows of the table of positions that no token uses.
_UNUSED = 2


def config(values: ConfigValues) -> LanguageModelConfig:
    """Convert the config.

    Errors: a ValueError for an unsupported value.
    """
    d_model = values.whole("hidden_size")
    values.only("word_embed_proj_dim", d_model)
    values.only("enable_bias", True)
    values.only("layer_norm_elementwise_affine", True)
    values.only("_remove_final_layer_norm", False)
    before = values.flag("do_layer_norm_before", default=True)
    return LanguageModelConfig(
        vocab_size=values.whole("vocab_size"),
        context_length=values.whole("max_position_embeddings", 2048),
        d_model=d_model,
        num_heads=values.whole("num_attention_heads"),
        num_layers=values.whole("num_hidden_layers"),
        d_hidden=values.whole("ffn_dim"),
        order="pre" if before else "post",
        feed_forward=values.choice("activation_function", "relu", FEED_FORWARDS),  # type: ignore[arg-type]
        norm_eps=1e-5,
        dropout=values.number("dropout", 0.1),
        attention_dropout=values.number("attention_dropout", 0.0),
        tied=values.flag("tie_word_embeddings", default=True),
    )


def sources(config: LanguageModelConfig, names: Iterable[str]) -> dict[str, TensorSource]:
    """Return the source of each of our tensors; `names` are the stored ones."""
    at = "model.decoder." if any(name.startswith("model.") for name in names) else "decoder."
    found = {
        "embedding.tokens.weight": same(f"{at}embed_tokens.weight"),
        "embedding.positions.table.weight": below(f"{at}embed_positions.weight", _UNUSED),
    }
    if not config.tied:
        found["output.weight"] = same("lm_head.weight")
    for part in ("weight", "bias"):
        if config.order == "pre":
            found[f"norm.{part}"] = same(f"{at}final_layer_norm.{part}")
        for layer in range(config.num_layers):
            for ours, theirs in (
                ("attention.projections.stacks.0", [f"self_attn.{one}_proj" for one in "qkv"]),
                ("attention.output", ["self_attn.out_proj"]),
                ("feed_forward.hidden", ["fc1"]),
                ("feed_forward.output", ["fc2"]),
                ("around_attention.norm", ["self_attn_layer_norm"]),
                ("around_feed_forward.norm", ["final_layer_norm"]),
            ):
                found[f"blocks.{layer}.{ours}.{part}"] = stacked(
                    *(f"{at}layers.{layer}.{one}.{part}" for one in theirs)
                )
    return found


def ignored(config: LanguageModelConfig) -> tuple[str, ...]:
    """Return patterns of stored tensors that are not used."""
    return ("lm_head.weight",) if config.tied else ()
