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
