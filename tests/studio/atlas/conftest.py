"""Stored weights and a small model, as the view `atlas` shows them."""

import pytest
import torch
from fastapi.testclient import TestClient

import glasshead as gh
from glasshead.studio.app import application
from glasshead.studio.studio import Studio
from glasshead.studio.views.atlas import Atlases
from studio.atlas.small_atlases import cut

QUERIES, KEYS, TEXTS, HEADS = 521, 1013, 2, 3


@pytest.fixture(scope="module")
def weights():
    torch.manual_seed(0)
    query, key = torch.randn(TEXTS, HEADS, QUERIES, 5), torch.randn(TEXTS, HEADS, KEYS, 5)
    return gh.Attention(mask=gh.causal()).weights(query, key)


@pytest.fixture(scope="module")
def file(weights, tmp_path_factory):
    file = tmp_path_factory.mktemp("stored") / "weights.safetensors"
    weights.save(file)
    return file


@pytest.fixture
def atlases(file):
    return Atlases(Studio(file))


@pytest.fixture
def client(file):
    return TestClient(application(Studio(file)), base_url="http://127.0.0.1")


@pytest.fixture
def run(folder):
    return folder


@pytest.fixture(scope="module")
def square():
    """The weights of two heads, as many queries as keys."""
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, 2, KEYS, 7).unbind()
    return gh.Attention(mask=gh.causal()).weights(query, key)


@pytest.fixture(scope="module")
def stored(square, tmp_path_factory, serving):
    """Where a studio shows them."""
    file = tmp_path_factory.mktemp("stored") / "square.safetensors"
    square.save(file)
    return serving(file).url


@pytest.fixture
def finely(monkeypatch):
    """Parts of 8 queries and 64 keys."""
    cut(monkeypatch, 2**11, 8)


@pytest.fixture
def coarsely(monkeypatch):
    """Parts of 32 queries and 256 keys, or of fewer where there are many numbers a pair."""
    cut(monkeypatch, 2**15, 32)
