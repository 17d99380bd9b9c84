"""Atlas: what the view is told of texts and of stored weights, against the library; its routes."""

import gc
import itertools
import json
import weakref

import pytest
import torch
from fastapi.testclient import TestClient

import glasshead as gh
from glasshead.cli.showing.request import StudioRequest
from glasshead.statistics import PooledMap
from glasshead.studio.about import about
from glasshead.studio.refusals import NotThere, NotYet, Refusal
from glasshead.studio.server.application import application
from glasshead.studio.studio import Studio
from glasshead.studio.views import atlas as module
from glasshead.studio.views import atlas_kept
from glasshead.studio.views.atlas import TOKENS, Atlases, stored
from glasshead.studio.views.stored_tokens import stored_tokens
from glasshead.studio.work import Cancelled, Work
from glasshead.tasks.write import Writer
from written import written

QUERIES, KEYS, TEXTS, HEADS = 521, 1013, 2, 3
STORY = "Once upon a time Tom saw a big red ball\nand a dog, and the sun."
CONTEXT = 47


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


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return written(tmp_path_factory.mktemp("runs") / "run", f"context_length={CONTEXT}").path


def by_blocks(P, level):
    """What a map of blocks of 2^level is by definition."""
    keys = torch.stack([part.double().sum(-1) for part in P.split(2**level, -1)], -1)
    return torch.stack([part.mean(-2) for part in keys.split(2**level, -2)], -2)


def joined(atlases, text, layer, head, level):
    """All tiles of a level, side by side."""
    rows, columns = atlases.atlas(text, layer, head, Work()).size(level)
    return torch.cat(
        [
            torch.cat(
                [
                    atlases.tile(text, layer, head, (level, row, column), Work())
                    for column in range(columns)
                ],
                1,
            )
            for row in range(rows)
        ]
    )


def test_stored_weights_are_matrices_with_heads(atlases):
    told = atlases.opened(None, Work())
    assert told == {
        "length": None,
        "of": None,
        "glued": False,
        "layers": [{"name": str(number), "heads": HEADS} for number in range(TEXTS)],
        "heads": {str(number): [*range(HEADS)] for number in range(TEXTS)},
        "trouble": None,
    }
    assert atlases.tokens(None, 0, 7, Work()) == {"tokens": []}


def test_a_map_tells_its_size_and_its_scale(atlases, weights):
    told = atlases.map(None, 1, 2, Work())
    tops, floor = told.pop("tops"), told.pop("floor")
    size = {"queries": QUERIES, "keys": KEYS, "levels": 3, "coarse": 0, "finest": 0}
    assert told == {**size, "ready": False, "most": None}
    assert tops == sorted(tops, reverse=True)
    assert (tops[:4], floor) == ([1, 0.5, 0.2, 0.1], 1e-5)
    assert tops[-1] < 1 / KEYS < tops[-4]
    expected = by_blocks(weights[1, 2], 2).max().item() / 4
    assert atlases.overview(None, 1, 2, Work()) == {"most": pytest.approx(expected, rel=1e-5)}
    told = atlases.map(None, 1, 2, Work())
    assert (told["ready"], told["most"]) == (True, pytest.approx(expected, rel=1e-5))


@pytest.mark.parametrize(
    ("held", "trouble"),
    [
        (["a", " b", "<img src=x>\u202e\x00\ud800\n", "d" * 997, "e"], None),
        (["a", "b", "c"], "list of 5 strings, one a key, and has 3: mend or remove it"),
        ([1, 2, 3, 4, 5], "and has something else: mend"),
        ({"a": 0}, "and has something else: mend"),
        ("[" * 9999, "and has broken JSON: mend"),
        (b"\xff[]", "and has broken JSON: mend"),
        (b" " * (2**23 + 1), "and has 8,388,609 bytes: mend"),
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
        assert told["trouble"].startswith("w.tokens.json takes a JSON ")
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


@pytest.mark.parametrize("surveyed", [False, True])
@pytest.mark.parametrize("level", range(3))
def test_tiles_are_the_blocks_of_their_head(atlases, weights, level, surveyed):
    if surveyed:
        atlases.overview(None, 1, 2, Work())
    found = joined(atlases, None, 1, 2, level)
    torch.testing.assert_close(
        found.double(), by_blocks(weights[1, 2], level), rtol=1e-5, atol=1e-7
    )


def test_a_tile_is_the_pooled_map_of_its_part(tmp_path):
    query, key = torch.randn(1, 1, 512, 3), torch.randn(1, 1, 512, 3)
    attention = gh.Attention(mask=gh.causal())
    attention.weights(query, key).save(tmp_path / "w.safetensors")
    expected = PooledMap(256, 256).of(attention.trace(query, key, key))[0, 0]
    found = Atlases(Studio(tmp_path / "w.safetensors")).tile(None, 0, 0, (1, 0, 0), Work())
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("leading", [(), (HEADS,), (2, TEXTS, HEADS)])
def test_stored_weights_of_any_axes(leading, tmp_path):
    W = gh.Attention().weights(torch.randn(*leading, 7, 3), torch.randn(*leading, 11, 3))
    W.save(tmp_path / "w.safetensors")
    atlases = Atlases(Studio(tmp_path / "w.safetensors"))
    told = atlases.opened(None, Work())
    every = W.dense().reshape(-1, 7, 11)
    heads = leading[-1] if leading else 1
    assert len(told["layers"]) * heads == len(every)
    for layer, head in itertools.product(range(len(told["layers"])), range(heads)):
        tile = atlases.tile(None, layer, head, (0, 0, 0), Work())
        torch.testing.assert_close(tile, every[layer * heads + head])


@pytest.mark.parametrize(("layer", "head"), [(TEXTS, 0), (0, HEADS)])
def test_there_is_no_such_head(atlases, layer, head):
    with pytest.raises(Refusal, match=r"takes one from 0 to \d, and got \d"):
        atlases.map(None, layer, head, Work())


def test_a_tile_that_takes_the_overview_waits_for_it(atlases, monkeypatch):
    monkeypatch.setattr("glasshead.studio.atlas.atlas._AT_ONCE", 0)
    with pytest.raises(NotYet, match="takes an overview: have it made first"):
        atlases.tile(None, 0, 0, (2, 0, 0), Work())
    atlases.overview(None, 0, 0, Work())
    assert atlases.tile(None, 0, 0, (2, 0, 0), Work()).shape == (131, 254)


def test_what_nobody_waits_for_is_left(atlases):
    work = Work()
    work.cancel()
    with pytest.raises(Cancelled):
        atlases.tile(None, 0, 0, (0, 0, 0), work)
    with pytest.raises(Cancelled):
        atlases.overview(None, 0, 0, work)
    assert not atlases.atlas(None, 0, 0, Work()).ready


def test_few_maps_are_kept_and_no_longer_than_their_weights(atlases, monkeypatch):
    monkeypatch.setattr(atlas_kept, "MOST", 2)
    first = atlases.atlas(None, 0, 0, Work())
    assert atlases.atlas(None, 0, 1, Work()) is not first
    assert atlases.atlas(None, 0, 0, Work()) is first
    atlases.atlas(None, 0, 2, Work())
    assert atlases.atlas(None, 0, 0, Work()) is first
    gone = weakref.ref(first)
    del first
    atlases._studio.subject._open.clear()
    gc.collect()
    atlases.atlas(None, 0, 1, Work())
    gc.collect()
    assert gone() is None


def test_the_map_of_a_matrix_without_heads_goes_with_its_weights(tmp_path):
    x = torch.randn(13, 5)
    gh.Attention().weights(x, x).save(tmp_path / "kept.safetensors")
    atlases = Atlases(Studio(tmp_path / "kept.safetensors"))
    gone = weakref.ref(atlases.atlas(None, 0, 0, Work()))
    atlases._studio.subject._open.clear()
    gc.collect()
    atlases.atlas(None, 0, 0, Work())
    gc.collect()
    assert gone() is None


def test_tokens_with_a_number_beyond_all_measure_are_told(tmp_path):
    (tmp_path / "kept.tokens.json").write_text("[" + "7" * 5000 + "]")
    words, trouble = stored_tokens(tmp_path / "kept.safetensors", 1)
    assert words == ()
    assert "and has broken JSON" in trouble


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
    with pytest.raises(Refusal, match="an atlas takes the name of a text"):
        atlases.opened(None, Work())


def test_hostile_tokens_are_told_as_they_are_seen():
    assert module._written("<img src=x>\u202e\x00\n") == "<img src=x>\\u202e\\x00↵"


def test_a_file_holds_all_tiles_of_the_levels_that_so_many_have_room_for(atlases, weights):
    answers = list(stored(atlases, None, [(1, 2), (0, 0)], Work(), tiles=7))
    told = {(path, *given.values()): answer for path, given, answer in answers}
    assert told["atlas/read",]["heads"] == {"1": [2], "0": [0]}
    # 3 x 4 tiles of single weights are too many; 2 x 2 and 1 are not.
    assert told["atlas/map", 1, 2]["finest"] == 1
    assert told["atlas/map", 1, 2]["ready"]
    tiles = [key for key in told if key[:3] == ("atlas/tile", 1, 2)]
    assert len(tiles) == 5
    expected = by_blocks(weights[1, 2], 1)[256:, :256].float()
    torch.testing.assert_close(told["atlas/tile", 1, 2, 1, 1, 0], expected, rtol=1e-5, atol=1e-7)
    coarsest = [
        given["level"]
        for path, given, _ in stored(atlases, None, [(0, 0)], Work(), tiles=0)
        if path == "atlas/tile"
    ]
    assert coarsest == [2]


def test_a_file_holds_as_many_tokens_as_it_has_room_for(run, monkeypatch):
    monkeypatch.setattr(module, "TOKENS", 11)
    studio = Studio(run)
    atlases, text = Atlases(studio), studio.texts.add(STORY)
    asked = [
        given
        for path, given, _ in stored(atlases, text, [(0, 0)], Work())
        if path == "atlas/tokens"
    ]
    assert asked == [{"start": at, "stop": min(at + 11, CONTEXT)} for at in range(0, CONTEXT, 11)]
    few = [
        answer["tokens"]
        for path, _, answer in stored(atlases, text, [(0, 0)], Work(), size=20)
        if path == "atlas/tokens"
    ]
    assert len(few) == len(asked)
    assert few[0]
    assert not few[-1]


def test_the_routes_tell_the_same(client, weights):
    which = {"layer": 1, "head": 0}
    assert client.get("/api/atlas/map", params=which).json()["keys"] == KEYS
    (*_, last) = client.get("/api/atlas/overview", params=which).text.splitlines()
    assert json.loads(last)["result"]["most"] > 0
    answer = client.get("/api/atlas/tile", params={**which, "level": 1, "row": 1, "column": 0})
    assert answer.headers["Shape"] == "5,256"
    found = torch.frombuffer(bytearray(answer.content), dtype=torch.float32).view(5, 256)
    expected = by_blocks(weights[1, 0], 1)[256:, :256]
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
    StudioRequest(model=str(file), host="127.0.0.1", port=0, opens=False).check()
    other = tmp_path / "notes.txt"
    other.write_text("no weights")
    with pytest.raises(FileNotFoundError, match="or a .safetensors file of weights"):
        StudioRequest(model=str(other), host="127.0.0.1", port=0, opens=False).check()


def test_the_page_asks_for_tokens_in_parts_that_the_route_gives():
    script = (module.__file__.rsplit("/views/", 1)[0]) + "/static/views/atlas-text.js"
    with open(script, encoding="utf-8") as source:  # noqa: PTH123
        assert f"const AT_ONCE = {TOKENS};" in source.read()
