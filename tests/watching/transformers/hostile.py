"""Models whose own objects raise whatever glasshead asks them."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from torch import nn


class HostileError(Exception):
    """An answer of a hostile object."""


@contextmanager
def hostile(model: nn.Module) -> Iterator[None]:
    """Let the caches, the configs and the modules of a model answer to their own library alone.

    Modules still tell glasshead what each module of PyTorch has, such as its parameters.
    """
    from transformers import PretrainedConfig
    from transformers.cache_utils import Cache

    classes = {type(one): dir(nn.Module()) for one in model.modules()}
    own = {one: told for one, told in classes.items() if one.__module__.startswith("transformers")}
    with ExitStack() as stack:
        for kind, told in {**own, Cache: (), PretrainedConfig: ()}.items():
            stack.enter_context(
                patch.object(kind, "__getattribute__", _asked(kind, frozenset(told)))
            )
        yield


def _asked(kind: type, told: frozenset[str]) -> Any:
    original = kind.__getattribute__

    def answer(self: Any, name: str) -> Any:
        asks = sys._getframe(1).f_globals.get("__name__", "")
        if asks.startswith("glasshead") and name not in told:
            raise HostileError(f"{type(self).__name__}.{name}")
        return original(self, name)

    return answer
