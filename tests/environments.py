"""Environments with fewer libraries than this one: those that an extra brings."""

import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts import ROOT


def brought(*extras: str) -> set[str]:
    """The distributions that `pip install glasshead[extras]` brings, but the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"]]
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    known: set[tuple[str, str]] = set()
    for line in wanted:
        _follow(Requirement(line), known)
    return {name for name, _ in known}


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


def libraries(folder: Path, *extras: str) -> Path:
    """Fill a folder with links to what `pip install glasshead[extras]` brings, but the package.

    Args:
        folder: A new folder, for PYTHONPATH of a Python with -S, or for a .pth file.
        extras: Extras of the package; none is the core alone.
    """
    folder.mkdir()
    for name in brought(*extras):
        try:
            files = metadata.files(name) or ()
        except metadata.PackageNotFoundError:
            continue
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            link = folder / top
            if not link.is_symlink():
                link.symlink_to(Path(str(metadata.distribution(name).locate_file(top))))
    return folder
