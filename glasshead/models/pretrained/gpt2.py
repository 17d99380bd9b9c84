"""GPT-2: convert its config and tensors to ours.

Source: Radford et al. 2019 (Language models are unsupervised multitask learners), section 2.3.
"""

from collections.abc import Iterable, Mapping

from glasshead.models.language_model import LanguageModelConfig
from glasshead.models.pretrained.folder import (
    FEED_FORWARDS,
    ConfigValues,
    TensorSource,
    same,
    transposed,
)

# Causal masks, which old files store as tensors.
_IGNORED = ("*.attn.bias", "*.attn.masked_bias")


def config(values: ConfigValues) -> LanguageModelConfig:
    """Convert the config.

    Errors: a ValueError for an unsupported value.
    """
    values.only("scale_attn_weights", True)
    values.only("scale_attn_by_inverse_layer_idx", False)
    values.only("add_cross_attention", False)
    width = values.whole("n_embd")
    return LanguageModelConfig(
        vocab_size=values.whole("vocab_size"),
        context_length=values.whole("n_positions", 1024),
        d_model=width,
        num_heads=values.whole("n_head"),
        num_layers=values.whole("n_layer"),
        d_hidden=values.whole("n_inner", 4 * width),
        feed_forward=values.choice("activation_function", "gelu_new", FEED_FORWARDS),  # type: ignore[arg-type]
        norm_eps=values.number("layer_norm_epsilon", 1e-5),
        dropout=values.number("resid_pdrop", 0.1),
        attention_dropout=values.number("attn_pdrop", 0.1),
        tied=values.flag("tie_word_embeddings", default=True),
    )


def sources(config: LanguageModelConfig, names: Iterable[str]) -> Mapping[str, TensorSource]:
    """Return the source of each of our tensors; `names` are the stored ones."""
    at = "transformer." if any(name.startswith("transformer.") for name in names) else ""
    found = {
        "embedding.tokens.weight": same(f"{at}wte.weight"),
        "embedding.positions.table.weight": same(f"{at}wpe.weight"),
        "norm.weight": same(f"{at}ln_f.weight"),
        "norm.bias": same(f"{at}ln_f.bias"),
    }
    if not config.tied:
        found["output.weight"] = same("lm_head.weight")
    for layer in range(config.num_layers):
        ours, theirs = f"blocks.{layer}", f"{at}h.{layer}"
        for one, other in (
            ("attention.projections.stacks.0", "attn.c_attn"),
            ("attention.output", "attn.c_proj"),
            ("feed_forward.hidden", "mlp.c_fc"),
            ("feed_forward.output", "mlp.c_proj"),
        ):
            found[f"{ours}.{one}.weight"] = transposed(f"{theirs}.{other}.weight")
            found[f"{ours}.{one}.bias"] = same(f"{theirs}.{other}.bias")
        for one, other in (("around_attention", "ln_1"), ("around_feed_forward", "ln_2")):
            for part in ("weight", "bias"):
                found[f"{ours}.{one}.norm.{part}"] = same(f"{theirs}.{other}.{part}")
    return found


def ignored(config: LanguageModelConfig) -> tuple[str, ...]:
    """Return patterns of stored tensors that are not used."""
    return (*_IGNORED, "lm_head.weight") if config.tied else _IGNORED
