"""A run that is killed at any moment goes on, and ends as one that was not."""

import subprocess
import sys
from pathlib import Path


def test_runs_killed_at_many_moments_end_bit_identical(tmp_path):
    script = Path(__file__).with_name("tiny_training_killed.py")
    out = subprocess.run(
        [sys.executable, script, tmp_path], capture_output=True, text=True, check=False, timeout=240
    )
    assert out.returncode == 0, out.stderr
    assert out.stdout.strip() == "29"
