"""Who has a text read takes a slot, whichever route asks; what was read takes none."""

import json

import pytest
import torch

import glasshead as gh
from glasshead.studio.server.app import application
from glasshead.studio.studio import Limits, Studio
from studio.asking import ask
from written import written

PATHS = {
    "heads/maps": "",
    "heads/weights": "&layer=0&head=0",
    "heads/along": "&layer=0&head=0",
    "atlas/map": "&layer=0&head=0",
    "atlas/tile": "&layer=0&head=0&level=0&row=0&column=0",
    "atlas/tokens": "&start=0&stop=3",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return written(tmp_path_factory.mktemp("runs") / "run").path


@pytest.mark.parametrize("path", PATHS)
def test_a_text_is_read_in_a_slot_and_looked_at_without_one(folder, path):
    studio = Studio(folder, Limits(jobs=1))
    app, name = application(studio), studio.texts.add("a dog and a cat")

    def status():
        return ask(app, f"/api/{path}", query=f"text={name}{PATHS[path]}").status

    with studio.slots.taken():
        assert status() == 429
    assert status() == 200
    with studio.slots.taken():
        assert status() == 200


def test_stored_weights_take_no_slot(tmp_path):

    x = torch.eye(3)
    gh.Attention().weights(x, x).save(tmp_path / "kept.safetensors")
    studio = Studio(tmp_path / "kept.safetensors", Limits(jobs=1))
    with studio.slots.taken():
        answer = ask(application(studio), "/api/atlas/map", query="layer=0&head=0")
    assert json.loads(answer.body)["keys"] == 3
