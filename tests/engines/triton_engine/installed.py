"""Whether Triton is installed: a test of its kernel is left out without it, but not everywhere.

`pip install triton==3.7.1`, the version of the pinned PyTorch, makes these tests run without a GPU.
It takes 690 MB.
"""

import os
from importlib.util import find_spec

import pytest


def require_triton() -> None:
    """Leave a test out without Triton, but fail in CI in the cell whose PyTorch brings it."""
    if find_spec("triton") is not None:
        return
    must = os.environ.get("CI") and os.environ.get("GLASSHEAD_CELL") == "vllm"
    left_out = pytest.fail if must else pytest.skip
    left_out("Triton is not installed; run pip install 'glasshead[gpu]'")
