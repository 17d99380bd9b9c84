"""Compiled models: code of `torch.compile` is compiled again for a watch, and kept for the next.

While a watch is open, the compiler's backend runs behind the pass of `watched_graph`, which adds an
operator beside each attention. PyTorch keeps compiled code by its backend: what was compiled before
the block is not found within it and runs again after it, and the other way round.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.fx import GraphModule

from glasshead.private_names import lacking, private
from glasshead.watching.errors import STANCE
from glasshead.watching.interception.circumstances import compiles_for_operator
from glasshead.watching.interception.operator_mode import CompilerCallback
from glasshead.watching.interception.session import THREADS, Patch, Session
from glasshead.watching.interception.watched_graph import WatchedGraph
from glasshead.watching.module_calls import compiled_parts

_DYNAMO = "torch._dynamo.eval_frame"
_STANCE = f"{_DYNAMO}._callback_from_stance"
_INNERMOST = f"{_DYNAMO}.innermost_backend"
_REGIONS = f"{_DYNAMO}._next_isolate_recompiles_id"
_REGION = "torch._C._dynamo.eval_frame.set_eval_frame_isolate_recompiles_id"
_IGNORES = "torch.utils._python_dispatch.TorchDispatchMode.ignore_compile_internals"


def check_compiled(model: nn.Module) -> None:
    """Check that the compiled parts of a model, if it has any, can be watched.

    Errors: a ValueError if this version of PyTorch cannot compile code again.
    """
    parts = compiled_parts(model)
    if parts and (name := _lacks()):
        raise ValueError(
            lacking(
                f"watch cannot compile {parts[0] or 'the model'!r} again",
                name,
                "Watch the model that was given to torch.compile",
            )
        )


def _lacks() -> str | None:
    """Return the private name that compiling again needs and PyTorch lacks; None: it has all."""
    return next((name for name in (_IGNORES, _STANCE, _INNERMOST) if private(name) is None), None)


def recompiling() -> list[Patch]:
    """Return the patch by which code is compiled again for a watch."""
    home, _, name = _STANCE.rpartition(".")
    return [] if _lacks() else [CompilerCallback(private(home), name, _run)]


def _run(session: Session, original: Callable[..., Any], callback: Any) -> Any:
    """Return a callback that compiles for watches; where there is none, report it."""
    convert = getattr(callback, "_torchdynamo_orig_backend", None)
    exports = torch.compiler.is_exporting() or getattr(convert, "_export", False)
    if exports or compiles_for_operator():
        # Operators such as torch.cond run the functions that they compile unchanged.
        return original(callback)
    given = _recompiled(original(_recompiled(callback)))
    if given is None:
        # What is not compiled is seen as it runs.
        return None
    if given is False or not isinstance(private(_INNERMOST)(given), WatchedBackend):
        session.record_unobserved(STANCE, within=True)
        return given
    _in_own_region()
    return given


# The callbacks for watches; each keeps its backend, by which PyTorch finds the compiled code.
_callbacks: "WeakKeyDictionary[Any, Any]" = WeakKeyDictionary()


def _recompiled(callback: Any) -> Any:
    """Return a callback of the compiler with its backend behind our pass."""
    convert = getattr(callback, "_torchdynamo_orig_backend", None)
    if not hasattr(convert, "_clone_with_backend") or isinstance(convert, _Retracing):
        return callback
    if callback not in _callbacks:
        _callbacks[callback] = type(callback)(_Retracing(convert), callback.hooks)
    return _callbacks[callback]


# The region of compiled code for watches, by the region of the same code without them.
_regions: dict[int, int] = {}


def _in_own_region() -> None:
    """Keep code for watches apart, so that it does not count in the limit of recompilations.

    The caller's caller restores the region, where it is the function that `torch.compile` returns.
    """
    caller = sys._getframe(3).f_code.co_name  # noqa: SLF001 - it has no other name
    enter, regions = private(_REGION), private(_REGIONS)
    if caller == "compile_wrapper" and enter is not None and regions is not None:
        outer = enter(-1)
        if outer not in _regions:
            _regions[outer] = next(regions)
        enter(_regions[outer])


class _Retracing:
    """A frame converter of the compiler that compiles for watches.

    Args:
        convert: The compiler's own.
    """

    def __init__(self, convert: Any) -> None:
        self._clone_with_backend = convert._clone_with_backend  # noqa: SLF001 - a protocol
        self._torchdynamo_orig_backend = WatchedBackend(convert._torchdynamo_orig_backend)  # noqa: SLF001
        self._convert = self._clone_with_backend(self._torchdynamo_orig_backend)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        with THREADS.session.retracing():
            return self._convert(*inputs, **named)


class WatchedBackend:
    """A backend of the compiler behind the pass that adds our operators.

    Args:
        backend: The backend that the code is compiled with.
    """

    def __init__(self, backend: Callable[..., Any]) -> None:
        self._backend = backend
        self.__name__ = getattr(backend, "__name__", type(backend).__name__)

    def __call__(self, module: GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
        watched = WatchedGraph(module)
        return watched.observing(self._backend(module, inputs, **options))

    def __eq__(self, other: object) -> bool:
        """Return whether code that was compiled by the one is code of the other."""
        return isinstance(other, WatchedBackend) and bool(self._own() == other._own())

    __hash__ = None  # type: ignore[assignment] - as of the backends

    def _own(self) -> Any:
        return private(_INNERMOST)(self._backend)
