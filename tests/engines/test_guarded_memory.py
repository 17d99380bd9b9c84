"""The engine reads and writes nothing beyond its memory: its tests run with guarded blocks."""

import os
import re
import shutil
import subprocess
import sys

import pytest

import systems
from scripts import ROOT

FOLDER = ROOT / "tests" / "engines"
TESTS = [
    "gate",
    "matrix_tiles",
    "overflow",
    "plain_calls",
    "programs",
    "streaming",
    "streaming_half",
]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler: apt install gcc")
    made = tmp_path_factory.mktemp("guarded") / "guarded_memory.so"
    source = FOLDER / "guarded_memory.c"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", made, source], check=True)
    return made


def guarded(library, *arguments):
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", *arguments],
        cwd=ROOT,
        env={**os.environ, "LD_PRELOAD": str(library), "HYPOTHESIS_PROFILE": "quick"},
        capture_output=True,
        text=True,
        check=False,
    )


ONE_TOO_FAR = """
import ctypes, os, sys
library = ctypes.CDLL(os.environ["LD_PRELOAD"])
import numpy as np
library.guard(1)
numbers = np.zeros(1024)
place = numbers.ctypes.data + int(sys.argv[1]) * 8
ctypes.c_double.from_address(place).value = 1.0
library.guard(0)
print("written")
"""


@pytest.mark.slow
@systems.signals
def test_one_number_too_far_ends_the_process(library):
    assert guarded(library, "-c", ONE_TOO_FAR, "1023").stdout == "written\n"
    for place in ("1024", "-1025"):
        assert guarded(library, "-c", ONE_TOO_FAR, place).returncode < 0


@pytest.mark.slow
@systems.signals
@pytest.mark.timeout(600)
def test_the_tests_of_the_engine_pass_with_guarded_memory(library):
    files = [FOLDER / f"test_{name}.py" for name in TESTS]
    options = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "engines.guarded_memory"]
    done = guarded(library, *options, *files)
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr[-3000:])
    assert int(re.search(r"guarded blocks: (\d+)", done.stdout)[1]) > 10_000
