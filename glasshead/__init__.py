"""glasshead: attention you can see through.

Its names are in `__init__.pyi`, each with its module, and are imported when they are first used.
`from glasshead import *` takes them all: if an extra is missing, it raises an error that names it.
"""

from importlib import import_module
from typing import Any

from glasshead.lazy import lazy_names

__version__ = "0.1.0"

_get, __dir__, __all__ = lazy_names(__name__)


def __getattr__(name: str) -> Any:
    try:
        return _get(name)
    except AttributeError as error:
        if name.startswith("_") or name not in import_module("glasshead.ladder").__all__:
            raise
        raise AttributeError(
            f"{error}; use glasshead.ladder.{name} for the class of this name in the tutorials"
        ) from None
