"""A plugin of pytest: the memory of each test ends at pages that may not be touched."""

import ctypes
import os
from collections.abc import Iterator

import pytest
import torch._dynamo  # noqa: F401 - thousands of small blocks, which tests would import

_LIBRARY = ctypes.CDLL(os.environ["LD_PRELOAD"])
_LIBRARY.guarded_blocks.restype = ctypes.c_long


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Guard what a test allocates."""
    _LIBRARY.guard(1)
    try:
        return (yield)
    finally:
        _LIBRARY.guard(0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell how many blocks were guarded."""
    terminalreporter.write_line(f"guarded blocks: {_LIBRARY.guarded_blocks()}")
