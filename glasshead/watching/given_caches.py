"""The caches that modules are given, whatever library they are of."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from glasshead.watching.module_calls import ModuleCall

# Arguments by which modules are given a cache, whatever its class is called.
_ARGUMENTS = {"cache", "cache_params", "kv_cache", "layer_past", "past"} | {
    f"past_key_value{plural}" for plural in ("", "s")
}


def given_cache(calls: Iterable[ModuleCall]) -> Any:
    """Return the cache that the innermost module with one was given; None without any."""
    for call in calls:
        for name, given in call.arguments.items():
            called = name in _ARGUMENTS or _is_cache(type(given))
            if called and given is not None and _may_own(type(given)):
                return given
    return None


def held_by(cache: Any) -> int | None:
    """Return how many tokens a cache has been given and not lost; None where it does not say."""
    try:
        return int(cache.get_seq_length())
    except Exception:  # noqa: BLE001 - a cache of any library, which may not be able to say
        return None


@lru_cache(maxsize=256)
def _is_cache(kind: type) -> bool:
    return any("cache" in one.__name__.lower() for one in kind.__mro__)


@lru_cache(maxsize=256)
def _may_own(kind: type) -> bool:
    """Return whether objects of a class have an identity: each step makes another tuple of keys.

    A tensor may be a cache of one layer, and a module is no text.
    """
    if issubclass(kind, Tensor | torch.nn.Module | tuple | list | dict | set | str | int | float):
        return False
    return "__weakref__" in dir(kind)
