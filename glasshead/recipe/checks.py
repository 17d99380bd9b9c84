"""Shapes at the public boundary: what does not fit is refused in one sentence, and once."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

_FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def check_inputs(query: Any, key: Any, value: Any) -> None:
    """Raise where query, key and value cannot meet in one attention."""
    inputs = (("query", query), ("key", key), ("value", value))
    for name, tensor in inputs:
        _check_input(name, tensor)
    if not query.dtype == key.dtype == value.dtype:
        raise TypeError(_all_of("query, key and value take one dtype", inputs, "dtype"))
    if not query.device == key.device == value.device:
        raise ValueError(_all_of("query, key and value take one device", inputs, "device"))
    _check_shapes(query.shape, key.shape, value.shape)


def _check_input(name: str, tensor: Any) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} takes a torch.Tensor, and got {type(tensor).__name__}.")
    if tensor.dtype not in _FLOATS:
        raise TypeError(
            f"{name} takes float16, bfloat16, float32 or float64, and got {tensor.dtype}: "
            f"convert it with {name}.float()."
        )
    if tensor.layout != torch.strided:
        raise TypeError(
            f"{name} takes a dense tensor, and got {tensor.layout}: convert it with .to_dense()."
        )
    if tensor.ndim < 2:
        raise ValueError(
            f"{name} takes [length, dim], [batch, length, dim] or [..., heads, length, dim], "
            f"and got shape {list(tensor.shape)}."
        )


def _check_shapes(query: torch.Size, key: torch.Size, value: torch.Size) -> None:
    if not len(query) == len(key) == len(value):
        raise ValueError(
            "query, key and value take the same number of axes, and got "
            f"{_shapes(query, key, value)}."
        )
    if query[-1] != key[-1]:
        raise ValueError(
            f"query and key take the same width, to be compared, and got {query[-1]} and "
            f"{key[-1]} ({_shapes(query, key, value)}): project one to the width of the other."
        )
    if key[-2] != value[-2]:
        raise ValueError(
            f"each key takes one value, and got {key[-2]} keys and {value[-2]} values "
            f"({_shapes(query, key, value)})."
        )
    if len(query) == 3 and not query[0] == key[0] == value[0]:
        raise ValueError(
            f"query, key and value take the same batch, and got {_shapes(query, key, value)}."
        )
    if len(query) > 3:
        _check_batch_and_heads(query, key, value)


def _check_batch_and_heads(query: torch.Size, key: torch.Size, value: torch.Size) -> None:
    if not query[:-3] == key[:-3] == value[:-3]:
        raise ValueError(
            "query, key and value take the same batch axes, and got "
            f"{_shapes(query, key, value)}: expand() them."
        )
    if key[-3] != value[-3]:
        raise ValueError(
            f"key and value take the same heads, and got {_shapes(query, key, value)}."
        )
    if key[-3] == 0 or query[-3] % key[-3]:
        raise ValueError(
            f"query heads take a multiple of the key heads, each key head serving a group of them, "
            f"and got {query[-3]} query heads and {key[-3]} key heads "
            f"({_shapes(query, key, value)})."
        )


def _shapes(query: torch.Size, key: torch.Size, value: torch.Size) -> str:
    return f"query {list(query)}, key {list(key)}, value {list(value)}"


def check_covers(name: str, shape: Iterable[int], scores: Iterable[int]) -> None:
    """Raise where a tensor of `shape` does not broadcast to `scores`."""
    shape, scores = tuple(shape), tuple(scores)
    aligned = scores[len(scores) - len(shape) :] if len(shape) <= len(scores) else ()
    # Not `in (1, whole)`: under torch.compile sizes may be symbols, which compare one by one.
    if len(shape) > len(scores) or any(
        size != 1 and size != whole  # noqa: PLR1714
        for size, whole in zip(shape, aligned, strict=True)
    ):
        raise ValueError(
            f"{name} takes a shape that broadcasts to {list(scores)}, and got {list(shape)}."
        )


def check_heads(name: str, heads: int, scores: tuple[int, ...]) -> None:
    """Raise where a part made for `heads` query heads meets another number of them."""
    if scores[-3] != heads:
        raise ValueError(f"{name} takes {heads} query heads, and got {scores[-3]}.")


def check_per_head(name: str, value: object, heads: int) -> None:
    """Raise where a tensor meant to hold one number per head holds another count."""
    if isinstance(value, Tensor) and value.ndim and tuple(value.shape) != (heads,):
        raise ValueError(
            f"{name} takes a number, or one per head ([{heads}]), and got {list(value.shape)}."
        )


def check_offset(name: str, offset: int | Tensor, scores: tuple[int, ...]) -> None:
    """Raise where a tensor of offsets is not one number a batch row."""
    if isinstance(offset, Tensor):
        check_covers(f"{name}, one number a batch row,", offset.shape, scores[:-3])


def _all_of(expected: str, inputs: Iterable[tuple[str, Tensor]], attribute: str) -> str:
    got = ", ".join(f"{name} {getattr(tensor, attribute)}" for name, tensor in inputs)
    return f"{expected}, and got {got}: convert them with .to()."
