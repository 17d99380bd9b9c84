"""The scripts that stand beside the package, such as the examples, as modules."""

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent


def script(place: str) -> ModuleType:
    """The module of a script, such as "examples/collapse.py"; it is not run as a program."""
    path = ROOT / place
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
