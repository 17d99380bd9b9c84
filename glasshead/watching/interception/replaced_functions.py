"""Functions of modules and classes that ours stand in for while a block is open.

Another library may put a function of ours back after the last block, where it has kept it. It is
known by its mark, so that no second one is put around it, and the next call or block removes it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any

_Function = Callable[..., Any]
_MARK = "__glasshead_stands_for__"
# The last original and replacement by the ids of modules and classes, and names of functions.
_STANDING: dict[tuple[int, str], tuple[_Function, _Function]] = {}


def _original_of(function: Any) -> _Function | None:
    """Return the function that one of ours stands in for; None for any other."""
    own = vars(function).get(_MARK) if isinstance(function, FunctionType) else None
    # `functools.wraps` copies the mark to whatever another library puts around ours.
    return own[1] if own is not None and own[0] is function else None


class ReplacedFunction(ABC):
    """A function in a module or class that another one stands in for.

    Args:
        home: The module or class.
        name: The name of the function.
    """

    def __init__(self, home: Any, name: str) -> None:
        self.home, self.name = home, name
        self._original: _Function | None = None

    @property
    def place(self) -> tuple[int, str]:
        """Return a key that is equal for two replacements of the same function."""
        return id(self.home), self.name

    @abstractmethod
    def standing(self, original: _Function) -> _Function:
        """Return the function that takes the place of the original."""

    def open(self) -> None:
        """Install the replacement, unless it is there, or that of another library came since."""
        current = getattr(self.home, self.name)
        if _original_of(current) is not None or self._original not in (None, current):
            return
        # Compiled code asks for the very function that it was compiled with.
        original, standing = _STANDING.get(self.place, (None, None))
        if standing is None or original is not current:
            standing = wraps(current)(self.standing(current))
            vars(standing)[_MARK] = standing, current
            _STANDING[self.place] = current, standing
        self._original = current
        setattr(self.home, self.name, standing)

    def close(self) -> None:
        """Restore the original, unless it has been replaced again since."""
        original = _original_of(getattr(self.home, self.name))
        if original is not None:
            setattr(self.home, self.name, original)
