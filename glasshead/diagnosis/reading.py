"""Reading: a mask of whatever type, as a tensor."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Shaped
from torch import Tensor

# Lines of code that a report gives cannot compare the others in torch.
_WHOLE = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
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
        values = _of_array(mask)
        given = Given(values, _written(mask, values), typed=True)
    elif isinstance(mask, Sequence) and not isinstance(mask, str | bytes | range):
        source = "torch.as_tensor(mask)"
        # Of arrays, torch makes a tensor by itself.
        if any(isinstance(row, Tensor) and row.ndim for row in mask):
            source = "torch.stack([torch.as_tensor(row) for row in mask])"
        given = Given(_of_array(_listed(mask)), source, typed=False)
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
    if tensor.is_nested:
        raise TypeError(
            "diagnose(mask) takes rows of one length, and got a nested tensor: convert it with "
            "torch.nested.to_padded_tensor(mask, 0)."
        )
    known = tensor.layout == torch.strided and tensor.device.type != "meta"
    if not known or tensor.is_quantized:
        raise TypeError(
            "diagnose(mask) takes a dense tensor whose numbers can be read, and got one of layout "
            f"{tensor.layout} on {tensor.device}: convert it with .to_dense() or make it on cpu."
        )
    if tensor.dtype not in _WHOLE and tensor.dtype not in FLOATS:
        way = ".long()" if str(tensor.dtype).startswith("torch.uint") else ".float()"
        raise TypeError(
            "diagnose(mask) takes bool, uint8, int8, int16, int32, int64, float16, bfloat16, "
            f"float32 or float64, and got {tensor.dtype}: convert it with {way}."
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


def _written(array: np.ndarray, values: Tensor) -> str:
    """Python for the tensor of an array that torch may not take as it is."""
    own = str(values.dtype).removeprefix("torch.")
    taken = array.dtype.isnative and array.dtype.name == own
    if taken and all(stride >= 0 for stride in array.strides):
        return "torch.as_tensor(mask)"
    return f'torch.as_tensor(mask.astype("{own}"))'


def _of_array(array: np.ndarray) -> Tensor:
    if array.dtype.kind not in "biuf":
        raise TypeError(
            "diagnose(mask) takes booleans, whole numbers and floats, and got an array of "
            f"{array.dtype}: convert it with .astype(float)."
        )
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        if array.size and int(array.max()) >= 2**63:
            raise ValueError(
                f"diagnose(mask) takes whole numbers below 2^63, and got {array.max()}: give 0 "
                "and 1, or False and True."
            )
        array = array.astype(np.int64)
    native = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    return torch.from_numpy(native)
