"""Questions to objects of the user's model, such as caches, which may answer by any error."""

from collections.abc import Callable
from typing import Any, TypeGuard, TypeVar

_Answer = TypeVar("_Answer")


def answer(question: Callable[[], _Answer]) -> _Answer | None:
    """Return the answer to a question; None, which is unknown, if it raises.

    >>> answer(lambda: len("text")), answer(lambda: len(7))
    (4, None)
    """
    try:
        return question()
    except Exception:  # noqa: BLE001 - the error is the model's own, and it runs without it
        return None


def attribute(owner: Any, name: str, default: Any = None) -> Any:
    """Return an attribute of an object; the default where it has none, or its property raises.

    >>> class Model:
    ...     @property
    ...     def config(self):
    ...         raise RuntimeError("not built yet")
    >>> attribute(Model(), "config"), attribute("text", "nothing", 3)
    (None, 3)
    """
    try:
        return getattr(owner, name, default)
    except Exception:  # noqa: BLE001 - as above
        return default


def holds(value: Any) -> bool:
    """Return whether a value counts as true; False if it does not say."""
    # Not by `answer`: these two are asked many times a call.
    try:
        return bool(value)
    except Exception:  # noqa: BLE001 - as above
        return False


def is_a(value: Any, kind: type[_Answer]) -> TypeGuard[_Answer]:
    """Return whether a value is of a class, even if it raises when asked for its own."""
    try:
        return isinstance(value, kind)
    except Exception:  # noqa: BLE001 - as above
        return False
