"""Saving: weights as safetensors; nothing that is loaded can run code."""

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn
from torch.nn.modules import module as modules

from glasshead.attention.tensor_files import read, write
from glasshead.drawing.printable import printable
from glasshead.files import check_regular

_KIND = "weights"
# A model may have some tensors besides those of its file: tied ones, a pooler, tables of angles.
_TIMES, _MORE_TENSORS, _MORE_NUMBERS = 4, 64, 2**26


class TooLargeError(ValueError):
    """A config that asks for more than the weights beside it hold."""


def shapes_of(path: Path) -> dict[str, Sequence[int]]:
    """Read the names and shapes of the tensors of a safetensors file, and no numbers.

    Errors: a SafetensorError or an OSError where there are none.
    """
    check_regular(path)
    with safe_open(path, framework="pt") as opened:
        return {name: opened.get_slice(name).get_shape() for name in opened.keys()}  # noqa: SIM118 - it is no dict


@contextmanager
def bounded_by(shapes: Mapping[str, Sequence[int]], config: str) -> Iterator[None]:
    """Stop the building of a model that is far larger than the tensors that are to fill it.

    What the config says need not be known for it: parameters and buffers are counted as they are
    made. On the meta device none of them takes memory.

    Args:
        shapes: Of the tensors.
        config: The file that says what is built, for the error.

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
                f"{printable(config)} tells of a larger model than the weights beside it, "
                f"{len(shapes)} tensors of {numbers:,} numbers: take the weights and the "
                "config.json of one model."
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


def check_fits(build: Any, config: Any, weights: Path, where: Path) -> None:
    """Raise a ValueError where a config asks for far more than a file of weights holds.

    Args:
        build: Makes the model of a config; it is called on the meta device.
        config: What it is called with.
        weights: The file; where it is none that can be read, nothing is raised.
        where: The file of the config, for the error.
    """
    try:
        shapes = shapes_of(weights)
    except (SafetensorError, OSError):
        return  # reading it tells why
    try:
        with torch.device("meta"), bounded_by(shapes, str(where)):
            build(config)
    except RuntimeError as error:
        raise ValueError(
            f"{printable(str(where))} tells of a model that no memory holds ({error}): take the "
            "config.json that belongs to the weights."
        ) from error


def write_weights(module: nn.Module, path: Path) -> None:
    """Write the weights of a module; an older file stays as it was until the new one is whole.

    Errors: an OSError where the file cannot be written.
    """
    write(path, _KIND, {}, {name: x.detach() for name, x in module.state_dict().items()})


def read_weights(module: nn.Module, path: Path) -> None:
    """Give a module the weights of a file.

    Errors: an OSError where it cannot be read; a ValueError that names the tensors that are
    missing, too many, or of another shape; the module is as it was then.
    """
    wanted = {name: list(tensor.shape) for name, tensor in module.state_dict().items()}
    _, tensors = read(path, _KIND, check=lambda shapes: _check_shapes(path, shapes, wanted))
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise ValueError(
                f"{printable(str(path))} takes finite weights, and {printable(name)} has NaN or "
                "infinity: train the model again."
            )
    module.load_state_dict(tensors)


def _check_shapes(
    path: Path, shapes: Mapping[str, list[int]], wanted: Mapping[str, list[int]]
) -> None:
    """Raise where a file's tensors are not those of a model, before any of them takes memory."""
    missing = sorted(wanted.keys() - shapes.keys())
    surplus = sorted(shapes.keys() - wanted.keys())
    if missing or surplus:
        told = [
            f"{word} {_listed(names)}"
            for word, names in (("lacks", missing), ("has besides", surplus))
            if names
        ]
        raise ValueError(
            f"{printable(str(path))} does not fit the model: it {' and '.join(told)}: take the "
            "weights that belong to its config."
        )
    for name, shape in shapes.items():
        if shape != wanted[name]:
            raise ValueError(
                f"{printable(str(path))} does not fit the model: {printable(name)} is {shape} and "
                f"has to be {wanted[name]}: take the weights and the tokenizer that belong to its "
                "config."
            )


def _listed(names: list[str]) -> str:
    shown = ", ".join(printable(name) for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
