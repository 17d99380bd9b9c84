"""The public boundary: shapes and numbers, checked with one sentence per error, and autocast."""

import math
import operator
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.private_names import private, runs_code_of

# Positions are 64-bit integers; this leaves room for the sum of a few.
_LARGEST = 2**60
# Errors give the length of integers with more bits; Python refuses to print 4300 digits.
_LONG = 1024


class UnfitError(ValueError):
    """A request that does not fit the attention, which may only show when the attention runs."""


def whole_number(value: Any, name: str, *, least: int | None = 0, most: int | None = None) -> int:
    """Return `value` as an int, or raise an error that names the argument and the bound.

    >>> whole_number(-1, "window(before=…)")
    Traceback (most recent call last):
    ValueError: window(before=…) must be a whole number of at least 0, got -1.
    """
    if isinstance(value, torch.SymInt):
        return value  # type: ignore[return-value]
    bound = "" if least is None else f" of at least {least}"
    if type(value) is not int:
        given: Any = None if isinstance(value, bool) else value
        try:
            value = operator.index(given)  # of another type, such as NumPy's
        except TypeError:
            raise TypeError(f"{name} must be a whole number{bound}, got {shown(value)}.") from None
    if least is not None and value < least:
        raise ValueError(f"{name} must be a whole number{bound}, got {shown(value)}.")
    if most is not None and value > most:
        raise ValueError(f"{name} must be a whole number of at most {most}, got {shown(value)}.")
    if most is None and abs(value) > _LARGEST:
        raise ValueError(f"{name} must be a whole number of 60 bits, got {shown(value)}.")
    return value


def whole_numbers(values: Any, name: str) -> Tensor:
    """Return `values` as an integer tensor: from a tensor, a number or nested lists of them."""
    # A tuple of types, as PyTorch 2.8 cannot compile a union.
    if isinstance(values, (list, tuple)) and not values:
        return torch.empty(0, dtype=torch.long)
    try:
        tensor = values if isinstance(values, Tensor) else torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise TypeError(
            f"{name} must be whole numbers, in a tensor or a list, got {shown(values)}."
        ) from None
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{name} must be whole numbers, got a tensor of {tensor.dtype}.")
    return tensor


def offset_of(value: Any, name: str) -> int | Tensor:
    """Check an offset: a whole number, or a tensor of them, one per batch row."""
    if not isinstance(value, Tensor):
        return whole_number(value, name, least=None)
    numbers = whole_numbers(value, name)
    # On other devices, values are unknown or would need a synchronization.
    known = numbers.device.type == "cpu" and not torch.compiler.is_compiling()
    if (
        known
        and numbers.numel()
        and not -_LARGEST <= int(numbers.min()) <= int(numbers.max()) <= _LARGEST
    ):
        raise ValueError(f"{name} must be whole numbers of 60 bits, got {shown(value)}.")
    return numbers


def check_divides(name: str, divisor: int, of: str, number: int) -> None:
    """Raise a ValueError if `divisor` does not divide `number`."""
    if number % divisor:
        raise ValueError(f"{name} must divide {of}={number}, got {divisor}.")


def one_of(value: Any, name: str, choices: Iterable[Any]) -> Any:
    """Return `value` if it is one of the choices, or raise an error that lists them.

    >>> one_of("up", "side", ("left", "right"))
    Traceback (most recent call last):
    ValueError: side must be 'left' or 'right', got 'up'.
    """
    choices = list(choices)
    if value not in choices:
        *first, last = map(repr, choices)
        raise ValueError(f"{name} must be {', '.join(first)} or {last}, got {value!r}.")
    return value


def finite(value: Any, name: str) -> float:
    """Check that `value` is a finite number, and return it."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {shown(value)}.")
    try:
        is_finite = math.isfinite(value)
    except OverflowError:
        is_finite = False
    if not is_finite:
        raise ValueError(f"{name} must be a finite number, got {shown(value)}.")
    return float(value)


def positive(value: Any, name: str) -> float:
    """Check that `value` is a finite number above 0, and return it."""
    if finite(value, name) <= 0:
        raise ValueError(f"{name} must be a number above 0, got {shown(value)}.")
    return float(value)


# Beyond these bounds float32 divides by 0, or multiplies by infinity.
_LEAST_SOFTCAP, _LARGEST_SOFTCAP = 1e-30, 1e30


def softcap_of(value: Any) -> float | None:
    """Check a softcap, and return it; None if there is none, or it changes no finite score."""
    if value is None or positive(value, "softcap") > _LARGEST_SOFTCAP:
        return None
    if value < _LEAST_SOFTCAP:
        raise ValueError(f"softcap must be at least {_LEAST_SOFTCAP}, got {value!r}.")
    return float(value)


def probability(value: Any, name: str) -> float:
    """Check that `value` is a number in [0, 1), and return it."""
    if not 0 <= finite(value, name) < 1:
        raise ValueError(f"{name} must be a probability from 0 to below 1, got {shown(value)}.")
    return float(value)


def number_or_tensor(value: Any, name: str) -> float | Tensor:
    """Check that `value` is a finite number or a floating-point tensor, and return it."""
    if not isinstance(value, Tensor):
        return finite(value, name)
    if not value.is_floating_point():
        raise TypeError(f"{name} must be floating-point numbers, got {value.dtype}.")
    return value


def shown(value: Any) -> str:
    """Describe a rejected value in at most 60 characters."""
    if isinstance(value, int) and value.bit_length() > _LONG:
        return f"a number of {value.bit_length()} bits"
    text = f"{type(value).__name__} {value!r}" if not isinstance(value, Real) else f"{value!r}"
    return text if len(text) <= 60 else f"{text[:57]}…"


FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def in_float64(tensor: Tensor) -> Tensor:
    """Return a tensor in float64: on the CPU where it is on an Apple GPU, which has no float64."""
    return (tensor.cpu() if tensor.device.type == "mps" else tensor).double()


def check_inputs(query: Any, key: Any, value: Any) -> None:
    """Check types, dtypes, devices and shapes of query, key and value."""
    inputs = (("query", query), ("key", key), ("value", value))
    for name, tensor in inputs:
        _check_input(name, tensor)
    if not query.dtype == key.dtype == value.dtype:
        raise TypeError(_all_of("query, key and value must have one dtype", inputs, "dtype"))
    if not query.device == key.device == value.device:
        raise ValueError(_all_of("query, key and value must be on one device", inputs, "device"))
    _check_shapes(query.shape, key.shape, value.shape)


def _check_input(name: str, tensor: Any) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}.")
    if tensor.is_nested:
        raise TypeError(
            f"{name} must have rows of one length, got a nested tensor. Pad it with "
            f"torch.nested.to_padded_tensor({name}, 0), and hide the padding with "
            "mask=gh.padding(…)."
        )
    if tensor.dtype not in FLOATS:
        raise TypeError(
            f"{name} must be float16, bfloat16, float32 or float64, got {tensor.dtype}. Convert "
            f"it with {name}.float()."
        )
    if tensor.layout != torch.strided:
        raise TypeError(
            f"{name} must be a dense tensor, got {tensor.layout}. Convert it with .to_dense()."
        )
    if not torch.compiler.is_compiling():
        check_memory(name, tensor)
    if tensor.ndim < 2:
        raise ValueError(
            f"{name} must be [length, dim], [batch, length, dim] or [..., heads, length, dim], "
            f"got shape {list(tensor.shape)}."
        )


def _check_shapes(query: torch.Size, key: torch.Size, value: torch.Size) -> None:
    if not len(query) == len(key) == len(value):
        raise ValueError(
            "query, key and value must have the same number of axes, got "
            f"{_shapes(query, key, value)}."
        )
    if query[-1] != key[-1]:
        raise ValueError(
            f"query and key must have the same width, got {query[-1]} and {key[-1]} "
            f"({_shapes(query, key, value)}). Project one to the width of the other."
        )
    if key[-2] != value[-2]:
        raise ValueError(
            f"each key must have one value, got {key[-2]} keys and {value[-2]} values "
            f"({_shapes(query, key, value)})."
        )
    if len(query) == 3 and not query[0] == key[0] == value[0]:
        raise ValueError(
            f"query, key and value must have the same batch, got {_shapes(query, key, value)}."
        )
    if len(query) <= 3:
        return
    if not query[:-3] == key[:-3] == value[:-3]:
        raise ValueError(
            "query, key and value must have the same batch axes, got "
            f"{_shapes(query, key, value)}. Use expand()."
        )
    if key[-3] != value[-3]:
        raise ValueError(
            f"key and value must have the same heads, got {_shapes(query, key, value)}."
        )
    if key[-3] == 0 or query[-3] % key[-3]:
        raise ValueError(
            f"the query heads must be a multiple of the key heads, got {query[-3]} query heads "
            f"and {key[-3]} key heads ({_shapes(query, key, value)})."
        )


def _shapes(query: torch.Size, key: torch.Size, value: torch.Size) -> str:
    return f"query {list(query)}, key {list(key)}, value {list(value)}"


def check_covers(name: str, shape: Iterable[int], scores: Iterable[int]) -> None:
    """Check that a tensor of `shape` broadcasts to `scores`."""
    shape, scores = tuple(shape), tuple(scores)
    aligned = scores[len(scores) - len(shape) :] if len(shape) <= len(scores) else ()
    # Not `in (1, whole)`: under torch.compile sizes may be symbols, which compare one by one.
    if len(shape) > len(scores) or any(
        size != 1 and size != whole  # noqa: PLR1714
        for size, whole in zip(shape, aligned, strict=True)
    ):
        raise ValueError(
            f"{name} must have a shape that broadcasts to {list(scores)}, got {list(shape)}."
        )


def check_gives(
    part: object,
    result: Tensor,
    wanted: Sequence[int],
    *,
    exactly: bool = False,
    what: str = "result",
) -> None:
    """Check the shape that a part of the recipe gives, which engines read without another look.

    Args:
        part: The part, which the error names.
        result: What it gave.
        wanted: The shape that it must broadcast to, or, `exactly`, have.
        what: What the result is.
    """
    if torch.compiler.is_compiling():
        return  # Broadcasting checks it, and the operator that runs in the end.
    shape = tuple(result.shape)
    if shape == tuple(wanted):
        return
    aligned = tuple(wanted)[max(0, len(wanted) - len(shape)) :]
    fits = len(shape) == len(aligned) and all(
        size in (1, whole) for size, whole in zip(shape, aligned, strict=True)
    )
    if exactly or not fits:
        how = "have the shape" if exactly else "have a shape that broadcasts to"
        raise ValueError(
            f"the {what} of {named(part)} must {how} {list(wanted)}, got {list(shape)}."
        )


def named(part: object) -> str:
    """Name a part of the recipe by its class, or a tensor as one."""
    return "a tensor" if isinstance(part, Tensor) else type(part).__name__


def check_memory(name: str, tensor: Tensor) -> None:
    """Check that a tensor's storage reaches to its last number: it may have been freed or shrunk.

    Source: PyTorch's FSDP, which frees parameters by `untyped_storage().resize_(0)`.
    """
    try:
        held = tensor.untyped_storage().nbytes()
    except (NotImplementedError, RuntimeError):
        return  # A tensor that a transform wraps has no storage of its own.
    needed = tensor.nbytes if tensor.is_contiguous() else extent(tensor)
    needed += tensor.storage_offset() * tensor.itemsize
    if held < needed and tensor.numel():
        raise ValueError(
            f"{name} must have a storage of at least {needed} bytes, got {held}. It was freed or "
            "shrunk."
        )


def extent(tensor: Tensor) -> int:
    """Return the bytes from a tensor's first number to the end of its last one."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return (1 + sum((size - 1) * step for size, step in steps)) * tensor.itemsize


def check_heads(name: str, heads: int, scores: tuple[int, ...]) -> None:
    """Check that the scores have as many query heads as a part was made for."""
    if scores[-3] != heads:
        raise ValueError(f"{name} must have {heads} query heads, got {scores[-3]}.")


def check_per_head(name: str, value: object, heads: int) -> None:
    """Check that a tensor with one number per head has that many."""
    if isinstance(value, Tensor) and value.ndim and tuple(value.shape) != (heads,):
        raise ValueError(
            f"{name} must be a number, or one per head ([{heads}]), got {list(value.shape)}."
        )


def check_offset(name: str, offset: int | Tensor, scores: tuple[int, ...]) -> None:
    """Check that a tensor of offsets has one number per batch row."""
    if isinstance(offset, Tensor):
        check_covers(f"{name}, one number a batch row,", offset.shape, scores[:-3])


def _all_of(expected: str, inputs: Iterable[tuple[str, Tensor]], attribute: str) -> str:
    got = ", ".join(f"{name} {getattr(tensor, attribute)}" for name, tensor in inputs)
    return f"{expected}, got {got}. Convert them with .to()."


def cast_inputs(*inputs: Any) -> tuple[Any, ...]:
    """Cast inputs to the autocast dtype where autocast is on; float64 is left alone."""
    first = inputs[0]
    if not isinstance(first, Tensor) or not _is_on(first.device):
        return inputs
    dtype = torch.get_autocast_dtype(first.device.type)
    return tuple(x.to(dtype) if _is_cast(x) else x for x in inputs)


def without_autocast(device: torch.device) -> AbstractContextManager:
    """Return a context with autocast off, so that inputs cast already lose no precision."""
    return torch.autocast(device.type, enabled=False) if _is_on(device) else nullcontext()


# Devices that always have autocast: PyTorch 2.8 cannot compile the question.
_AUTOCASTING = ("cpu", "cuda")


def _is_on(device: torch.device) -> bool:
    # Querying a device without autocast, such as meta, is an error.
    kind = device.type
    available = kind in _AUTOCASTING or torch.amp.is_autocast_available(kind)
    return available and torch.is_autocast_enabled(kind)


def _is_cast(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point() and x.dtype != torch.float64


# Looked up once, as every call asks.
_innermost_transform = private("torch._C._functorch.peek_interpreter_stack")


def is_traced() -> bool:
    """Return whether the call is being traced, so that no mask object can be called later."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[reportPrivateImportUsage]
        return True
    # Of make_fx, which need not have been imported.
    proxies = sys.modules.get("torch.fx.experimental.proxy_tensor")
    proxy_mode = getattr(proxies, "get_proxy_mode", None)
    return proxy_mode is not None and proxy_mode() is not None


def is_transformed() -> bool:
    """Return whether a transform of torch.func, such as vmap, wraps the tensors of this call."""
    if _innermost_transform is not None:
        return _innermost_transform() is not None
    transforms = torch.func.vmap, torch.func.vjp, torch.autograd.functional.jacobian
    return runs_code_of(*(function.__code__.co_filename for function in transforms))


def register_value(module: nn.Module, name: str, value: object) -> None:
    """Set `module.name` so that a tensor moves, saves and learns with the module.

    A parameter or a module registers as such; a plain tensor becomes a buffer; anything else, such
    as a tensor that was computed from a parameter held elsewhere, is an ordinary attribute.

    >>> import torch
    >>> linear = nn.Linear(2, 3)
    >>> register_value(linear, "beta", torch.ones(2))
    >>> sorted(linear.state_dict())
    ['beta', 'bias', 'weight']
    """
    if isinstance(value, Tensor) and not isinstance(value, nn.Parameter) and value.is_leaf:
        module.register_buffer(name, value)
    else:
        setattr(module, name, value)


def per_head(value: float | Tensor) -> float | Tensor:
    """Shape a number or a tensor `[heads]` to multiply scores `[..., heads, queries, keys]`."""
    return value[:, None, None] if isinstance(value, Tensor) and value.ndim else value
