"""The face of the package: lazy, typed, and cheap to ask."""

import ast
import importlib
import json
import re
import subprocess
import sys
from dataclasses import FrozenInstanceError, is_dataclass
from pathlib import Path

import pytest

import glasshead

DRAWING = {"rich.console", "jinja2", "markupsafe", "glasshead.drawing.document"}
OTHERS = {"numba", "networkx", "matplotlib", "pandas", "typer", "pydantic", "transformers"}


@pytest.mark.parametrize(
    ("statement", "not_needed"),
    [
        ("import glasshead", {"torch", "numpy", "rich", "jaxtyping"} | DRAWING | OTHERS),
        ("from glasshead.drawing import printable", {"torch", "numpy"} | DRAWING | OTHERS),
        ("import glasshead.explanation.translations", {"torch", "numpy"} | OTHERS),
    ],
)
def test_an_import_brings_nothing_that_it_does_not_need(statement, not_needed):
    code = f"{statement}\nimport sys; print(sorted({not_needed} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


# Imports all that sees, and watches a layer of PyTorch, where nothing that teaches can be imported.
SEES = """
import pkgutil, sys
from importlib import import_module
for name in "cli studio tasks models explanation layers ladder".split():
    sys.modules[f"glasshead.{name}"] = None
import glasshead as gh
for name in "watching attention engines statistics diagnosis recipe drawing".split():
    package = import_module(f"glasshead.{name}")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if ".triton." not in module.name:
            import_module(module.name)
import torch
layer = torch.nn.MultiheadAttention(6, 3, batch_first=True)
x = torch.rand(1, 5, 6)
with gh.watch(layer, [gh.Entropy()]) as seen:
    layer(x, x, x)
print(*seen[""]["entropy"].shape)
"""

# What a process does one after the other, and what it has not imported by then.
STEPS = {
    "import glasshead; glasshead.Attention": DRAWING | OTHERS,
    "import glasshead.tasks.training": {"lightning", "matplotlib", "datasets", "tokenizers"},
    # A GPU alone takes Triton.
    """import torch, glasshead as gh
x = torch.randn(1, 2, 300, 16)
gh.Attention(engine="fused").observe(x, x, x, [gh.Entropy()])
gh.Attention().weights(x, x) @ torch.ones(300, 1)""": {"triton"},
    """layer = torch.nn.MultiheadAttention(16, 2)
with gh.watch(layer, [gh.Entropy()]) as seen:
    layer(x[0], x[0], x[0])
assert len(seen) == 1""": {"torchmetrics"},
}
IN_TURN = """
import json, sys
names = {}
for step, not_needed in json.loads(sys.argv[1]).items():
    exec(step, names)
    print(sorted({*not_needed} & {*sys.modules}))
"""


@pytest.mark.slow
def test_what_sees_attention_works_without_what_teaches_and_trains():
    out = subprocess.run([sys.executable, "-c", SEES], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "1 3 5"


@pytest.mark.slow
def test_a_process_imports_nothing_before_it_needs_it():
    steps = json.dumps({step: [*not_needed] for step, not_needed in STEPS.items()})
    command = [sys.executable, "-c", IN_TURN, steps]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    assert out.stdout.splitlines() == ["[]"] * len(STEPS)


@pytest.mark.parametrize("package", ["", ".drawing", ".explanation", ".ladder"])
def test_a_package_hands_on_the_names_of_its_stub_from_their_modules(package):
    module = importlib.import_module(f"glasshead{package}")
    stub = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text())
    lines = [line for line in stub.body if isinstance(line, ast.ImportFrom)]
    assert [alias.asname for line in lines for alias in line.names] == module.__all__
    for line in lines:
        home = importlib.import_module("." * line.level + line.module, module.__name__)
        for alias in line.names:
            assert getattr(module, alias.asname) is getattr(home, alias.name)


@pytest.mark.parametrize("package", ["", ".drawing", ".explanation", ".ladder"])
def test_dir_lists_the_public_names_only(package):
    module = importlib.import_module(f"glasshead{package}")
    version = [] if package else ["__version__"]
    assert dir(module) == sorted([*module.__all__, *version])
    assert all(hasattr(module, name) for name in dir(module))
    assert re.fullmatch(r"\d+\.\d+\.\d+", glasshead.__version__)


def test_a_star_import_brings_every_public_name():
    names: dict[str, object] = {}
    exec("from glasshead import *", names)
    assert names.keys() - {"__builtins__"} == {*glasshead.__all__}


def test_a_star_import_without_an_extra_says_what_to_install(tmp_path, monkeypatch):
    package = tmp_path / "lazy_package"
    package.mkdir()
    code = "from glasshead.lazy import lazy_names\n"
    code += "__getattr__, __dir__, __all__ = lazy_names(__name__)\n"
    (package / "__init__.py").write_text(code)
    (package / "__init__.pyi").write_text("from .part import part as part\n")
    (package / "part.py").write_text("import tokenizers\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    expected = r"part needs tokenizers, not installed here\. Run pip install 'glasshead\[hf\]'"
    with pytest.raises(ImportError, match=expected):
        exec("from lazy_package import *", {})


@pytest.mark.parametrize("name", sorted(glasshead.__all__))
def test_every_name_is_documented(name):
    assert getattr(glasshead, name).__doc__


VALUES = [name for name in sorted(glasshead.__all__) if is_dataclass(getattr(glasshead, name))]


@pytest.mark.parametrize("name", VALUES)
def test_every_value_is_immutable(name):
    kind = getattr(glasshead, name)
    # A class with slots takes the names of its fields only.
    field = next(iter(kind.__dataclass_fields__), "anything")
    with pytest.raises(FrozenInstanceError):
        setattr(kind.__new__(kind), field, None)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Atention'"):
        _ = glasshead.Atention
