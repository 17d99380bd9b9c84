"""Two checkpoints of a run compared: a checkpoint less itself is 0 everywhere."""

import json

import pytest
import torch
from fastapi.testclient import TestClient

import glasshead as gh
from glasshead.studio.app import application
from glasshead.studio.studio import Studio
from glasshead.tasks.readers.open_reader import open_any_reader
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training import checkpoints, train
from glasshead.tasks.write import WRITE, WriteSettings
from written import SMALL

TEXT = "The cat sat."


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run whose best validation is not its last step."""
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "own")
    folder.create()
    quick = ("stories=101", "warmup=0", "steps=11", "validate_every=5", "learning_rate=0.02")
    settings = WriteSettings.from_preset("nano", [*SMALL, *quick], (), ())
    made = WRITE.begin(settings, folder, "glasshead train write")
    train(made.task, made.source, made.held_out, made.settings.training, folder, watch=True)
    # The best weights are those of another step: here a made one.
    reader = open_any_reader(folder.path)
    with torch.no_grad():
        for parameter in reader.model.parameters():
            parameter.mul_(1.5)
    from safetensors.torch import save_file

    save_file(
        {name: tensor.clone() for name, tensor in reader.model.state_dict().items()},
        folder.weights,
        metadata=_metadata(folder.weights),
    )
    best_at(folder, 5)
    return folder


def best_at(folder, step):
    metrics = json.loads(folder.metrics.read_text())
    metrics["best"]["step"] = step
    folder.metrics.write_text(json.dumps(metrics))


def _metadata(file):
    from safetensors import safe_open

    with safe_open(file, "pt") as opened:
        return opened.metadata()


@pytest.fixture(scope="module")
def client(trained):
    return TestClient(application(Studio(trained.path)), base_url="http://127.0.0.1")


@pytest.fixture(scope="module")
def text(client):
    return client.post("/api/texts", json={"text": TEXT}).json()["id"]


def compared(client, text, first, second):
    return client.get(
        "/api/training/comparison", params={"text": text, "first": first, "second": second}
    )


def maps(client, text, first, second, layer, head):
    params = {"text": text, "first": first, "second": second, "layer": layer, "head": head}
    answer = client.get("/api/training/comparison/maps", params=params)
    shape = [int(side) for side in answer.headers["Shape"].split(",")]
    return torch.frombuffer(bytearray(answer.content), dtype=torch.float32).reshape(shape)


def test_a_last_step_that_is_the_best_is_not_offered_as_another(client, trained):
    best_at(trained, 11)
    try:
        assert client.get("/api/training/checkpoints").json() == [["own/best"]]
    finally:
        best_at(trained, 5)


@pytest.mark.slow
def test_a_checkpoint_less_itself_is_0_everywhere(client, text):
    (names,) = client.get("/api/training/checkpoints").json()
    assert names == ["own/best", "own/last"]
    for name in names:
        told = compared(client, text, name, name).json()
        assert all(value == 0 for row in told["distance"] for value in row)
        for layer, row in enumerate(told["distance"]):
            for head in range(len(row)):
                first, second, difference = maps(client, text, name, name, layer, head)
                assert not difference.any()
                assert torch.equal(first, second)


def test_the_numbers_are_those_of_the_two_models(client, text, trained):
    best, last = open_any_reader(trained.path), open_any_reader(trained.path)
    last.model.load_state_dict(checkpoints.read(trained.checkpoint)["model"])
    (tokens,) = best.encode([TEXT])
    tokens = torch.tensor([[*best.around[0], *tokens, *best.around[1]]])
    weights = []
    for reader in (best, last):
        with torch.inference_mode(), gh.watch(reader.model, keep="weights") as seen:
            reader.read(tokens)
        weights.append([layer.weights.dense()[0] for layer in seen.values()])
    told = compared(client, text, "own/best", "own/last").json()
    assert len(told["tokens"]) == tokens.shape[1]
    for layer, (p, q) in enumerate(zip(*weights, strict=True)):
        distance = 0.5 * (p - q).abs().sum(-1).mean(-1)
        assert distance.max() > 0.01
        torch.testing.assert_close(torch.tensor(told["distance"][layer]), distance)
        for head in range(len(p)):
            shown = maps(client, text, "own/best", "own/last", layer, head)
            torch.testing.assert_close(shown, torch.stack([p[head], q[head], p[head] - q[head]]))
            later = torch.ones_like(shown[0], dtype=torch.bool).triu(1)
            assert shown[:, later].signbit().all()
            back = maps(client, text, "own/last", "own/best", layer, head)
            torch.testing.assert_close(back[2], -shown[2])


def test_what_cannot_be_compared_is_refused(client, text, trained):
    answer = compared(client, text, "own/best", "own/middle")
    assert answer.status_code == 400
    assert answer.json()["detail"] == "the run has no checkpoint own/middle."
    params = {"text": text, "first": "own/best", "second": "own/last", "layer": 99, "head": 0}
    assert client.get("/api/training/comparison/maps", params=params).status_code == 400
    other = WriteSettings.from_preset(
        "nano", [*SMALL, "stories=101", "steps=2", "warmup=0", "num_layers=1"], (), ()
    )
    folder = RunFolder(trained.path.parent / "shallow")
    folder.create()
    made = WRITE.begin(other, folder, "glasshead train write")
    train(made.task, made.source, made.held_out, made.settings.training, folder)
    answer = compared(client, text, "own/best", "shallow/best")
    assert "must have the same tokens and the same heads" in answer.json()["detail"]
    kinds = client.get("/api/training/checkpoints").json()
    assert kinds == [["own/best", "own/last"], ["shallow/best"]]


def test_a_head_of_the_log_is_found_among_those_of_the_view(client, text, trained):
    log = client.get("/api/training").json()["heads"]
    for place, layer in enumerate(log["layers"]):
        found = client.get("/api/training/head", params={"text": text, "layer": layer}).json()
        assert found == {"layer": place}
    nowhere = client.get("/api/training/head", params={"text": text, "layer": "decoder.0"})
    assert nowhere.json() is None
