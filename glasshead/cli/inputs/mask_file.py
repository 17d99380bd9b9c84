"""Mask file: an attention mask from an array file, safetensors, a table or JSON."""

from pathlib import Path
from typing import Any

from glasshead.cli.inputs.arrays_file import read_npy, read_npz
from glasshead.cli.inputs.malformed import Malformed
from glasshead.cli.inputs.mask_text import json_mask, table_mask
from glasshead.cli.inputs.naming import STANDARD_INPUT
from glasshead.cli.inputs.reading import read_bytes, read_text, shown
from glasshead.cli.inputs.tensors_file import is_tensors_file, read_tensors
from glasshead.cli.inputs.wording import listed, nearest

_PICKLED = (".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt")


def read_mask(path: Path, name: str | None = None) -> Any:
    """The mask of a file: a tensor, an array, or rows of numbers whose type nobody chose.

    Args:
        path: The file; what is called .npy, .npz or .safetensors is that, what opens with a bracket
            is JSON, and any other is a table.
        name: Which tensor of a safetensors file is meant.

    Errors: an OSError where the file cannot be read; a ValueError with the file, and the line where
    there are some, where it is malformed, has several arrays, or is pickled.
    """
    suffix = path.suffix.lower()
    if path != STANDARD_INPUT and is_tensors_file(path):
        return _tensor(path, name)
    if name is not None:
        raise ValueError(
            f"--tensor names one of a safetensors file, and {shown(path)} is none: leave it out."
        )
    if suffix in _PICKLED:
        raise ValueError(
            f"{shown(path)} may be a pickle, which could run anything, and is not read: save the "
            "mask by safetensors.torch.save_file or numpy.save."
        )
    try:
        if suffix == ".npy":
            return read_npy(read_bytes(path))
        if suffix == ".npz":
            return read_npz(read_bytes(path))
        text = read_text(path)
        is_json = suffix == ".json" or text.lstrip()[:1] in ("[", "{")
        return json_mask(text) if is_json else table_mask(text)
    except Malformed as error:
        raise ValueError(f"{shown(path)}{error}") from error


def _tensor(path: Path, name: str | None) -> Any:
    tensors = read_tensors(path)
    if name is None and len(tensors) == 1:
        return next(iter(tensors.values()))
    if name is not None and name in tensors:
        return tensors[name]
    has = listed(tensors) or "nothing"
    if name is None:
        raise ValueError(
            f"expected one tensor, and {shown(path)} has {has}: name one by --tensor NAME."
        )
    alike = nearest(name, tensors)
    hint = f"did you mean {alike}?" if alike else "name one of them."
    raise ValueError(f"{shown(path)} has no tensor {name}, it has {has}: {hint}")
