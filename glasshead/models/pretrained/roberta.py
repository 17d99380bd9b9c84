"""RoBERTa: convert its config and tensors to ours.

Source: Liu et al. 2019 (RoBERTa), section 3.
"""

from collections.abc import Iterable
from dataclasses import replace

from glasshead.models.encoder import EncoderConfig
from glasshead.models.pretrained import bert
from glasshead.models.pretrained.folder import ConfigValues, TensorSource, below, same

# Rows of the table of positions that no token uses: those up to the number of the padding token.
_PADDING = 1
_UNUSED = _PADDING + 1
# The output matrix and bias, which are also stored elsewhere.
_TIED = ("lm_head.decoder.weight", "lm_head.decoder.bias")
_BIAS = "lm_head.bias"


def config(values: ConfigValues) -> EncoderConfig:
    """Convert the config.

    Errors: a ValueError for an unsupported value.
    """
    values.only("pad_token_id", _PADDING)
    # The head of the masked language model has no other activation.
    values.only("hidden_act", "gelu")
    found = bert.config(values)
    if found.context_length <= _UNUSED:
        raise ValueError(
            f"{values.where} takes max_position_embeddings above {_UNUSED}, and has "
            f"{found.context_length}: take the config.json that belongs to the weights."
        )
    return replace(found, context_length=found.context_length - _UNUSED)


def sources_of_encoder(config: EncoderConfig, names: Iterable[str]) -> dict[str, TensorSource]:
    """Return the source of each tensor of the encoder; `names` are the stored ones."""
    found = bert.sources_of_encoder(config, names, prefix="roberta.")
    table = "embedding.positions.table.weight"
    return found | {table: below(found[table].names[0], _UNUSED)}


def sources(config: EncoderConfig, names: Iterable[str]) -> dict[str, TensorSource]:
    """Return the source of each tensor of the model; `names` are the stored ones."""
    names = set(names)
    of_encoder = sources_of_encoder(config, names)
    found = {f"encoder.{name}": one for name, one in of_encoder.items()}
    for part in ("weight", "bias"):
        found[f"hidden.{part}"] = same(f"lm_head.dense.{part}")
        found[f"norm.{part}"] = same(f"lm_head.layer_norm.{part}")
    if config.tied:
        return found | {"bias": same(_BIAS)}
    # An untied output has its own bias, too; older files store it once, by the other name.
    bias = _TIED[1] if _TIED[1] in names else _BIAS
    return found | {"output.weight": same(_TIED[0]), "bias": same(bias)}


def ignored_by_encoder(config: EncoderConfig) -> tuple[str, ...]:
    """Return patterns of stored tensors that the encoder does not use."""
    del config
    return (*bert.IGNORED, "lm_head.*")


def ignored(config: EncoderConfig) -> tuple[str, ...]:
    """Return patterns of stored tensors that the model does not use."""
    return (*bert.IGNORED, *_TIED) if config.tied else (*bert.IGNORED, _BIAS)
