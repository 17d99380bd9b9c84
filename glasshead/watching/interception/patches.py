"""Functions of PyTorch and of models, replaced while anybody watches."""

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
    crosses,
    met_multi_head,
    met_sdpa,
    projecting_without,
    shows_itself,
)


@dataclass
class Patch:
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


class OneThread:
    """What a mode of PyTorch is entered and left by.

    The stack of modes is each thread's own. A mode that is left in another thread finds nothing to
    do there: its own stack has ended with its thread, or tells nobody.
    """

    # Numbers of threads are given anew once a thread has ended; what is local to one is not.
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
    """Lets a stand-in run where a function is called, above what computes gradients.

    Who has imported a function has it under a name that nobody can replace. And while a mode as
    this one is open, PyTorch's own layers leave their fast paths, in which heads have no context of
    their own.

    Args:
        function: What is called.
        stand_in: Called instead, with the function before the arguments.
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
# What it is, whatever it has been replaced by.
_SDPA = torch._C._nn.scaled_dot_product_attention  # type: ignore[reportAttributeAccessIssue]  # noqa: SLF001 - it has no other name


def functions() -> list[Patch]:
    """What is replaced while anybody watches or removes heads.

    The kernels below would do, but where PyTorch takes the long way, of matrix products and a
    softmax: with dropout, three axes, or unequal widths.
    """
    replaced = [
        Patch(F, "scaled_dot_product_attention", _sdpa, kernels=True),
        Patch(F, "multi_head_attention_forward", _multi_head),
    ]
    if "torch._dynamo" in sys.modules:
        # Nothing is compiled without it, and to import it takes seconds.
        from torch._inductor.output_code import CompiledFxGraph

        replaced.append(Patch(CompiledFxGraph, "__call__", _compiled))
    return replaced


def by_any_name() -> FunctionInterceptMode:
    """What meets the one that leaves heads their own context, where a model has imported it."""
    return FunctionInterceptMode(_SDPA, _sdpa)


def _sdpa(original: _Function, *inputs: Any, **named: Any) -> Tensor:
    if not ACTIVE.looking:
        ACTIVE.overheard()
        return original(*inputs, **named)
    with ACTIVE.running() as told:
        output = original(*inputs, **named)
    ACTIVE.saw(None, partial(met_sdpa, *inputs, **named, output=output, told=told), output)
    # Of packed texts, whose axes have no sizes, it cannot be told.
    heads = output.shape[-3] if output.ndim > 3 and not output.is_nested else None
    return without_heads(output, ACTIVE.removed(None, heads), -3)


def _compiled(original: _Function, graph: Any, *inputs: Any, **named: Any) -> Any:
    """Run what the compiler made of a function; it calls kernels that are seen, and makes others.

    Its source names the operators that it was made of.
    """
    if ACTIVE.watchers and ACTIVE.looking:
        source = graph.source_code or ""
        if "flex_attention" in source or ("scaled_dot_product" in source and "_softmax" in source):
            ACTIVE.missed(COMPILED)
        elif "_softmax" in source:
            ACTIVE.computed_a_softmax(2)
    return original(graph, *inputs, **named)


def _multi_head(original: _Function, *inputs: Any, **named: Any) -> Any:
    if not ACTIVE.looking:
        ACTIVE.overheard()
        return original(*inputs, **named)
    given = by_name(*inputs, **named)
    with ACTIVE.within(partial(crosses, given)):
        return _multi_head_of(original, given)


def _multi_head_of(original: _Function, given: dict[str, Any]) -> Any:
    if shows_itself(given):
        return original(**given)
    if removed := ACTIVE.removed(None, given["num_heads"]):
        given = projecting_without(removed, given)
    with ACTIVE.running():
        output = original(**given)
    ACTIVE.saw(None, partial(met_multi_head, given), output[0])
    return output
