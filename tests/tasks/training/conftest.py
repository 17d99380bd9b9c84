"""Tiny runs: one thread is faster than two, and a picture of each would take longer than it."""

import pytest
import torch

from glasshead.tasks.training import logs


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def no_pictures(request, monkeypatch):
    if "picture" not in request.node.name and "matplotlib" not in request.node.name:
        monkeypatch.setattr(logs, "drawn", lambda rows: None)
