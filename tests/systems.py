"""Marks of tests that need what not every system has: without it they are skipped.

On Windows there are no forks, no named pipes and no devices that are files; a process can be ended
there, but not interrupted by another.
"""

import importlib.util
import os
import sys
import tempfile
from pathlib import Path

import pytest

WINDOWS = sys.platform == "win32"


def _can_link() -> bool:
    """Whether this user may make links, which on Windows not everybody may."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            Path(folder, "link").symlink_to(folder)
        except OSError:
            return False
    return True


def _without(there: bool, what: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not there, reason=f"this system has no {what}")


fork = _without(hasattr(os, "fork"), "forks")
named_pipes = _without(hasattr(os, "mkfifo"), "named pipes")
devices = _without(not WINDOWS, "devices that are files")
descriptors = _without(not WINDOWS, "way to close the output of a process before it starts")
signals = _without(not WINDOWS, "signals between processes")
permissions = _without(not WINDOWS, "permissions of files as POSIX has them")
shell = _without(not WINDOWS, "POSIX shell")
terminal = _without(importlib.util.find_spec("pty") is not None, "pseudo-terminals")
links = _without(_can_link(), "links for this user")


def make_link(path: Path, to: str) -> None:
    """Make a link to a file of the system, such as a device, or skip the test if it has none."""
    if not Path(to).exists():
        pytest.skip(f"this system has no {to}")
    path.symlink_to(to)


def make_pipe(path: Path) -> None:
    """Make a named pipe, or skip the test."""
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    os.mkfifo(path)
