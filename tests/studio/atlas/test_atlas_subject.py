"""Atlas: its routes, and a file of weights as what a studio shows."""

import json

import pytest
import torch

import glasshead as gh
from glasshead.cli.studio import check_options
from glasshead.studio.background_jobs import NotThere, Work
from glasshead.studio.studio import Studio, about
from glasshead.studio.views.atlas import Atlases
from studio.atlas.conftest import KEYS
from studio.atlas.small_atlases import of_blocks


def test_the_routes_tell_the_same(client, weights):
    which = {"layer": 1, "head": 0}
    assert client.get("/api/atlas/map", params=which).json()["keys"] == KEYS
    (*_, last) = client.get("/api/atlas/overview", params=which).text.splitlines()
    assert json.loads(last)["result"]["most"] > 0
    answer = client.get("/api/atlas/tile", params={**which, "level": 1, "row": 1, "column": 0})
    assert answer.headers["Shape"] == "5,256"
    found = torch.frombuffer(bytearray(answer.content), dtype=torch.float32).view(5, 256)
    expected = of_blocks(weights[1, 0], 1)[256:, :256]
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("place", "status"),
    [
        ({"level": 3}, 400),
        ({"row": 3}, 400),
        ({"level": 99}, 422),
        ({"layer": -1}, 422),
        ({"head": 2**31}, 422),
    ],
)
def test_what_is_not_there_is_refused_in_a_sentence(client, place, status):
    given = {"layer": 0, "head": 0, "level": 0, "row": 0, "column": 0, **place}
    answer = client.get("/api/atlas/tile", params=given)
    assert (answer.status_code, list(answer.json())) == (status, ["detail"])


def test_a_file_of_weights_is_a_subject(file, tmp_path):
    studio = Studio(file)
    told = about(studio)
    assert told["subject"]["kind"] == "weights"
    assert [view for view, why in told["views"].items() if why is None] == ["steps", "atlas"]
    with pytest.raises(NotThere, match="holds no such thing: start the studio with another"):
        studio.subject.reader()
    other = Studio(tmp_path / "weights.safetensors")
    with pytest.raises(NotThere, match="is not there"):
        _ = other.subject.kind
    x = torch.eye(3)
    gh.Attention().weights(x, x).save(tmp_path / "weights.safetensors")
    assert Atlases(other).map(None, 0, 0, Work())["keys"] == 3


def test_a_model_has_no_stored_weights(run):
    with pytest.raises(NotThere, match="holds no such thing"):
        Studio(run).subject.weights()


def test_the_command_takes_a_file_of_weights(file, tmp_path):
    check_options(str(file), "127.0.0.1", 0)
    other = tmp_path / "notes.txt"
    other.write_text("no weights")
    with pytest.raises(FileNotFoundError, match="or a .safetensors file of weights"):
        check_options(str(other), "127.0.0.1", 0)
