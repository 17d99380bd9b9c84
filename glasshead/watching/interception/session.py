"""The session: what is intercepted while anybody watches or removes heads, and restored after."""

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
    """What is replaced while anybody watches or removes heads."""
    return [
        Patch(Attention, "forward", _forward),
        Patch(MultiHeadAttention, "forward", _layer),
    ]


def _forward(
    original: Callable[..., Tensor], rule: Attention, *inputs: Tensor, **asked: Any
) -> Tensor:
    if not ACTIVE.looking:
        ACTIVE.overheard()
        return original(rule, *inputs, **asked)
    with ACTIVE.running():
        output = original(rule, *inputs, **asked)
    ACTIVE.saw(None, partial(_met, rule, *inputs, **asked), output)
    heads = output.shape[-3] if output.ndim > 3 else None
    return without_heads(output, ACTIVE.removed(None, heads), -3)


def _layer(
    original: Callable[..., Tensor],
    layer: MultiHeadAttention,
    /,
    query: Tensor,
    key: Tensor | None = None,
    *inputs: Tensor,
    **asked: Any,
) -> Tensor:
    with ACTIVE.within(lambda: key is not None and key is not query):
        return original(layer, query, key, *inputs, **asked)


def _met(rule: Attention, *inputs: Tensor, **asked: Any) -> CapturedCall:
    problem = replace(rule.problem(*inputs, **asked).detached(), dropout=0.0)
    queries, keys = problem.scores_shape[-2:]
    compares = _compares(problem.mask) or any(isinstance(bias, Bias) for bias in problem.biases)
    return CapturedCall(problem, crossing=(queries != keys or ACTIVE.crosses()) and not compares)


def _compares(mask: Mask | None) -> bool:
    """Whether it may compare positions, which are those of one text then."""
    if isinstance(mask, AllOf | AnyOf):
        return any(_compares(one) for one in mask.masks)
    if isinstance(mask, Not):
        return _compares(mask.mask)
    return not isinstance(mask, Dense | Keys | LengthMask | None)


# What is replaced is replaced for all threads, and only who watches in its own is told.
_lock = threading.Lock()
_open: list[Patch] = []
_threads = 0


@contextmanager
def opened(watcher: Watcher) -> Iterator[None]:
    """Let a watcher see what runs in this thread.

    Watchers may stand within each other, and leave in any order: each sees all.
    """
    # A block may be left in another thread, as that of a generator, and is this one's all the same.
    with (
        _among(ACTIVE.watchers, watcher, ACTIVE.watching, OperatorInterceptMode()),
        ACTIVE.everywhere(watcher),
    ):
        yield


@contextmanager
def ablated(ablater: Ablater) -> Iterator[None]:
    """Let an ablater remove heads of what runs in this thread, as watchers see it."""
    with (
        _among(ACTIVE.ablaters, ablater, ACTIVE.ablating, by_any_name()),
        ACTIVE.anywhere(ablater),
    ):
        yield


@contextmanager
def _among(
    those: list[Any], one: Any, doors: ExitStack, mode: AbstractContextManager[Any]
) -> Iterator[None]:
    """One more of those; the first of them opens the doors, the last closes them."""
    if not those:
        doors.enter_context(_replaced())
        doors.enter_context(mode)
    those.append(one)
    try:
        yield
    finally:
        those.remove(one)
        if not those:
            doors.close()
            forget_masks()


@contextmanager
def _replaced() -> Iterator[None]:
    """Functions that models call, replaced until the last thread has left."""
    global _threads  # noqa: PLW0603 - as what is replaced is the whole process's
    with _lock:
        for one in (*functions(), *rules(), *interface()):
            # Another thread may have opened it, or have done so before transformers was imported.
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
