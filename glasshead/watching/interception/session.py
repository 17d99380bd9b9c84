"""The session: patches and modes, installed while a watch or an ablation is open."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from glasshead.attention import Attention
from glasshead.layers import MultiHeadAttention
from glasshead.recipe.biases import Bias
from glasshead.recipe.masks import Mask
from glasshead.recipe.masks.base import AllOf, AnyOf, Not
from glasshead.recipe.masks.kinds import Dense, Keys, LengthMask
from glasshead.watching.active import ACTIVE, Ablater, without_heads
from glasshead.watching.captured_call import CapturedCall
from glasshead.watching.interception.kernels import OperatorInterceptMode
from glasshead.watching.interception.masks import forget_masks
from glasshead.watching.interception.patches import Patch, by_any_name, functions
from glasshead.watching.interception.transformers_models import interface
from glasshead.watching.watcher import Watcher


def rules() -> list[Patch]:
    """Return the patches of our own attention and layers."""
    return [
        Patch(Attention, "forward", _forward),
        Patch(MultiHeadAttention, "forward", _layer),
    ]


def _forward(
    original: Callable[..., Tensor], rule: Attention, *inputs: Tensor, **options: Any
) -> Tensor:
    if not ACTIVE.enabled:
        ACTIVE.notify_other_threads()
        return original(rule, *inputs, **options)
    with ACTIVE.suspended():
        output = original(rule, *inputs, **options)
    ACTIVE.observe(None, partial(_capture, rule, *inputs, **options), output)
    heads = output.shape[-3] if output.ndim > 3 else None
    return without_heads(output, ACTIVE.removed(None, heads), -3)


def _layer(
    original: Callable[..., Tensor],
    layer: MultiHeadAttention,
    /,
    query: Tensor,
    key: Tensor | None = None,
    *inputs: Tensor,
    **options: Any,
) -> Tensor:
    with ACTIVE.in_layer(lambda: key is not None and key is not query):
        return original(layer, query, key, *inputs, **options)


def _capture(rule: Attention, *inputs: Tensor, **options: Any) -> CapturedCall:
    problem = replace(rule.problem(*inputs, **options).detached(), dropout=0.0)
    queries, keys = problem.scores_shape[-2:]
    compares = _compares(problem.mask) or any(isinstance(bias, Bias) for bias in problem.biases)
    return CapturedCall(
        problem, crossing=(queries != keys or ACTIVE.is_cross_attention()) and not compares
    )


def _compares(mask: Mask | None) -> bool:
    """Return whether a mask may compare positions, so that queries and keys are of one text."""
    if isinstance(mask, AllOf | AnyOf):
        return any(_compares(one) for one in mask.masks)
    if isinstance(mask, Not):
        return _compares(mask.mask)
    return not isinstance(mask, Dense | Keys | LengthMask | None)


# Patches apply to all threads, but only report to the watches of the calling thread.
_lock = threading.Lock()
_open: list[Patch] = []
_threads = 0


@contextmanager
def opened(watcher: Watcher) -> Iterator[None]:
    """Open a watcher for this thread.

    Watchers may be nested, and closed in any order: each sees every call.
    """
    # A block may be left in another thread, as in a generator, and still belongs to this one.
    with (
        _among(ACTIVE.watchers, watcher, ACTIVE.watch_stack, OperatorInterceptMode()),
        ACTIVE.listening(watcher),
    ):
        yield


@contextmanager
def ablated(ablater: Ablater) -> Iterator[None]:
    """Open an ablater for this thread."""
    with (
        _among(ACTIVE.ablaters, ablater, ACTIVE.ablate_stack, by_any_name()),
        ACTIVE.ablating_backward(ablater),
    ):
        yield


@contextmanager
def _among(
    entries: list[Any], entry: Any, stack: ExitStack, mode: AbstractContextManager[Any]
) -> Iterator[None]:
    """Add an entry; the first installs the patches and the mode, the last removes them."""
    if not entries:
        stack.enter_context(_replaced())
        stack.enter_context(mode)
    entries.append(entry)
    try:
        yield
    finally:
        entries.remove(entry)
        if not entries:
            stack.close()
            forget_masks()


@contextmanager
def _replaced() -> Iterator[None]:
    """Patch the functions that models call until the last thread has left."""
    global _threads  # noqa: PLW0603 - patches belong to the whole process
    with _lock:
        for one in (*functions(), *rules(), *interface()):
            # Another thread may have installed it already.
            if not any(one.home is other.home and one.name == other.name for other in _open):
                one.open()
                _open.append(one)
        _threads += 1
    try:
        yield
    finally:
        with _lock:
            _threads -= 1
            while _open and not _threads:
                _open.pop().close()
