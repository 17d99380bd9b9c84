"""Replacing: a function stands in for another as long as anybody watches or removes heads."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
from torch._higher_order_ops.utils import _in_hop_compile

from glasshead.watching.active import ACTIVE


@dataclass
class Replaced:
    """A function that is looked up by its name in a module or a class.

    Args:
        home: Where it is looked up.
        name: By which name.
        stand_in: Called instead, with the original before the arguments.
        kernels: Whether it is seen by the kernels that it runs, if not by its name.
    """

    home: Any
    name: str
    stand_in: Callable[..., Any]
    kernels: bool = False

    def open(self) -> None:
        """Put the stand-in in its place."""
        self._original = original = getattr(self.home, self.name)
        stand_in, kernels = self.stand_in, self.kernels

        def standing(*inputs: Any, **named: Any) -> Any:
            if torch.compiler.is_compiling():
                _is_compiled(kernels)
                return original(*inputs, **named)
            return stand_in(original, *inputs, **named)

        self._standing = wraps(original)(standing)
        setattr(self.home, self.name, self._standing)

    def close(self) -> None:
        """Put the original back, unless somebody else has replaced it since."""
        if getattr(self.home, self.name) is self._standing:
            setattr(self.home, self.name, self._original)


@torch.compiler.assume_constant_result
def _is_compiled(kernels: bool) -> bool:
    """Take note of it, while the compiler reads on.

    Higher-order operators have their functions read by the compiler, too, and run them as they
    are, kernel by kernel. What is exported does not run.
    """
    if not torch.compiler.is_exporting():
        ACTIVE.is_compiled(seen=kernels and _in_hop_compile())
    return True
