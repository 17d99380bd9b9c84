"""Rotary angles and windows as the configs of Hugging Face tell them."""

from collections.abc import Mapping, Sequence
from typing import Any

from glasshead.models.config import LocalLayers
from glasshead.models.pretrained.folder import ConfigValues

SCALINGS = {
    "linear": {"factor": "factor"},
    "llama3": {
        "factor": "factor",
        "low_freq_factor": "low_frequency_factor",
        "high_freq_factor": "high_frequency_factor",
        "original_max_position_embeddings": "original_length",
    },
    "yarn": {
        "factor": "factor",
        "beta_fast": "fast",
        "beta_slow": "slow",
        "original_max_position_embeddings": "original_length",
    },
}
_KINDS = ("full_attention", "sliding_attention")


def rotary(
    values: ConfigValues,
    *,
    context: int,
    base: float = 10_000.0,
    width: int | None = None,
    share: float = 1.0,
    scalings: Mapping[str, Mapping[str, str]] = SCALINGS,
) -> dict[str, Any]:
    """Return the fields of our config for rotary angles.

    Args:
        values: The config.
        context: Its maximum number of tokens.
        base: The base where the config has none.
        width: Width of a head, where a part of it may be rotated.
        share: The share that is rotated where the config tells none.
        scalings: The scalings that the family has, and our names of their numbers.

    Errors: a ValueError for an unsupported value.
    """
    rope = rope_of(values, "full_attention")
    rotated: dict[str, Any] = {}
    if width is None:
        rope.only("partial_rotary_factor", 1.0)
        values.only("partial_rotary_factor", 1.0)
    else:
        given = values.number("partial_rotary_factor", share)
        count = int(width * rope.number("partial_rotary_factor", given))
        rotated = {} if count == width else {"rotary_dim": count}
    base = rope.number("rope_theta", values.number("rope_theta", base))
    kind = kind_of(rope)
    if kind == "default":
        return {"rotary_base": base, **rotated}
    rope.choice("rope_type", kind, {one: one for one in ("default", *scalings)})
    for name in ("attention_factor", "mscale", "mscale_all_dim"):
        rope.only(name, None)
    rope.only("truncate", True)
    defaults = {"original_max_position_embeddings": context}
    scaling: dict[str, Any] = {"kind": kind}
    for theirs, ours in scalings[kind].items():
        # Null counts as missing.
        if rope.get(theirs) is not None or theirs in defaults:
            scaling[ours] = rope.number(theirs, float(defaults.get(theirs, 0)))
    return {"rotary_base": base, "rotary_scaling": scaling, **rotated}


def rope_of(values: ConfigValues, layers: str) -> ConfigValues:
    """Return the values of the rotary angles of layers of a kind; all may have the same.

    Errors: a ValueError if they are no object.
    """
    given = values.get("rope_parameters") or values.get("rope_scaling") or {}
    if isinstance(given, dict) and not given.keys().isdisjoint(_KINDS):
        given = given.get(layers) or {}
    if not isinstance(given, dict):
        raise ValueError(f"rope_parameters in {values.where} must be an object, got {given!r}.")  # noqa: TRY004 - what the file has is a value
    return ConfigValues(given, f"{values.where}, rope_parameters")


def kind_of(rope: ConfigValues) -> Any:
    """Return the kind of scaling, which older configs tell by another name."""
    return rope.get("rope_type", rope.get("type", "default"))


def local_base(values: ConfigValues, name: str, base: float) -> float:
    """Return the base of the rotary angles of layers with a window.

    Args:
        values: The config.
        name: The name of the base in older configs.
        base: The base where the config has none.

    Errors: a ValueError if their angles are scaled.
    """
    rope = rope_of(values, "sliding_attention")
    if "rope_parameters" in values:
        rope.choice("rope_type", kind_of(rope), {"default": "default"})
        return rope.number("rope_theta", values.number(name, base))
    return values.number(name, base)


def sliding_layers(values: ConfigValues, default: Sequence[bool]) -> list[bool]:
    """Return which layers have a window.

    Args:
        values: The config.
        default: Which have one where the config does not tell.

    Errors: a ValueError if the config does not state of each layer whether it has a window.
    """
    given = values.get("layer_types")
    if given is None:
        return list(default)
    count = values.whole("num_hidden_layers")
    if not isinstance(given, list) or len(given) != count or not set(given) <= set(_KINDS):
        raise ValueError(
            f"layer_types in {values.where} must be a list of {count} names, "
            f"{' or '.join(_KINDS)}, got {given!r}. Load the model with transformers and use "
            "gh.watch(model, …)."
        )
    return [one == "sliding_attention" for one in given]


def windows(
    sliding: Sequence[bool], neighbours: int, rotary_base: float | None = None
) -> dict[str, Any]:
    """Return the fields of our config for windows.

    Args:
        sliding: Which layers have one.
        neighbours: How many tokens it shows on each side.
        rotary_base: The base of the rotary angles of these layers; None: that of all.
    """
    layers = [layer for layer, near in enumerate(sliding) if near]
    if not layers:
        return {}
    if all(sliding) and rotary_base is None:
        return {"window": neighbours + 1}
    local = LocalLayers(layers=tuple(layers), neighbours=neighbours, rotary_base=rotary_base)
    return {"local": local}
