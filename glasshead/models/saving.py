"""Saving: weights as safetensors; loading them runs no code."""

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import nn
from torch.nn.modules import module as modules

from glasshead.attention.io import read, write
from glasshead.drawing.printable import printable
from glasshead.files import check_regular

_M = TypeVar("_M", bound=nn.Module)
_KIND = "weights"
# A model may have some tensors besides those of its file: tied ones, a pooler, tables of angles.
_TIMES, _MORE_TENSORS, _MORE_NUMBERS = 4, 64, 2**26


class TooLargeError(ValueError):
    """A config that describes a far larger model than the weights beside it."""


def shapes_of(path: Path) -> dict[str, Sequence[int]]:
    """Read the names and shapes of the tensors of a safetensors file, without their values.

    Errors: a SafetensorError or an OSError if the file cannot be read.
    """
    check_regular(path)
    with safe_open(path, framework="pt") as opened:
        return {name: opened.get_slice(name).get_shape() for name in opened.keys()}  # noqa: SIM118 - it is no dict


@contextmanager
def bounded_by(shapes: Mapping[str, Sequence[int]], config: str) -> Iterator[None]:
    """Stop the construction of a model that is far larger than its stored tensors.

    Parameters and buffers are counted as they are registered, whatever the config says. On the
    meta device they take no memory.

    Args:
        shapes: Shapes of the stored tensors.
        config: Name of the config file, for the error.

    Errors: a TooLargeError.
    """
    numbers = sum(map(math.prod, shapes.values()))
    most = _TIMES * len(shapes) + _MORE_TENSORS, _TIMES * numbers + _MORE_NUMBERS
    own, made, held = threading.get_ident(), 0, 0

    def count(module: Any, name: str, tensor: Any) -> None:
        nonlocal made, held
        del module, name
        if tensor is None or threading.get_ident() != own:
            return
        made, held = made + 1, held + tensor.numel()
        if made > most[0] or held > most[1]:
            raise TooLargeError(
                f"{printable(config)} describes a larger model than the weights next to it, which "
                f"have {len(shapes)} tensors with {numbers:,} numbers in all. Use the config.json "
                "of the same model."
            )

    hooks = [
        modules.register_module_parameter_registration_hook(count),
        modules.register_module_buffer_registration_hook(count),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def built_on_meta(
    build: Callable[[Any], _M], config: Any, shapes: Mapping[str, Sequence[int]], where: Path
) -> _M:
    """Build the model of a config on the meta device, where it takes no memory.

    Args:
        build: Builds it.
        config: The config.
        shapes: Shapes of the stored tensors.
        where: The file of the config, for errors.

    Errors: a ValueError if the config describes a far larger model, or one of any size.
    """
    try:
        with torch.device("meta"), bounded_by(shapes, str(where)):
            return build(config)
    except RuntimeError as error:
        raise ValueError(
            f"{printable(str(where))} states a model that needs more memory than any machine has "
            f"({error}). Use the config.json that belongs to the weights."
        ) from error


def check_fits(build: Any, config: Any, weights: Path, where: Path) -> None:
    """Raise a ValueError if a config describes a far larger model than a file of weights.

    Args:
        build: Builds the model of a config; it is called on the meta device.
        config: The config.
        weights: The file of weights; an unreadable file is ignored here.
        where: The file of the config, for the error.
    """
    try:
        shapes = shapes_of(weights)
    except (SafetensorError, OSError):
        return  # reading it raises the error
    built_on_meta(build, config, shapes, where)


def write_weights(module: nn.Module, path: Path) -> None:
    """Write the weights of a module; an older file stays as it was until the new one is whole.

    Errors: an OSError if the file cannot be written.
    """
    write(path, _KIND, {}, {name: x.detach() for name, x in module.state_dict().items()})


def read_weights(module: nn.Module, path: Path) -> None:
    """Load the weights of a file into a module.

    Errors: an OSError if it cannot be read; a ValueError that names missing or unexpected
    tensors, or those of another shape; the module is left unchanged then.
    """
    expected = {name: list(tensor.shape) for name, tensor in module.state_dict().items()}
    _, tensors = read(path, _KIND, check=lambda shapes: _check_shapes(path, shapes, expected))
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise ValueError(
                f"the weights in {printable(str(path))} must be finite, got NaN or infinity in "
                f"{printable(name)}. Train the model again."
            )
    module.load_state_dict(tensors)


def _check_shapes(
    path: Path, shapes: Mapping[str, list[int]], expected: Mapping[str, list[int]]
) -> None:
    """Check the names and shapes of a file's tensors before any of them is loaded."""
    missing = sorted(expected.keys() - shapes.keys())
    surplus = sorted(shapes.keys() - expected.keys())
    if missing or surplus:
        raise ValueError(
            f"{printable(str(path))} does not fit the model: it {differences(missing, surplus)}. "
            "Use the weights that belong to its config."
        )
    for name, shape in shapes.items():
        if shape != expected[name]:
            raise ValueError(
                f"{printable(str(path))} does not fit the model: {printable(name)} must be "
                f"{expected[name]}, got {shape}. Use the weights and the tokenizer that belong to "
                "its config."
            )


def differences(missing: Sequence[str], surplus: Sequence[str]) -> str:
    """Tell which tensors a file lacks, and which it has besides."""
    parts = (("lacks", missing), ("has besides", surplus))
    return " and ".join(f"{word} {quoted_list(names)}" for word, names in parts if names)


def quoted_list(names: Iterable[str]) -> str:
    """Return the first three names, made printable, and the number of the others."""
    names = list(names)
    shown = ", ".join(printable(name) for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
