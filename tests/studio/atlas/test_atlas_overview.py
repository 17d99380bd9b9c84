"""The overview tells how far it is, ends when it is not wanted, and is made once.

Atlas: its routes, and a file of weights as what a studio shows.
Atlas: the tokens along its axes, of texts and beside stored weights.
"""

import json
import subprocess
import sys
import threading

import pytest
import torch
from fastapi.testclient import TestClient

import glasshead as gh
import systems
from glasshead.cli.studio import check_options
from glasshead.studio.app import application
from glasshead.studio.atlas import Atlas, Cancelled, run_parallel
from glasshead.studio.background_jobs import NotThere, Refusal, Work
from glasshead.studio.shell import about
from glasshead.studio.studio import Studio
from glasshead.studio.subject import stored_tokens
from glasshead.studio.views import atlas as module
from glasshead.studio.views.atlas import TOKENS, Atlases, stored_atlas
from glasshead.tasks.write import Writer
from studio.atlas.conftest import KEYS
from studio.atlas.small_atlases import inputs, of_blocks
from studio.conftest import CONTEXT


class Counted:
    """Weights that count the parts of them that are computed."""

    def __init__(self, weights):
        self._weights, self._lock = weights, threading.Lock()
        self.parts = self.pairs = 0

    def __getattr__(self, name):
        return getattr(self._weights, name)

    def tile(self, rows, columns):
        with self._lock:
            self.parts += 1
            self.pairs += len(rows) * len(columns)
        return self._weights.tile(rows, columns)


def counted(mask=None):
    return Counted(gh.Attention(mask=mask or gh.causal()).weights(*inputs(521, 521)).head(1, 1))


@pytest.mark.usefixtures("finely")
def test_it_tells_the_share_of_the_work_that_is_done():
    told = []
    Atlas(counted()).overview(told.append)
    assert len(told) == -(-521 // 16) + 1
    assert told == sorted(told)
    assert told[-2:] == [1.0, 1.0]
    # 256 of 521 queries are the upper half of a triangle, a quarter of it.
    assert told[15] == pytest.approx(0.25, abs=0.03)


@pytest.mark.usefixtures("finely")
def test_what_nobody_sees_is_not_computed():
    weights = counted()
    Atlas(weights).overview()
    assert 521 * 522 / 2 < weights.pairs < 0.56 * 521**2
    weights = counted(gh.window(5))
    Atlas(weights).overview()
    assert weights.pairs < 0.1 * 521**2


@pytest.mark.usefixtures("finely")
def test_it_ends_when_it_is_cancelled_and_can_be_made_again():
    weights = counted()
    atlas = Atlas(weights)
    with pytest.raises(Cancelled, match="cancelled before it was done"):
        atlas.overview(cancelled=lambda: weights.parts > 20)
    # Each thread ends after the part that it is at.
    assert 20 < weights.parts <= 20 + 2 * torch.get_num_threads()
    assert not atlas.ready
    atlas.overview(cancelled=lambda: False)
    assert atlas.ready
    before = weights.parts
    told = []
    atlas.overview(told.append, cancelled=lambda: False)
    assert weights.parts == before
    assert told == [1.0]


@pytest.mark.usefixtures("finely")
def test_a_tile_ends_when_it_is_cancelled():
    weights = counted()
    atlas = Atlas(weights)
    with pytest.raises(Cancelled):
        atlas.tile(0, 0, 0, cancelled=lambda: True)
    assert weights.parts == 0
    with pytest.raises(Cancelled):
        atlas.tile(0, 1, 1, cancelled=lambda: weights.parts > 10)
    assert 10 < weights.parts <= 10 + 2 * torch.get_num_threads()
    P = weights.dense()[256:512, 256:512]
    torch.testing.assert_close(atlas.tile(0, 1, 1).double(), P, rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("finely")
def test_who_asks_while_it_is_made_waits_or_goes():
    weights = counted()
    atlas, begun, go_on = Atlas(weights), threading.Event(), threading.Event()

    def first(_):
        begun.set()
        go_on.wait()

    maker = threading.Thread(target=atlas.overview, args=(first,))
    maker.start()
    begun.wait()
    looks = []
    with pytest.raises(Cancelled):
        atlas.overview(cancelled=lambda: looks.append(None) or len(looks) > 2)
    other = threading.Thread(target=atlas.overview)
    other.start()
    go_on.set()
    maker.join()
    other.join()
    assert atlas.ready
    once = counted()
    Atlas(once).overview()
    assert weights.parts == once.parts


def test_an_error_of_one_part_is_that_of_all_and_the_rest_is_left_out():
    done = []

    def work(number):
        if number == 3:
            raise KeyError(number)
        threading.Event().wait(0.01)
        done.append(number)

    with pytest.raises(KeyError):
        list(run_parallel(work, range(1000)))
    # What is asked for next comes after all that had been left.
    assert list(run_parallel(lambda number: -number, range(3))) == [0, -1, -2]
    assert len(done) < 500


def test_threads_of_its_own_leave_those_of_pytorch_alone():
    before = torch.get_num_threads()
    assert set(run_parallel(lambda _: torch.get_num_threads(), range(9))) == {1}
    later = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert [torch.get_num_threads(), *later] == [before] * 2


FORKED = """
import os, signal, sys
from glasshead.studio.atlas import run_parallel
before = list(run_parallel(abs, range(3)))
child = os.fork()
if not child:
    signal.alarm(20)
    os._exit(list(run_parallel(abs, range(3))) != before)
sys.exit(os.waitpid(child, 0)[1] != 0)
"""


@systems.fork
@pytest.mark.slow
def test_a_child_process_has_threads_of_its_own():
    assert subprocess.run([sys.executable, "-c", FORKED], check=False).returncode == 0


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
    with pytest.raises(NotThere, match="a model that reads it, got stored weights alone in"):
        studio.subject.reader()
    other = Studio(tmp_path / "weights.safetensors")
    with pytest.raises(NotThere, match="does not exist"):
        _ = other.subject.kind
    x = torch.eye(3)
    gh.Attention().weights(x, x).save(tmp_path / "weights.safetensors")
    assert Atlases(other).map(None, 0, 0, Work())["keys"] == 3


def test_a_model_has_no_stored_weights(run):
    with pytest.raises(NotThere, match=r"needs stored weights, got a language model in .*\. Start"):
        Studio(run).subject.weights()


def test_the_command_takes_a_file_of_weights(file, tmp_path):
    check_options(str(file), "127.0.0.1", 0)
    other = tmp_path / "notes.txt"
    other.write_text("no weights")
    with pytest.raises(FileNotFoundError, match="or a .safetensors file of weights"):
        check_options(str(other), "127.0.0.1", 0)


STORY = "Once upon a time Tom saw a big red ball\nand a dog, and the sun."


@pytest.mark.parametrize(
    ("held", "trouble"),
    [
        (["a", " b", "<img src=x>\u202e\x00\ud800\n", "d" * 997, "e"], None),
        (["a", "b", "c"], "list of 5 strings, one per key, got 3. Fix or remove it"),
        ([1, 2, 3, 4, 5], "got something else. Fix"),
        ({"a": 0}, "got something else. Fix"),
        ("[" * 9999, "got broken JSON. Fix"),
        (b"\xff[]", "got broken JSON. Fix"),
        (b" " * (2**23 + 1), "got 8,388,609 bytes. Fix"),
    ],
)
def test_tokens_beside_stored_weights_are_told(tmp_path, held, trouble):
    x = torch.randn(5, 3)
    gh.Attention().weights(x, x).save(tmp_path / "w.safetensors")
    if not isinstance(held, bytes):
        held = held.encode() if isinstance(held, str) else json.dumps(held).encode()
    (tmp_path / "w.tokens.json").write_bytes(held)
    client = TestClient(
        application(Studio(tmp_path / "w.safetensors")), base_url="http://127.0.0.1"
    )
    told = json.loads(client.get("/api/atlas/read").text.splitlines()[-1])["result"]
    tokens = client.get("/api/atlas/tokens", params={"start": 0, "stop": 9}).json()["tokens"]
    if trouble is None:
        assert (told["length"], told["of"], told["glued"], told["trouble"]) == (5, 5, True, None)
        assert tokens == ["a", " b", "<img src=x>\\u202e\\x00\\ud800↵", "d" * 64, "e"]
    else:
        assert (told["length"], tokens) == (None, [])
        assert told["trouble"].startswith("w.tokens.json must be a JSON ")
        assert trouble in told["trouble"]


def test_tokens_that_are_mended_are_read_anew(tmp_path):
    x = torch.randn(2, 3)
    gh.Attention().weights(x, x).save(tmp_path / "w.safetensors")
    atlases = Atlases(Studio(tmp_path / "w.safetensors"))
    file = tmp_path / "w.tokens.json"
    file.write_text('["one"]')
    assert atlases.opened(None, Work())["length"] is None
    file.write_text('["one", "two"]')
    assert atlases.opened(None, Work())["length"] == 2
    assert atlases.tokens(None, 1, 2, Work()) == {"tokens": ["two"]}


def test_tokens_with_a_number_beyond_all_measure_are_told(tmp_path):
    (tmp_path / "kept.tokens.json").write_text("[" + "7" * 5000 + "]")
    words, trouble = stored_tokens(tmp_path / "kept.safetensors", 1)
    assert words == ()
    assert "got broken JSON" in trouble


def test_a_text_is_read_up_to_the_models_context(run):
    studio = Studio(run)
    atlases, text = Atlases(studio), studio.texts.add(STORY)
    writer = Writer.load(run)
    numbers = writer.tokenizer.encode(STORY)
    told = atlases.opened(text, Work())
    assert (told["length"], told["of"]) == (CONTEXT, len(numbers))
    assert told["length"] < told["of"]
    assert [layer["heads"] for layer in told["layers"]] == [3, 3]
    written_as = [writer.tokenizer.token(number).replace("\n", "↵") for number in numbers]
    found = atlases.tokens(text, 3, 41, Work())["tokens"]
    assert found == written_as[3:41]
    assert atlases.tokens(text, 40, 400, Work())["tokens"] == written_as[40:CONTEXT]
    with torch.inference_mode(), gh.watch(writer.model, keep="weights") as seen:
        writer.model(torch.tensor([numbers[:CONTEXT]]))
    expected = [*seen.values()][1].weights[0, 2]
    torch.testing.assert_close(atlases.tile(text, 1, 2, (0, 0, 0), Work()), expected)
    with pytest.raises(Refusal, match="an atlas needs the name of a text"):
        atlases.opened(None, Work())


def test_hostile_tokens_are_told_as_they_are_seen():
    assert module._written("<img src=x>\u202e\x00\n") == "<img src=x>\\u202e\\x00↵"


def test_a_file_holds_as_many_tokens_as_it_has_room_for(run, monkeypatch):
    monkeypatch.setattr(module, "TOKENS", 11)
    studio = Studio(run)
    atlases, text = Atlases(studio), studio.texts.add(STORY)
    asked = [
        given
        for path, given, _ in stored_atlas(atlases, text, [(0, 0)], Work())
        if path == "atlas/tokens"
    ]
    starts = range(0, CONTEXT, 11)
    assert asked == [{"text": text, "start": at, "stop": min(at + 11, CONTEXT)} for at in starts]
    few = [
        answer["tokens"]
        for path, _, answer in stored_atlas(atlases, text, [(0, 0)], Work(), size=20)
        if path == "atlas/tokens"
    ]
    assert len(few) == len(asked)
    assert few[0]
    assert not few[-1]


def test_the_page_asks_for_tokens_in_parts_that_the_route_gives():
    script = (module.__file__.rsplit("/views/", 1)[0]) + "/static/views/atlas-text.js"
    with open(script, encoding="utf-8") as source:  # noqa: PTH123
        assert f"const AT_ONCE = {TOKENS};" in source.read()
