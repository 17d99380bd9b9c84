"""Reading: a mask of whatever type, as a tensor."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Shaped
from torch import Tensor

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_TAKES = "diagnose(mask) takes a tensor, an array, nested lists of numbers or a glasshead mask"


@dataclass(frozen=True, eq=False)
class Given:
    """A mask as a tensor.

    Attributes:
        values: What was given.
        source: Python for this tensor, where what was given is called `mask`.
        typed: Whether somebody chose the type of its numbers, as of a tensor; not so of a list.
    """

    values: Shaped[Tensor, "..."]
    source: str
    typed: bool


def read(mask: Any) -> Given:
    """A tensor, an array or nested lists, as a tensor.

    Errors: a TypeError for anything else, or numbers of another type than booleans, whole numbers
    and floats; a ValueError for ragged lists, and what has no axis or no cell.

    >>> read([[1, 0], [1, 1]]).values
    tensor([[1, 0],
            [1, 1]])
    """
    if isinstance(mask, Tensor):
        given = Given(_checked(mask), "mask", typed=True)
    elif isinstance(mask, np.ndarray):
        given = Given(_of_array(mask), "torch.as_tensor(mask)", typed=True)
    elif isinstance(mask, Sequence) and not isinstance(mask, str | bytes | range):
        given = Given(_of_array(_listed(mask)), "torch.as_tensor(mask)", typed=False)
    else:
        raise TypeError(f"{_TAKES}, and got {type(mask).__name__}.")
    if not given.values.ndim or not given.values.numel():
        raise ValueError(
            "diagnose(mask) takes [keys], [queries, keys] or more axes with a cell at least, and "
            f"got shape {list(given.values.shape)}."
        )
    return given


def marks_of(values: Shaped[Tensor, "*shape"]) -> Bool[Tensor, "*shape"]:
    """Which cells are True, or other than 0; torch would compare booleans in eight bytes each."""
    return values if values.dtype == torch.bool else values != 0


def _checked(tensor: Tensor) -> Tensor:
    known = tensor.layout == torch.strided and tensor.device.type != "meta"
    if not known or tensor.is_quantized:
        raise TypeError(
            "diagnose(mask) takes a dense tensor whose numbers can be read, and got one of layout "
            f"{tensor.layout} on {tensor.device}: convert it with .to_dense() or make it on cpu."
        )
    if tensor.is_complex() or (tensor.is_floating_point() and tensor.dtype not in _FLOATS):
        raise TypeError(
            "diagnose(mask) takes booleans, whole numbers, float16, bfloat16, float32 or float64, "
            f"and got {tensor.dtype}: convert it with .float()."
        )
    return tensor.detach()


def _listed(mask: Sequence[Any]) -> np.ndarray:
    try:
        # Tensors in a list, too, are read one by one.
        return np.array([np.asarray(row) for row in mask])
    except (ValueError, TypeError, RuntimeError, OverflowError, RecursionError):
        raise ValueError(
            "diagnose(mask) takes lists of one length, of numbers, and got ragged ones: fill up "
            "the shorter."
        ) from None


def _of_array(array: np.ndarray) -> Tensor:
    if array.dtype.kind not in "biuf":
        raise TypeError(
            "diagnose(mask) takes booleans, whole numbers and floats, and got an array of "
            f"{array.dtype}: convert it with .astype(float)."
        )
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    native = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    return torch.from_numpy(native)
