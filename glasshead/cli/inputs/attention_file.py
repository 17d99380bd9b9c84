"""Attention file: the queries, keys and values of an attention, from safetensors."""

from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.cli.inputs.reading import shown
from glasshead.cli.inputs.tensors_file import read_tensors
from glasshead.cli.inputs.wording import listed
from glasshead.recipe.validation import check_inputs

_NEEDED, _ROLES = ("query", "key"), ("query", "key", "value")
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_LAYOUT = "[length, dim], [heads, length, dim] or [batch, heads, length, dim]"


@dataclass(frozen=True, eq=False)
class AttentionInputs:
    """What an attention is computed from; `has_value` tells whether the file had values.

    Where it has none, the keys stand for them.
    """

    query: Float[Tensor, "batch heads queries dim"]
    key: Float[Tensor, "batch kv_heads keys dim"]
    value: Float[Tensor, "batch kv_heads keys value_dim"]
    has_value: bool


def read_attention(path: Path) -> AttentionInputs:
    """The tensors `query`, `key` and perhaps `value` of a file, with axes for batch and heads.

    Errors: an OSError where the file cannot be read; a ValueError with the file and the tensor
    where it is no safetensors, or a tensor is missing, unknown, of a wrong shape or not finite.
    """
    tensors = read_tensors(path)
    try:
        _check_names(tensors)
        for name in tensors:
            _check_tensor(name, tensors[name])
        _check_axes(tensors)
        query, key = (_four_axes(tensors[name]) for name in _NEEDED)
        value = _four_axes(tensors["value"]) if "value" in tensors else key
        check_inputs(query, key, value)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{shown(path)}: {error}") from error
    return AttentionInputs(query, key, value, has_value="value" in tensors)


def _check_names(tensors: dict[str, Tensor]) -> None:
    missing = [name for name in _NEEDED if name not in tensors]
    if missing:
        raise ValueError(
            f"expected query, key and perhaps value, and {listed(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing (the file has "
            f"{listed(tensors) or 'nothing'}): rename or add what it takes."
        )
    unknown = [name for name in tensors if name not in _ROLES]
    if unknown:
        raise ValueError(
            f"expected query, key and perhaps value, and got {listed(unknown)} beside them: leave "
            f"out what is neither."
        )


def _check_tensor(name: str, tensor: Tensor) -> None:
    if tensor.dtype not in _FLOATS:
        raise ValueError(
            f"{name} takes float16, bfloat16, float32 or float64, and got {tensor.dtype}: convert "
            f"it by .float()."
        )
    if not 2 <= tensor.ndim <= 4 or 0 in tensor.shape:
        raise ValueError(f"{name} takes {_LAYOUT}, and got {list(tensor.shape)}.")
    if not tensor.isfinite().all():
        raise ValueError(f"{name} takes finite numbers, and has NaN or infinity: correct it.")


def _check_axes(tensors: dict[str, Tensor]) -> None:
    if len({tensor.ndim for tensor in tensors.values()}) > 1:
        shapes = listed(f"{name} {list(tensor.shape)}" for name, tensor in tensors.items())
        raise ValueError(f"query, key and value take the same number of axes, and got {shapes}.")


def _four_axes(tensor: Tensor) -> Tensor:
    return tensor[(None,) * (4 - tensor.ndim)]
