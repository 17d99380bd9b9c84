"""GPT-NeoX, which Pythia is, too: convert its config and tensors to ours.

Source: Black et al. 2022 (GPT-NeoX-20B), section 2.1.
"""

from collections.abc import Iterable

from torch import Tensor

from glasshead.models.language_model import LanguageModelConfig
from glasshead.models.pretrained.folder import FEED_FORWARDS, ConfigValues, TensorSource, same
from glasshead.models.pretrained.rope import rotary

# Causal masks and rotary frequencies, which old files store as tensors.
_IGNORED = ("*.attention.bias", "*.attention.masked_bias", "*.rotary_emb.inv_freq")
# The output matrix has had two names.
_OUTPUTS = ("embed_out.weight", "lm_head.weight")
_SHARE = 0.25


def config(values: ConfigValues) -> LanguageModelConfig:
    """Convert the config.

    Errors: a ValueError for an unsupported value.
    """
    d_model, heads = values.whole("hidden_size"), values.whole("num_attention_heads")
    context = values.whole("max_position_embeddings", 2048)
    biased = values.flag("attention_bias", default=True)
    parallel = values.flag("use_parallel_residual", default=True)
    return LanguageModelConfig(
        vocab_size=values.whole("vocab_size"),
        context_length=context,
        d_model=d_model,
        num_heads=heads,
        num_layers=values.whole("num_hidden_layers"),
        d_hidden=values.whole("intermediate_size"),
        positions="rotary",
        **rotary(
            values,
            context=context,
            base=values.number("rotary_emb_base", 10_000.0),
            width=max(1, d_model // heads),
            share=values.number("rotary_pct", _SHARE),
        ),
        order="parallel" if parallel else "pre",
        feed_forward=values.choice("hidden_act", "gelu", FEED_FORWARDS),  # type: ignore[arg-type]
        qkv_bias=biased,
        output_bias=biased,
        norm_eps=values.number("layer_norm_eps", 1e-5),
        dropout=values.number("hidden_dropout", 0.0),
        attention_dropout=values.number("attention_dropout", 0.0),
        tied=values.flag("tie_word_embeddings", default=False),
    )


def sources(config: LanguageModelConfig, names: Iterable[str]) -> dict[str, TensorSource]:
    """Return the source of each of our tensors; `names` are the stored ones."""
    names = set(names)
    at = "gpt_neox." if any(name.startswith("gpt_neox.") for name in names) else ""
    found = {
        "embedding.tokens.weight": same(f"{at}embed_in.weight"),
        "norm.weight": same(f"{at}final_layer_norm.weight"),
        "norm.bias": same(f"{at}final_layer_norm.bias"),
    }
    if not config.tied:
        found["output.weight"] = same(next((one for one in _OUTPUTS if one in names), _OUTPUTS[0]))

    def grouped(stored: Tensor) -> Tensor:
        """Group the rows by queries, keys and values, which are stored head by head."""
        return stored.unflatten(0, (config.num_heads, 3, -1)).transpose(0, 1).flatten(0, 2)

    parts = {True: ("weight", "bias"), False: ("weight",)}
    for layer in range(config.num_layers):
        ours, theirs = f"blocks.{layer}", f"{at}layers.{layer}"
        for part in parts[config.qkv_bias is not False]:
            found[f"{ours}.attention.projections.stacks.0.{part}"] = TensorSource(
                (f"{theirs}.attention.query_key_value.{part}",), grouped
            )
            found[f"{ours}.attention.output.{part}"] = same(f"{theirs}.attention.dense.{part}")
        for one, other in (
            ("feed_forward.hidden", "mlp.dense_h_to_4h"),
            ("feed_forward.output", "mlp.dense_4h_to_h"),
            ("around_attention.norm", "input_layernorm"),
            ("around_feed_forward.norm", "post_attention_layernorm"),
        ):
            for part in parts[True]:
                found[f"{ours}.{one}.{part}"] = same(f"{theirs}.{other}.{part}")
    return found


def ignored(config: LanguageModelConfig) -> tuple[str, ...]:
    """Return patterns of stored tensors that are not used."""
    return (*_IGNORED, *_OUTPUTS) if config.tied else _IGNORED
