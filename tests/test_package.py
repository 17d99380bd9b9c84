"""The face of the package: lazy, typed, and cheap to ask."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import glasshead

DRAWING = {"rich.console", "jinja2", "markupsafe", "glasshead.drawing.document"}
OTHERS = {"numba", "networkx", "matplotlib", "pandas", "typer", "pydantic", "transformers"}


@pytest.mark.parametrize(
    ("statement", "not_needed"),
    [
        ("import glasshead", {"torch", "numpy", "rich", "jaxtyping"} | DRAWING | OTHERS),
        pytest.param(
            "import glasshead; glasshead.Attention", DRAWING | OTHERS, marks=pytest.mark.slow
        ),
        ("from glasshead.drawing import printable", {"torch", "numpy"} | DRAWING | OTHERS),
        ("import glasshead.explanation.translations", {"torch", "numpy"} | OTHERS),
    ],
)
def test_an_import_brings_nothing_that_it_does_not_need(statement, not_needed):
    code = f"{statement}\nimport sys; print(sorted({not_needed} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("package", ["", ".drawing", ".explanation", ".ladder"])
def test_a_package_hands_on_the_names_of_its_stub_from_their_modules(package):
    module = importlib.import_module(f"glasshead{package}")
    stub = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text())
    lines = [line for line in stub.body if isinstance(line, ast.ImportFrom)]
    names = glasshead._names if module is glasshead else module.__all__
    assert [alias.asname for line in lines for alias in line.names] == names
    for line in lines:
        home = importlib.import_module("." * line.level + line.module, module.__name__)
        for alias in line.names:
            assert getattr(module, alias.asname) is getattr(home, alias.name)
            assert alias.asname in dir(module)


@pytest.mark.parametrize("name", sorted(glasshead._names))
def test_every_name_is_there_and_documented(name):
    value = getattr(glasshead, name)
    assert value.__doc__
    assert name in dir(glasshead)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Atention'"):
        _ = glasshead.Atention
