"""Operators that are intercepted one by one, while all others run at their own speed.

A mode of PyTorch is given every operator, at some microseconds of Python each. A dispatch key that
nothing else uses has kernels of ours for what attends or makes a softmax, and falls through for the
rest. It is included for a thread and a time.
"""

from collections.abc import Callable
from functools import cache
from threading import Lock, local
from typing import Any, Protocol

import torch
from torch import Tensor

from glasshead.private_names import private

_INCLUDE = "torch._C._dispatch_tls_set_dispatch_key_included"
# A key that PyTorch's own tests use, and nothing else.
_NAME = "TESTING_ONLY_GenericMode"
# Parsing it takes longer than including it.
_KEY = (private("torch._C._parse_dispatch_key") or str)(_NAME)

Handler = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class Listener(Protocol):
    """Interface of an object that receives the kernels of the attention in progress.

    Attributes:
        inside: Whether one is in progress that is observed as a whole.
    """

    inside: bool

    def record_kernel(self, output: Tensor, logsumexp: Tensor) -> None:
        """Record the output of a kernel, and the logsumexp of its rows."""
        ...


class _Thread(local):
    """State of the interception, of each thread its own.

    Attributes:
        handler: Runs an intercepted operator; None: nothing is intercepted.
        listener: Is told the kernels of the attention in progress.
    """

    handler: Handler | None = None
    listener: Listener | None = None


_THREAD = _Thread()
# PyTorch drops the kernels of a library that is no more.
_libraries: list[Any] = []
_registered: set[str] = set()
_lock = Lock()


def select(func: Any, *, gives_logsumexp: bool = False) -> None:
    """Give an operator a kernel that hands it to the handler of the thread.

    Args:
        func: The overload of an operator.
        gives_logsumexp: Whether it returns the logsumexp of its rows after the context.
    """
    with _lock:
        name = func.name()
        if name not in _registered:
            library = torch.library.Library(name.partition("::")[0], "IMPL")
            library.impl(func, _kernel(func, gives_logsumexp=gives_logsumexp), _NAME)
            _libraries.append(library)
            _registered.add(name)


def _kernel(func: Any, *, gives_logsumexp: bool) -> Callable[..., Any]:
    include = private(_INCLUDE)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        include(_KEY, False)
        handler = _THREAD.handler
        if handler is None:
            # PyTorch hands the keys of a thread on to those that work for it.
            return func(*args, **kwargs)
        listener = _THREAD.listener
        try:
            if gives_logsumexp and listener is not None and listener.inside:
                output = func(*args, **kwargs)
                listener.record_kernel(*output[:2])
                return output
            return handler(func, args, kwargs)
        finally:
            if _THREAD.handler is handler:
                include(_KEY, True)

    return kernel


def begin(handler: Handler, listener: Listener | None = None) -> None:
    """Intercept the selected operators in this thread."""
    _THREAD.handler, _THREAD.listener = handler, listener
    private(_INCLUDE)(_KEY, True)


def end() -> None:
    """Intercept no operator any more.

    The compiler restores the keys that a thread had before it; so the key is not excluded.
    """
    _THREAD.handler = _THREAD.listener = None
    include = private(_INCLUDE)
    if include is not None:
        include(_KEY, False)


class hidden:  # noqa: N801 - read as a function
    """A block in which no operator is intercepted."""

    __slots__ = ("_handler",)

    def __enter__(self) -> None:
        self._handler = _THREAD.handler
        if self._handler is not None:
            private(_INCLUDE)(_KEY, False)

    def __exit__(self, *error: object) -> None:
        if self._handler is not None and _THREAD.handler is self._handler:
            private(_INCLUDE)(_KEY, True)


@cache
def can_select() -> bool:
    """Return whether this version of PyTorch intercepts selected operators, as tried on one."""
    if private(_INCLUDE) is None:
        return False
    func, seen = torch.ops.aten.exp.default, []

    def handler(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        seen.append(args[0].untyped_storage().data_ptr())
        return func(*args, **kwargs)

    try:
        library = torch.library.Library("_", "IMPL")
        _libraries.append(library)
        library.fallback(torch.library.fallthrough_kernel, _NAME)
        select(func)
        zeros = torch.zeros(2)
        begin(handler)
        try:
            made = torch.exp(zeros) + 1
        finally:
            end()
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError):
        return False
    return seen == [zeros.untyped_storage().data_ptr()] and made.tolist() == [2.0, 2.0]
