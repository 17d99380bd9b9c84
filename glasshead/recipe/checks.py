"""The checks at the public boundary: each refuses in one sentence, and once."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


def whole_number(value: Any, name: str, *, least: int | None = 0) -> int:
    """`value` as an int, or an error that names the argument.

    >>> whole_number(-1, "window(before=…)")
    Traceback (most recent call last):
    ValueError: window(before=…) takes a whole number of at least 0, and got -1.
    """
    bound = "" if least is None else f" of at least {least}"
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} takes a whole number{bound}, and got {value!r}.")
    if least is not None and value < least:
        raise ValueError(f"{name} takes a whole number{bound}, and got {value!r}.")
    return value if isinstance(value, torch.SymInt) else int(value)  # type: ignore[return-value]


def whole_numbers(values: Any, name: str) -> Tensor:
    """`values` as an integer tensor: from a tensor, a number or nested lists of them."""
    tensor = values if isinstance(values, Tensor) else torch.as_tensor(values)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{name} takes whole numbers, and got a tensor of {tensor.dtype}.")
    return tensor


def positive(value: Any, name: str) -> float:
    """`value` as it is, or an error where it is not a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} takes a number above 0, and got {value!r}.")
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} takes a finite number above 0, and got {value!r}.")
    return value


def number_or_tensor(value: Any, name: str) -> float | Tensor:
    """`value` as it is, or an error where it is neither a number nor a floating-point tensor."""
    if isinstance(value, Tensor):
        if not value.is_floating_point():
            raise TypeError(f"{name} takes floating-point numbers, and got {value.dtype}.")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} takes a number or a tensor [heads], and got {value!r}.")
    if math.isnan(value):
        raise ValueError(f"{name} takes a number, and got {value!r}.")
    return value


def check_inputs(query: Any, key: Any, value: Any) -> None:
    """Raise where query, key and value cannot meet in one attention."""
    inputs = (("query", query), ("key", key), ("value", value))
    for name, tensor in inputs:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} takes a torch.Tensor, and got {type(tensor).__name__}.")
        if not tensor.is_floating_point():
            raise TypeError(
                f"{name} takes floating-point numbers, and got {tensor.dtype}: "
                f"convert it with {name}.float()."
            )
        if tensor.ndim < 2:
            raise ValueError(
                f"{name} takes [length, dim], [batch, length, dim] or "
                f"[..., heads, length, dim], and got shape {list(tensor.shape)}."
            )
    if not query.dtype == key.dtype == value.dtype:
        raise TypeError(_all_of("query, key and value take one dtype", inputs, "dtype"))
    if not query.device == key.device == value.device:
        raise ValueError(_all_of("query, key and value take one device", inputs, "device"))
    _check_shapes(query.shape, key.shape, value.shape)


def _check_shapes(query: torch.Size, key: torch.Size, value: torch.Size) -> None:
    shapes = f"query {list(query)}, key {list(key)}, value {list(value)}"
    if not len(query) == len(key) == len(value):
        raise ValueError(f"query, key and value take the same number of axes, and got {shapes}.")
    if query[-1] != key[-1]:
        raise ValueError(
            f"query and key take the same width, to be compared, and got {query[-1]} and "
            f"{key[-1]} ({shapes}): project one to the width of the other."
        )
    if key[-2] != value[-2]:
        raise ValueError(
            f"each key takes one value, and got {key[-2]} keys and {value[-2]} values ({shapes})."
        )
    if len(query) == 3 and not query[0] == key[0] == value[0]:
        raise ValueError(f"query, key and value take the same batch, and got {shapes}.")
    if len(query) < 4:
        return
    if not query[:-3] == key[:-3] == value[:-3]:
        raise ValueError(
            f"query, key and value take the same batch axes, and got {shapes}: expand() them."
        )
    if key[-3] != value[-3]:
        raise ValueError(f"key and value take the same heads, and got {shapes}.")
    if key[-3] == 0 or query[-3] % key[-3]:
        raise ValueError(
            f"query heads take a multiple of the key heads, each key head serving a group of them, "
            f"and got {query[-3]} query heads and {key[-3]} key heads ({shapes})."
        )


def check_covers(name: str, shape: Iterable[int], scores: Iterable[int]) -> None:
    """Raise where a tensor of `shape` does not broadcast to `scores`."""
    shape, scores = tuple(shape), tuple(scores)
    aligned = scores[len(scores) - len(shape) :] if len(shape) <= len(scores) else ()
    if len(shape) > len(scores) or any(
        size not in (1, whole) for size, whole in zip(shape, aligned, strict=True)
    ):
        raise ValueError(
            f"{name} takes a shape that broadcasts to {list(scores)}, and got {list(shape)}."
        )


def check_per_head(name: str, value: object, heads: int) -> None:
    """Raise where a tensor meant to hold one number per head holds another count."""
    if isinstance(value, Tensor) and value.ndim and tuple(value.shape) != (heads,):
        raise ValueError(
            f"{name} takes a number, or one per head ([{heads}]), and got {list(value.shape)}."
        )


def _all_of(expected: str, inputs: Iterable[tuple[str, Tensor]], attribute: str) -> str:
    got = ", ".join(f"{name} {getattr(tensor, attribute)}" for name, tensor in inputs)
    return f"{expected}, and got {got}: convert them with .to()."
