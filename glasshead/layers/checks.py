"""Validation of the arguments and inputs of layers."""

from collections.abc import Sequence
from typing import Any, TypeVar

from torch import Tensor, nn

from glasshead.recipe.validation import whole_number

_Part = TypeVar("_Part", bound=nn.Module)


def check_divides(name: str, divisor: int, of: str, number: int) -> None:
    """Raise a ValueError where `divisor` does not divide `number`."""
    if number % divisor:
        raise ValueError(
            f"{name} takes a number that divides {of}={number}, and got {divisor}: choose another."
        )


def check_is(part: Any, kind: type[_Part]) -> _Part:
    """Check the type of a module, and return it."""
    if not isinstance(part, kind):
        name = kind.__name__
        raise TypeError(f"{name.lower()} takes an object of {name}, and got {part!r}: build one.")
    return part


def three_widths(given: Any) -> tuple[int, ...]:
    """Return the widths of query, key and value from one width or three.

    Errors: a TypeError or ValueError where `given` is neither one width nor three.
    """
    widths = tuple(given) if isinstance(given, list | tuple) else (given,) * 3
    if len(widths) != 3:
        raise ValueError(
            f"d_input takes one width, or those of query, key and value, and got {given}: name "
            "three."
        )
    return tuple(whole_number(width, "d_input", least=1) for width in widths)


def check_inputs(given: Sequence[Tensor], widths: Sequence[int]) -> None:
    """Check that query, key and value are `[batch, length, width]` with these widths."""
    for name, x, width in zip(("query", "key", "value"), given, widths, strict=False):
        if not isinstance(x, Tensor) or not x.is_floating_point():
            kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(
                f"{name} takes a tensor of floating-point numbers, and got {kind}: embed the "
                "tokens first."
            )
        if x.ndim != 3 or x.shape[-1] != width:
            raise ValueError(
                f"{name} takes [batch, length, {width}], and got {list(x.shape)}: give one text as "
                f"{name}[None], or build with d_input equal to its width."
            )
