"""Lazy packages: a package whose names are those of its stub, each imported when it is used."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Make `__getattr__`, `__dir__` and `__all__` of a package from the imports of its stub.

    `dir(package)` lists `__all__` and, if the package has one, `__version__`.

    A star import takes every name, so also those whose extra is not installed. It then raises the
    error of the first such name, which says what to install: a name is never left out silently.

    >>> get, listed, names = lazy_names("glasshead.ladder")
    >>> get("CausalAttention").__module__
    'glasshead.ladder.rung4_causal_attention'
    >>> listed() == sorted(names)
    True
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

    def listed() -> list[str]:
        return sorted([*homes, *({"__version__"} & vars(module).keys())])

    return get, listed, list(homes)
