"""A wheel that is built again, in another folder, is the same, bit for bit."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from glasshead.engines.streaming.kernels.processor import at_hand
from scripts import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def built(source: Path, processor: str, seed: str) -> Path:
    """The wheel of a copy of this project, with machine code for one processor."""
    pytest.importorskip("build")
    parts = (
        "glasshead",
        "pyproject.toml",
        "hatch_build.py",
        "README.md",
        "CHANGELOG.md",
        "LICENSE",
    )
    source.mkdir()
    for part in parts[1:]:
        shutil.copy(ROOT / part, source)
    skipped = shutil.ignore_patterns("__pycache__", "*.o")
    shutil.copytree(ROOT / parts[0], source / parts[0], ignore=skipped)
    environment = {
        **os.environ,
        "GLASSHEAD_REPOSITORY": "https://example.org/owner/glasshead",
        "GLASSHEAD_PROCESSORS": processor,
        "SOURCE_DATE_EPOCH": "1577836800",
        "PYTHONHASHSEED": seed,
    }
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", "dist"]
    done = subprocess.run(
        command, cwd=source, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (source / "dist").glob("*.whl")
    return wheel


def sums(wheel: Path) -> dict[str, str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


def test_two_builds_are_equal_and_hold_no_folder(tmp_path):
    name = at_hand().name
    first = built(tmp_path / "one", name, "1")
    second = built(tmp_path / "a folder of another length", name, "2")
    assert sums(first) == sums(second)
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as archive:
        code = [one for one in archive.namelist() if one.endswith(".o")]
        assert len(code) == 12
        for one in archive.namelist():
            assert os.fsencode(tmp_path) not in archive.read(one), one
        (about,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        assert b"\nLicense-Expression: Apache-2.0 AND OFL-1.1\n" in archive.read(about)
