"""Caches whose rows change places or whose last tokens are removed, as searches of texts do."""

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from glasshead.attention.followed_classes import CACHES
from glasshead.watching.interception.session import THREADS, Patch

_Function = Callable[..., Any]
_LIBRARY = "transformers.cache_utils"


def cache_rows() -> list[Patch]:
    """Return the patches of the methods by which caches change their rows."""
    library = sys.modules.get(_LIBRARY)
    kinds = [] if library is None else [library.Cache, *_below(library.Cache)]
    return [
        *(_CachePatch(kind, "reorder", _rows) for kind in CACHES),
        *(
            _CachePatch(kind, name, move)
            for kind in kinds
            for name, move in _MOVES.items()
            if name in vars(kind)
        ),
    ]


class _CachePatch(Patch):
    """A patch of a method of a cache, which runs as it is and is recorded."""

    def __init__(self, home: type, name: str, move: Callable[..., Any]) -> None:
        super().__init__(home, name, move)

    def standing(self, original: _Function) -> _Function:
        read = self.stand_in

        @wraps(original)
        def standing(cache: Any, *inputs: Any, **named: Any) -> Any:
            made = original(cache, *inputs, **named)
            if not torch.compiler.is_compiling():
                _record(cache, read, (*inputs, *named.values()))
            return made

        return standing


def _record(cache: Any, read: Callable[..., Any], given: tuple[Any, ...]) -> None:
    session = THREADS.session
    watchers, interveners = session.watchers, session.interveners
    if not (watchers or interveners):
        return
    move = None
    # What a subclass takes instead may be anything, and the model runs on.
    with suppress(Exception):
        move = read(*given)
    if read is _crop:
        for watcher in watchers:
            watcher.cropped(cache, move)
        for intervener in interveners:
            intervener.sequences.cropped(cache, move)
        return
    for watcher in watchers:
        watcher.placer.sequences.moved(cache, move)
    for intervener in interveners:
        intervener.sequences.moved(cache, move)


def _rows(rows: Any) -> list[int]:
    """Return rows that are given by number, or by which of them stay."""
    given = rows if isinstance(rows, Tensor) else torch.as_tensor(rows)
    given = given.nonzero() if given.dtype == torch.bool else given
    return [int(row) for row in given.reshape(-1).tolist()]


def _crop(count: int) -> int | None:
    """Return how many tokens are removed; None if the number of those that stay is given."""
    return -int(count) if count < 0 else None


_MOVES: dict[str, Callable[..., Any]] = {
    "reorder_cache": _rows,
    "batch_select_indices": _rows,
    "batch_repeat_interleave": int,
    "crop": _crop,
}


def _below(kind: type) -> list[type]:
    """Return all subclasses of a class."""
    return [each for one in kind.__subclasses__() for each in (one, *_below(one))]
