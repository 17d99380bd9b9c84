"""Environments with fewer libraries than this one: what an extra does not bring is blocked."""

import tomllib
from collections.abc import Collection
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts import ROOT


def brought(*extras: str) -> set[str]:
    """The distributions that `pip install glasshead[extras]` brings, the package among them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"]]
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    known: set[tuple[str, str]] = set()
    for line in wanted:
        _follow(Requirement(line), known)
    return {"glasshead", *(name for name, _ in known)}


def _follow(requirement: Requirement, known: set[tuple[str, str]]) -> None:
    """Add what a requirement brings, and what that requires in turn."""
    name = canonicalize_name(requirement.name)
    for extra in ("", *requirement.extras):
        if (name, extra) in known:
            continue
        known.add((name, extra))
        try:
            lines = metadata.requires(name) or ()
        except metadata.PackageNotFoundError:
            continue
        for inner in map(Requirement, lines):
            if inner.marker is None or inner.marker.evaluate({"extra": extra}):
                _follow(inner, known)


def beyond(*extras: str, also: Collection[str] = ()) -> list[str]:
    """The modules that are installed here and that these extras do not bring.

    Args:
        extras: Extras of the package; none is the core alone.
        also: Modules that are missing too.
    """
    there = brought(*extras)
    modules = [
        module
        for module, owners in metadata.packages_distributions().items()
        if not any(canonicalize_name(owner) in there for owner in owners)
    ]
    return sorted({*modules, *also})


def blocking(modules: Collection[str]) -> str:
    """Code that makes the imports of these modules fail."""
    return f"import sys\nsys.modules |= dict.fromkeys({sorted(modules)!r})\n"
