"""What all tests share: a fixed seed each, and hypothesis without a clock."""

import gc
import os
import sys
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path

import pytest
import torch

import hypothesis_profiles

hypothesis_profiles.load()

# Tests compare with the CPU's numbers, and Lightning prefers an Apple GPU.
os.environ.setdefault("DISABLE_MPS", "1")
# Before each call of the kernels, the bounds of all arrays are compared with what they access.
os.environ.setdefault("GLASSHEAD_DEBUG", "1")
if sys.platform == "win32":
    if not sys.flags.utf8_mode:
        pytest.exit("on Windows, set PYTHONUTF8=1: the tests read and write UTF-8.", returncode=4)
    # Tests count the characters of what they write.
    Path.write_text = partialmethod(Path.write_text, newline="\n")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that may take longest, so that no process waits for one in the end."""

    def patience(item: pytest.Item) -> float:
        given = item.get_closest_marker("timeout")
        return float(given.args[0] if given else item.config.getini("timeout"))

    items.sort(key=patience, reverse=True)


def pytest_collection_finish() -> None:
    """Collect garbage less often, and not among what was imported: it takes a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(123)


@pytest.fixture(scope="session")
def once(tmp_path_factory) -> Callable[[str, Callable[[Path], object]], Path]:
    """Makes a folder of some name once for all processes of a run, and returns it."""
    from filelock import FileLock

    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def once(name: str, make: Callable[[Path], object]) -> Path:
        folder, made = shared / name, shared / f"{name}.made"
        with FileLock(shared / f"{name}.lock"):
            if not made.exists():
                folder.mkdir()
                make(folder)
                made.touch()
        return folder

    return once


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real inputs, for the tests that want some."""
    folder = os.environ.get("GLASSHEAD_DATA")
    if not folder:
        pytest.skip("set GLASSHEAD_DATA to the folder of real inputs to run this test")
    return Path(folder)


@pytest.fixture(scope="session")
def browser():
    """One browser for all tests of pages, as a thread can have one only."""
    from chromium import browser_or_none

    with browser_or_none() as browser:
        yield browser


@pytest.fixture(scope="session")
def word_translator(tmp_path_factory) -> Path:
    """The folder of a small translator that nobody trained: words, and two layers that write."""
    from translated import translated

    folder = tmp_path_factory.mktemp("translator") / "run"
    return translated(folder, "tokenizer=words", "num_decoder_layers=2").path


@pytest.fixture(scope="session")
def kernels_of_the_processor_at_hand() -> None:
    """Load the kernels before a test pretends another processor, for which they would be wrong."""
    from glasshead.engines.streaming import paged, passes
    from glasshead.engines.streaming.kernels.processor import columns_of

    assert paged
    assert passes
    for itemsize in (2, 4, 8):
        columns_of(itemsize)
