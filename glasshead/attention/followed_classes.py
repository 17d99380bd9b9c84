"""Classes of layers and caches that `watch` follows, though `watching/` imports none of them.

Each class adds itself where it is defined, by `followed_as`.
"""

from collections.abc import Callable
from typing import TypeVar

_Kind = TypeVar("_Kind", bound=type)

# Layers with forward(query, key=None, …), which attend to another text if they are given a key.
LAYERS: list[type] = []
# Caches with reorder(rows), and caches whose _vote(…) computes attention that is not the model's.
CACHES: list[type] = []
VOTING: list[type] = []


def followed_as(*lists: list[type]) -> Callable[[_Kind], _Kind]:
    """Return a decorator that adds a class to each of the lists.

    >>> kinds = []
    >>> @followed_as(kinds)
    ... class Layer: ...
    >>> kinds == [Layer]
    True
    """

    def followed(kind: _Kind) -> _Kind:
        for each in lists:
            each.append(kind)
        return kind

    return followed
