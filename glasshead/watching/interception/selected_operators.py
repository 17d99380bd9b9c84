"""Operators that are intercepted one by one, while all others run at their own speed.

A mode of PyTorch is given every operator, at some microseconds of Python each. A dispatch key that
nothing else uses has kernels of ours for the operators that attend, that normalize or that multiply
matrices, and falls through for the rest. It is included for a thread and a time.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock, local
from typing import Any

import torch

from glasshead.private_names import private

_INCLUDE = "torch._C._dispatch_tls_set_dispatch_key_included"
# Keys that PyTorch's own tests use, and nothing else.
ATTENDING, MULTIPLYING = "TESTING_ONLY_GenericMode", "TESTING_ONLY_GenericWrapper"

Handler = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class _Thread(local):
    """What is intercepted in a thread.

    Attributes:
        handler: Runs an intercepted operator; None: nothing is intercepted.
        keys: The keys that are included.
    """

    handler: Handler | None = None
    keys: tuple[str, ...] = ()


_THREAD = _Thread()
# PyTorch drops the kernels of a library that is no more.
_libraries: list[Any] = []
_registered: set[str] = set()
_lock = Lock()


def select(funcs: Iterable[Any], key: str) -> None:
    """Give operators a kernel that hands them to the handler of the thread.

    Args:
        funcs: Overloads of operators.
        key: `ATTENDING` or `MULTIPLYING`.
    """
    with _lock:
        for func in funcs:
            name = func.name()
            if name not in _registered:
                library = torch.library.Library(name.partition("::")[0], "IMPL")
                library.impl(func, _kernel(func, key), key)
                _libraries.append(library)
                _registered.add(name)


def _kernel(func: Any, key: str) -> Callable[..., Any]:
    include = private(_INCLUDE)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        include(key, False)
        handler = _THREAD.handler
        if handler is None:
            # PyTorch hands the keys of a thread on to those that work for it.
            return func(*args, **kwargs)
        try:
            return handler(func, args, kwargs)
        finally:
            if _THREAD.handler is handler:
                include(key, True)

    return kernel


def _include(keys: tuple[str, ...], *, on: bool) -> None:
    include = private(_INCLUDE)
    for key in keys:
        include(key, on)


def begin(handler: Handler, *keys: str) -> None:
    """Intercept the selected operators of these keys in this thread."""
    _THREAD.handler, _THREAD.keys = handler, keys
    _include(keys, on=True)


def end() -> None:
    """Intercept no operator any more.

    The compiler restores the keys that a thread had before it; so none is taken for excluded.
    """
    _THREAD.handler, _THREAD.keys = None, ()
    if private(_INCLUDE) is not None:
        _include((ATTENDING, MULTIPLYING), on=False)


@contextmanager
def hidden() -> Iterator[None]:
    """Intercept no operator for a while."""
    keys = _THREAD.keys
    if not keys:
        yield
        return
    _include(keys, on=False)
    try:
        yield
    finally:
        if _THREAD.keys == keys:
            _include(keys, on=True)


@cache
def can_select() -> bool:
    """Return whether this version of PyTorch intercepts selected operators, as tried on one."""
    if private(_INCLUDE) is None:
        return False
    func, seen = torch.ops.aten.mv.default, []

    def handler(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        seen.append(args[0].untyped_storage().data_ptr())
        return func(*args, **kwargs)

    try:
        library = torch.library.Library("_", "IMPL")
        _libraries.append(library)
        for key in (ATTENDING, MULTIPLYING):
            library.fallback(torch.library.fallthrough_kernel, key)
        select([func], MULTIPLYING)
        matrix = torch.ones(2, 3)
        begin(handler, ATTENDING, MULTIPLYING)
        try:
            made = torch.mv(matrix, torch.ones(3)) + 1
        finally:
            end()
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError):
        return False
    return seen == [matrix.untyped_storage().data_ptr()] and made.tolist() == [4.0, 4.0]
