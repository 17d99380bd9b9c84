"""Patches of PyTorch's attention functions, installed while a watch or an ablation is open."""

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Self

import torch
from torch import Tensor
from torch._higher_order_ops.utils import _in_hop_compile
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from glasshead.watching.active import ACTIVE, without_heads
from glasshead.watching.errors import COMPILED
from glasshead.watching.interception.torch_attention import (
    by_name,
    capture_multi_head,
    capture_sdpa,
    crosses,
    projecting_without,
    shows_itself,
)


@dataclass
class Patch:
    """A monkey patch of a function in a module or class.

    Args:
        home: The module or class.
        name: The name of the function.
        stand_in: The replacement, called with the original before the arguments.
        kernels: Whether compiled code is observed through the kernels that it runs.
    """

    home: Any
    name: str
    stand_in: Callable[..., Any]
    kernels: bool = False

    def open(self) -> None:
        """Install the replacement."""
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
        """Restore the original, unless it has been patched again since."""
        if getattr(self.home, self.name) is self._standing:
            setattr(self.home, self.name, self._original)


@torch.compiler.assume_constant_result
def _is_compiled(kernels: bool) -> bool:
    """Record, while the compiler traces, that a call is being compiled.

    Higher-order operators have their functions traced, too, and run them unchanged, kernel by
    kernel. Exported code does not run.
    """
    if not torch.compiler.is_exporting():
        ACTIVE.record_compiled(seen=kernels and _in_hop_compile())
    return True


class OneThread:
    """Mixin that enters and leaves a PyTorch mode in one thread only.

    Each thread has its own stack of modes. A mode that is left in another thread does nothing
    there: its own stack has ended with its thread, or has no effect.
    """

    # Thread ids are reused once a thread has ended; thread-local data is not.
    _entered = threading.local()

    def __enter__(self) -> Self:
        self._entered.__dict__.setdefault("modes", []).append(self)
        return super().__enter__()  # type: ignore[misc] - the mode's

    def __exit__(self, *error: object) -> None:
        modes = self._entered.__dict__.get("modes", [])
        if self in modes:
            modes.remove(self)
            super().__exit__(*error)  # type: ignore[misc] - the mode's


class FunctionInterceptMode(OneThread, TorchFunctionMode):
    """A mode that replaces calls of a function, above autograd.

    It also sees calls by names that cannot be patched, as those of `from … import`. While it is
    open, PyTorch's own layers leave their fast paths, in which heads have no separate context.

    Args:
        function: The function to intercept.
        stand_in: The replacement, called with the function before the arguments.
    """

    def __init__(self, function: Callable[..., Any], stand_in: Callable[..., Any]) -> None:
        super().__init__()
        self._function, self._stand_in = function, stand_in

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        if func is self._function:
            return self._stand_in(func, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


_Function = Callable[..., Any]
# The original, whether patched or not.
_SDPA = torch._C._nn.scaled_dot_product_attention  # type: ignore[reportAttributeAccessIssue]  # noqa: SLF001 - it has no other name


def functions() -> list[Patch]:
    """Return the patches of PyTorch's functions.

    Intercepting kernels would suffice, except where PyTorch falls back to matrix products and a
    softmax: with dropout, three axes, or unequal widths.
    """
    replaced = [
        Patch(F, "scaled_dot_product_attention", _sdpa, kernels=True),
        Patch(F, "multi_head_attention_forward", _multi_head),
    ]
    if "torch._dynamo" in sys.modules:
        # Without it nothing is compiled, and importing it takes seconds.
        from torch._inductor.output_code import CompiledFxGraph

        replaced.append(Patch(CompiledFxGraph, "__call__", _compiled))
    return replaced


def by_any_name() -> FunctionInterceptMode:
    """Return a mode that intercepts `scaled_dot_product_attention` by any name."""
    return FunctionInterceptMode(_SDPA, _sdpa)


def _sdpa(original: _Function, *inputs: Any, **named: Any) -> Tensor:
    if not ACTIVE.enabled:
        ACTIVE.notify_other_threads()
        return original(*inputs, **named)
    with ACTIVE.suspended() as logsumexps:
        output = original(*inputs, **named)
    ACTIVE.observe(
        None, partial(capture_sdpa, *inputs, **named, output=output, logsumexps=logsumexps), output
    )
    # Nested tensors have no size along that axis.
    heads = output.shape[-3] if output.ndim > 3 and not output.is_nested else None
    return without_heads(output, ACTIVE.removed(None, heads), -3)


def _compiled(original: _Function, graph: Any, *inputs: Any, **named: Any) -> Any:
    """Run a compiled graph, which calls observable kernels, and generated ones that are not.

    Its source names the operators that it was generated from.
    """
    if ACTIVE.watchers and ACTIVE.enabled:
        source = graph.source_code or ""
        if "flex_attention" in source or ("scaled_dot_product" in source and "_softmax" in source):
            ACTIVE.record_unseen(COMPILED)
        elif "_softmax" in source:
            ACTIVE.record_softmax(2)
    return original(graph, *inputs, **named)


def _multi_head(original: _Function, *inputs: Any, **named: Any) -> Any:
    if not ACTIVE.enabled:
        ACTIVE.notify_other_threads()
        return original(*inputs, **named)
    given = by_name(*inputs, **named)
    with ACTIVE.in_layer(partial(crosses, given)):
        return _multi_head_of(original, given)


def _multi_head_of(original: _Function, given: dict[str, Any]) -> Any:
    if shows_itself(given):
        return original(**given)
    if removed := ACTIVE.removed(None, given["num_heads"]):
        given = projecting_without(removed, given)
    with ACTIVE.suspended():
        output = original(**given)
    ACTIVE.observe(None, partial(capture_multi_head, given), output[0])
    return output
