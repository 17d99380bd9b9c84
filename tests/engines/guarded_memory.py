"""A plugin of pytest: the memory of each test ends at pages that may not be touched."""

import ctypes
import os
from collections.abc import Iterator
from functools import cache

import pytest


@cache
def _library() -> ctypes.CDLL:
    """Return the allocator that this process was started with."""
    library = ctypes.CDLL(os.environ["LD_PRELOAD"])
    library.guarded_blocks.restype = ctypes.c_long
    return library


def pytest_configure() -> None:
    """Import before the tests what would otherwise take a guarded block for each small object."""
    import torch._dynamo  # noqa: F401


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Guard what a test allocates."""
    _library().guard(1)
    try:
        return (yield)
    finally:
        _library().guard(0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell how many blocks were guarded."""
    terminalreporter.write_line(f"guarded blocks: {_library().guarded_blocks()}")
