"""Attention inputs and projection weights from safetensors."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from glasshead.cli.inputs.files import STANDARD_INPUT, read_bytes, shown
from glasshead.explanation.choices import listed
from glasshead.explanation.embeddings import Projection
from glasshead.files import read_regular
from glasshead.message import Message
from glasshead.recipe.validation import FLOATS, check_inputs

_SUFFIX = ".safetensors"


def is_tensors_file(path: Path) -> bool:
    """Whether a file is called safetensors, or opens as one; a pipe can be read but once.

    A file that is not there is none; whoever reads it says so.
    """
    if path.suffix.lower() == _SUFFIX:
        return True
    try:
        if path == STANDARD_INPUT:
            return False
        opening = read_regular(path, count=9)
        # The length of the header in eight bytes, and the bracket that opens it. Text has no byte
        # 0, without which the length would be that of no file.
        return opening[8:] == b"{" and 0 in opening[:8]
    except OSError:
        return False


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file.

    Errors: an OSError if the file cannot be read; a ValueError if it is no safetensors, or
    has numbers of a type that torch lacks.
    """
    content = read_bytes(path)
    try:
        return load(content)
    except (KeyError, AttributeError, RuntimeError) as error:
        # What types of numbers end in that torch does not know.
        raise ValueError(
            Message(
                "{path} has numbers of a type that torch cannot read ({error}). Save it as "
                "float32.",
                path=shown(path),
                error=error,
            )
        ) from error
    except SafetensorError as error:
        raise ValueError(
            Message(
                "{path} is not a safetensors file ({error}). Write it with "
                "safetensors.torch.save_file.",
                path=shown(path),
                error=error,
            )
        ) from error


_NEEDED, _INPUT_ROLES = ("query", "key"), ("query", "key", "value")
_LAYOUT = "[length, dim], [heads, length, dim] or [batch, heads, length, dim]"


@dataclass(frozen=True, eq=False)
class AttentionInputs:
    """Query, key and value of an attention; `has_value` is whether the file had values.

    Where it has none, the keys stand for them.
    """

    query: Float[Tensor, "batch heads queries dim"]
    key: Float[Tensor, "batch kv_heads keys dim"]
    value: Float[Tensor, "batch kv_heads keys value_dim"]
    has_value: bool


def read_attention(path: Path) -> AttentionInputs:
    """Read `query`, `key` and an optional `value`, with axes for batch and heads.

    Errors: an OSError if the file cannot be read; a ValueError with the file and the tensor
    if it is no safetensors, or a tensor is missing, unknown, of a wrong shape or not finite.
    """
    tensors = read_tensors(path)
    try:
        _check_input_names(tensors)
        for name in tensors:
            _check_tensor(name, tensors[name])
        _check_axes(tensors)
        query, key = (_four_axes(tensors[name]) for name in _NEEDED)
        value = _four_axes(tensors["value"]) if "value" in tensors else key
        check_inputs(query, key, value)
    except (ValueError, TypeError) as error:
        raise ValueError(Message("{path}: {error}", path=shown(path), error=error)) from error
    return AttentionInputs(query, key, value, has_value="value" in tensors)


def _check_input_names(tensors: dict[str, Tensor]) -> None:
    missing = [name for name in _NEEDED if name not in tensors]
    if missing:
        raise ValueError(
            Message(
                "the file must have query, key and perhaps value, got {found}. Rename or add "
                "{missing}.",
                missing=listed(missing),
                found=listed(tensors) or Message("nothing"),
            )
        )
    unknown = [name for name in tensors if name not in _INPUT_ROLES]
    if unknown:
        raise ValueError(
            Message(
                "expected query, key and perhaps value, got {choices} as well. Remove what is "
                "neither.",
                choices=listed(unknown),
            )
        )


def _check_tensor(name: str, tensor: Tensor) -> None:
    if tensor.dtype not in FLOATS:
        raise ValueError(
            Message(
                "{name} must be float16, bfloat16, float32 or float64, got {dtype}. Convert it "
                "with .float().",
                name=name,
                dtype=tensor.dtype,
            )
        )
    if not 2 <= tensor.ndim <= 4 or 0 in tensor.shape:
        raise ValueError(
            Message(
                "{name} must be {layout}, got {list}.",
                name=name,
                layout=_LAYOUT,
                list=list(tensor.shape),
            )
        )
    if not tensor.isfinite().all():
        raise ValueError(
            Message("{name} must have finite numbers, got NaN or infinity. Correct it.", name=name)
        )


def _check_axes(tensors: dict[str, Tensor]) -> None:
    if len({tensor.ndim for tensor in tensors.values()}) > 1:
        shapes = listed(f"{name} {list(tensor.shape)}" for name, tensor in tensors.items())
        raise ValueError(
            Message(
                "query, key and value must have the same number of axes, got {shapes}.",
                shapes=shapes,
            )
        )


def _four_axes(tensor: Tensor) -> Tensor:
    return tensor[(None,) * (4 - tensor.ndim)]


_ROLES = ("query", "key", "value")


@dataclass(frozen=True, eq=False)
class Matrices:
    """Projections of a file: `W_query W_key W_value`, `[d_in, d_out]`, and biases, if any."""

    path: Path
    tensors: dict[str, Tensor]

    @property
    def d_in(self) -> int:
        """Input dimension of the projection."""
        return len(self.tensors["W_query"])

    def projection(self, inputs: Float[Tensor, "tokens d_in"]) -> Projection:
        """Return the projection of some vectors.

        Errors: a ValueError that names the file, where they are of another width.
        """
        try:
            return Projection(inputs=inputs, **self.tensors)
        except ValueError as error:
            raise ValueError(
                Message("{path}: {error}", path=shown(self.path), error=error)
            ) from error


def read_weights(path: Path) -> Matrices:
    """Read projection matrices, in float64.

    The file has either the matrices of step 2 of the ladder, `W_query`, applied as x @ W_query; or
    the state of `nn.Linear`s, as step 3: `W_query.weight`, which is the transpose, and perhaps
    `W_query.bias`.

    Errors: an OSError if the file cannot be read; a ValueError with the file and the tensor
    if it is no safetensors, or a tensor is missing, unknown, of a wrong shape or not finite.
    """
    tensors = read_tensors(path)
    try:
        _check_names(tensors)
        named = _matrices(tensors)
        _check_fit(named)
    except ValueError as error:
        raise ValueError(Message("{path}: {error}", path=shown(path), error=error)) from error
    return Matrices(path, named)


def _is_linear(names: Iterable[str]) -> bool:
    """Whether the names are those of linear layers; a bias beside plain matrices is a stray one."""
    names = list(names)
    plain = any(f"W_{role}" in names for role in _ROLES)
    endings = (".weight",) if plain else (".weight", ".bias")
    return any(name.endswith(endings) for name in names)


def _check_names(tensors: dict[str, Tensor]) -> None:
    linear = _is_linear(tensors)
    needed = [f"W_{role}.weight" if linear else f"W_{role}" for role in _ROLES]
    allowed = {*needed, *(f"W_{role}.bias" for role in _ROLES if linear)}
    found = listed(tensors) or Message("nothing")
    missing = [name for name in needed if name not in tensors]
    if missing:
        raise ValueError(
            Message(
                "the file must have {needed}, got {found}. Rename or add {missing}.",
                needed=listed(needed),
                missing=listed(missing),
                found=found,
            )
        )
    unknown = [name for name in tensors if name not in allowed]
    if unknown:
        raise ValueError(
            Message(
                "expected {needed} in a projection, got {unknown} as well. Remove what is neither.",
                needed=listed(needed),
                unknown=listed(unknown),
            )
        )


def _matrices(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    linear, named = _is_linear(tensors), {}
    for name, tensor in tensors.items():
        axes = 1 if name.endswith(".bias") else 2
        shape = ("[d_out, d_in]" if linear else "[d_in, d_out]") if axes == 2 else "[d_out]"
        if not tensor.is_floating_point():
            raise ValueError(
                Message(
                    "{name} must be floating-point numbers, got {dtype}. Convert it with .float().",
                    name=name,
                    dtype=tensor.dtype,
                )
            )
        if tensor.ndim != axes or 0 in tensor.shape:
            raise ValueError(
                Message(
                    "{name} must have the shape {shape}, got {list}.",
                    name=name,
                    shape=shape,
                    list=list(tensor.shape),
                )
            )
        if not tensor.double().isfinite().all():
            raise ValueError(
                Message(
                    "{name} must have finite numbers, got NaN or infinity. Correct it.", name=name
                )
            )
        matrix = tensor.to(torch.float64)
        role = name.removeprefix("W_").split(".")[0]
        named[f"{'b' if axes == 1 else 'W'}_{role}"] = matrix.T if linear and axes == 2 else matrix
    return named


def _check_fit(named: dict[str, Tensor]) -> None:
    d_in, d_out = named["W_query"].shape
    if named["W_key"].shape != (d_in, d_out):
        raise ValueError(
            Message(
                "W_key must have the shape of W_query, {value} as [d_in, d_out], got {list}.",
                value=[d_in, d_out],
                list=list(named["W_key"].shape),
            )
        )
    if named["W_value"].shape[0] != d_in:
        raise ValueError(
            Message(
                "W_value must have the d_in of W_query, {d_in}, got {list} as [d_in, d_out].",
                d_in=d_in,
                list=list(named["W_value"].shape),
            )
        )
    for role in _ROLES:
        width, bias = named[f"W_{role}"].shape[1], named.get(f"b_{role}")
        if bias is not None and len(bias) != width:
            raise ValueError(
                Message(
                    "the bias of W_{role} must have {width} numbers, as its d_out, got {count}.",
                    role=role,
                    width=width,
                    count=len(bias),
                )
            )
