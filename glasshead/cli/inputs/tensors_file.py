"""Tensors file: what a safetensors file holds, by name."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from glasshead.cli.inputs.naming import STANDARD_INPUT
from glasshead.cli.inputs.reading import read_bytes, shown
from glasshead.guarded_file import read_regular

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
    """The tensors of a safetensors file.

    Errors: an OSError where the file cannot be read; a ValueError where it is no safetensors, or
    has numbers of a type that torch lacks.
    """
    content = read_bytes(path)
    try:
        return load(content)
    except (KeyError, AttributeError, RuntimeError) as error:
        # What types of numbers end in that torch does not know.
        raise ValueError(
            f"{shown(path)} has numbers of a type that torch cannot read ({error}): save it as "
            f"float32."
        ) from error
    except SafetensorError as error:
        raise ValueError(
            f"{shown(path)} is no safetensors file ({error}): write it by "
            f"safetensors.torch.save_file."
        ) from error
