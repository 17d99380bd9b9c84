"""Replacing: a function stands in for another as long as anybody watches or removes heads."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch

from glasshead.watching.active import ACTIVE


@dataclass
class Replaced:
    """A function that is looked up by its name in a module or a class.

    Args:
        home: Where it is looked up.
        name: By which name.
        stand_in: Called instead, with the original before the arguments.
    """

    home: Any
    name: str
    stand_in: Callable[..., Any]

    def open(self) -> None:
        """Put the stand-in in its place."""
        self._original = original = getattr(self.home, self.name)
        stand_in = self.stand_in

        def standing(*inputs: Any, **named: Any) -> Any:
            if torch.compiler.is_compiling():
                _is_compiled()
                return original(*inputs, **named)
            return stand_in(original, *inputs, **named)

        self._standing = wraps(original)(standing)
        setattr(self.home, self.name, self._standing)

    def close(self) -> None:
        """Put the original back, unless somebody else has replaced it since."""
        if getattr(self.home, self.name) is self._standing:
            setattr(self.home, self.name, self._original)


@torch.compiler.assume_constant_result
def _is_compiled() -> bool:
    """Take note of it, while the compiler reads on."""
    ACTIVE.is_compiled()
    return True
