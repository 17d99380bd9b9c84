"""The scripts that stand beside the package, such as the examples, as modules."""

import importlib.util
import sys
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
    # Its imports find what stands beside it, as when it is run.
    sys.path.insert(0, str(path.parent))
    try:
        specification.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module
