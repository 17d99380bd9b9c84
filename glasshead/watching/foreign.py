"""Questions to objects of the user's model, which may answer by any error."""

from typing import Any


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
    except Exception:  # noqa: BLE001 - the error is the model's own, and it runs without it
        return default
