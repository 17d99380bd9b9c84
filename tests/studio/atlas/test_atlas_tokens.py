"""Atlas: the tokens along its axes, of texts and beside stored weights."""

import json

import pytest
import torch
from fastapi.testclient import TestClient

import glasshead as gh
from glasshead.studio.background_jobs import Refusal, Work
from glasshead.studio.server.app import application
from glasshead.studio.studio import Studio
from glasshead.studio.subject import stored_tokens
from glasshead.studio.views import atlas as module
from glasshead.studio.views.atlas import TOKENS, Atlases, stored_atlas
from glasshead.tasks.write import Writer
from studio.atlas.conftest import CONTEXT

STORY = "Once upon a time Tom saw a big red ball\nand a dog, and the sun."


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


def test_a_file_holds_as_many_tokens_as_it_has_room_for(run, monkeypatch):
    monkeypatch.setattr(module, "TOKENS", 11)
    studio = Studio(run)
    atlases, text = Atlases(studio), studio.texts.add(STORY)
    asked = [
        given
        for path, given, _ in stored_atlas(atlases, text, [(0, 0)], Work())
        if path == "atlas/tokens"
    ]
    assert asked == [{"start": at, "stop": min(at + 11, CONTEXT)} for at in range(0, CONTEXT, 11)]
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
