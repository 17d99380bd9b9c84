"""glasshead: attention you can see through.

Its names are in `__init__.pyi`, each with its module, and are imported when they are first used.
"""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Make `__getattr__`, `__dir__` and the list of names of a package from its stub's imports.

    >>> get, _, names = lazy_names("glasshead")
    >>> "Attention" in names, get("Entropy").__module__
    (True, 'glasshead.statistics.per_query')
    """
    module = sys.modules[package]
    stub = Path(str(module.__file__)).with_suffix(".pyi").read_text(encoding="utf-8")
    lines = [line for line in ast.parse(stub).body if isinstance(line, ast.ImportFrom)]
    homes = {
        alias.name: "." * line.level + (line.module or "") for line in lines for alias in line.names
    }

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(homes[name], package), name)
        except ModuleNotFoundError as error:
            from glasshead.extras import missing_for

            raise missing_for(f"{package.replace('glasshead', 'gh', 1)}.{name}", error) from error
        setattr(module, name, value)
        return value

    return get, lambda: sorted({*vars(module), *homes}), list(homes)


# Not `__all__`: a star import would fetch them all, those of missing extras too.
_get, __dir__, _names = lazy_names(__name__)


def __getattr__(name: str) -> Any:
    try:
        return _get(name)
    except AttributeError as error:
        if name.startswith("_") or name not in import_module("glasshead.ladder").__all__:
            raise
        raise AttributeError(
            f"{error}; the class of the texts by this name is glasshead.ladder.{name}"
        ) from None
