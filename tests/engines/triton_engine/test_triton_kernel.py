"""The Triton kernel agrees with the reference, on a CUDA device or in Triton's interpreter."""

import os
import subprocess
import sys
from importlib.metadata import version

import pytest
import torch
from packaging.version import Version

from engines.triton_engine.installed import require_triton
from scripts import ROOT

CHECKS = [f"tests/engines/triton_engine/{name}_checks.py" for name in ("kernel", "paged")]


@pytest.mark.timeout(1800)
def test_the_kernel_agrees_with_the_reference():
    require_triton()
    if not torch.cuda.is_available() and Version(version("triton")) < Version("3.6"):
        pytest.skip("the interpreter of Triton before 3.6 takes an older NumPy")
    # Triton decides on import whether it interprets, which is once in a process.
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    if not torch.cuda.is_available():
        variables["TRITON_INTERPRET"] = "1"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *CHECKS]
    done = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-8000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
