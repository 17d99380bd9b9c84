"""Saving: weights as safetensors; nothing that is loaded can run code."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from glasshead.attention.files import read, write
from glasshead.drawing.printable import printable

_KIND = "weights"


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
    _, tensors = read(path, _KIND, lambda shapes: _check_shapes(path, shapes, wanted))
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
