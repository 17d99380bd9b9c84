"""Numbers at the public boundary: each is taken as it is, or refused in one sentence."""

import math
import operator
from numbers import Real
from typing import Any

import torch
from torch import Tensor

# Positions are counted in 64 bits; these leave room for a sum of a few.
_LARGEST = 2**60
# Numbers of more bits are told by their length; Python does not write those of 4300 digits at all.
_LONG = 1024


def whole_number(value: Any, name: str, *, least: int | None = 0, most: int | None = None) -> int:
    """`value` as an int, or an error that names the argument and the bound.

    >>> whole_number(-1, "window(before=…)")
    Traceback (most recent call last):
    ValueError: window(before=…) takes a whole number of at least 0, and got -1.
    """
    if isinstance(value, torch.SymInt):
        return value  # type: ignore[return-value]
    bound = "" if least is None else f" of at least {least}"
    if type(value) is not int:
        value = _index(value, f"{name} takes a whole number{bound}")
    if least is not None and value < least:
        raise ValueError(f"{name} takes a whole number{bound}, and got {shown(value)}.")
    if most is not None and value > most:
        raise ValueError(f"{name} takes a whole number of at most {most}, and got {shown(value)}.")
    if abs(value) > _LARGEST:
        raise ValueError(f"{name} takes a whole number of 60 bits, and got {shown(value)}.")
    return value


def _index(value: Any, expected: str) -> int:
    """A whole number of another type, such as NumPy's."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise TypeError(f"{expected}, and got {shown(value)}.")


def whole_numbers(values: Any, name: str) -> Tensor:
    """`values` as an integer tensor: from a tensor, a number or nested lists of them."""
    if isinstance(values, list | tuple) and not values:
        return torch.empty(0, dtype=torch.long)
    try:
        tensor = values if isinstance(values, Tensor) else torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise TypeError(
            f"{name} takes whole numbers, in a tensor or a list, and got {shown(values)}."
        ) from None
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{name} takes whole numbers, and got a tensor of {tensor.dtype}.")
    return tensor


def offset_of(value: Any, name: str) -> int | Tensor:
    """An offset: a whole number, or a tensor of them, one per batch row."""
    if not isinstance(value, Tensor):
        return whole_number(value, name, least=None)
    numbers = whole_numbers(value, name)
    # Elsewhere its numbers are not known yet, or would have to be waited for.
    known = numbers.device.type == "cpu" and not torch.compiler.is_compiling()
    if (
        known
        and numbers.numel()
        and not -_LARGEST <= int(numbers.min()) <= int(numbers.max()) <= _LARGEST
    ):
        raise ValueError(f"{name} takes whole numbers of 60 bits, and got {shown(value)}.")
    return numbers


def finite(value: Any, name: str) -> float:
    """`value` as it is, or an error where it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} takes a number, and got {shown(value)}.")
    if not _is_finite(value):
        raise ValueError(f"{name} takes a finite number, and got {shown(value)}.")
    return float(value)


def positive(value: Any, name: str) -> float:
    """`value` as it is, or an error where it is not a finite number above 0."""
    if finite(value, name) <= 0:
        raise ValueError(f"{name} takes a number above 0, and got {shown(value)}.")
    return float(value)


def probability(value: Any, name: str) -> float:
    """`value` as it is, or an error where it is not a number from 0 up to below 1."""
    if not 0 <= finite(value, name) < 1:
        raise ValueError(f"{name} takes a probability from 0 to below 1, and got {shown(value)}.")
    return float(value)


def number_or_tensor(value: Any, name: str) -> float | Tensor:
    """`value` as it is, or an error where it is neither a number nor a floating-point tensor."""
    if not isinstance(value, Tensor):
        return finite(value, name)
    if not value.is_floating_point():
        raise TypeError(f"{name} takes floating-point numbers, and got {value.dtype}.")
    return value


def _is_finite(value: Real) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def shown(value: Any) -> str:
    """What came, of any length, in a few characters."""
    if isinstance(value, int) and value.bit_length() > _LONG:
        return f"a number of {value.bit_length()} bits"
    text = f"{type(value).__name__} {value!r}" if not isinstance(value, Real) else f"{value!r}"
    return text if len(text) <= 60 else f"{text[:57]}…"
