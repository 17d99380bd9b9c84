"""The shapes that signatures promise are checked at run time, by beartype, in a process of its own.

The public boundary has its own checks and sentences, which come first; what is checked here is all
that lies behind it.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
# The kernels are compiled by Numba, which takes no checks around them.
CHECKED = (
    *(f"glasshead.engines.{name}" for name in ("base", "fused", "reference")),
    *("glasshead.engines.streaming.engine", "glasshead.statistics", "glasshead.recipe"),
    "beartype.beartype",
)
TESTS = (
    "tests/engines/test_fused.py",
    "tests/engines/test_streaming.py",
    "tests/attention/test_properties.py",
    "tests/attention/test_observe.py",
    "tests/recipe",
    "tests/conformance",
)


def test_shapes_in_signatures_hold():
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
        f"--jaxtyping-packages={','.join(CHECKED)}",
        # beartype draws the items that it looks at; hypothesis only wants to have been told.
        *("-W", "ignore:Do not use the `random` module"),
        *("-k", "not refused"),
        *TESTS,
    ]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-4000:]
    assert " passed" in run.stdout
