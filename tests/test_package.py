"""The face of the package: lazy, typed, and cheap to ask."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import glasshead

FOLDER = Path(glasshead.__file__).parent


def test_importing_the_package_imports_nothing_heavy():
    heavy = ["torch", "numpy", "rich", "typer", "matplotlib", "numba"]
    code = f"import sys, glasshead; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_the_stub_names_what_the_package_hands_on():
    tree = ast.parse((FOLDER / "__init__.pyi").read_text())
    stub = {
        alias.asname: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert stub == glasshead._HOME


@pytest.mark.parametrize("name", sorted(glasshead._HOME))
def test_every_name_is_there_and_documented(name):
    value = getattr(glasshead, name)
    assert value.__doc__
    assert name in dir(glasshead)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Atention'"):
        _ = glasshead.Atention


LAYERS = (
    "cli",
    "studio",
    "tasks",
    "watching",
    "models",
    "layers",
    "explanation",
    "diagnosis",
    "ladder",
    "drawing",
    "attention",
    "engines",
    "statistics",
    "recipe",
)


def imports(path: Path) -> set[str]:
    """The folders of the package that a file imports from, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {n.split(".")[1] for n in names if n.startswith("glasshead.")}
    return found


@pytest.mark.parametrize("layer", LAYERS)
def test_arrows_point_down_only(layer):
    above = set(LAYERS[: LAYERS.index(layer)])
    files = sorted((FOLDER / layer).rglob("*.py"))
    assert files
    for path in files:
        assert not imports(path) & above, f"{path} imports from a folder above its own"
