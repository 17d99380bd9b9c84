"""Heads: what the view is told, against the library; and the routes that tell it."""

import threading
from dataclasses import replace

import pytest
import torch
from fastapi.testclient import TestClient

import glasshead as gh
from glasshead.drawing import visible
from glasshead.studio.app import application
from glasshead.studio.background_jobs import Cache, Cancelled, Refusal, Work
from glasshead.studio.views import heads
from glasshead.tasks.write import Writer
from studio.heads.heads_seen import HEADS, LAYERS, STORY


@pytest.fixture(scope="module")
def text(studio):
    return studio.texts.add(STORY)


@pytest.fixture(scope="module")
def reading(studio, text):
    return heads.reading_of(studio, text, Work())


@pytest.fixture(scope="module")
def weights(folder):
    """The weights of all layers and heads, by the model itself."""
    writer = Writer.load(folder)
    tokens = torch.tensor([writer.tokenizer.encode(STORY)[:47]])
    with torch.inference_mode(), gh.watch(writer.model, keep="weights") as seen:
        writer.model(tokens)
    return torch.stack([one.weights.dense()[0] for one in seen.values()])


@pytest.fixture(scope="module")
def client(studio):
    return TestClient(application(studio), base_url="http://127.0.0.1")


def numbers(answer):
    assert answer.status_code == 200, answer.text
    shape = [int(part) for part in answer.headers["Shape"].split(",")]
    return torch.frombuffer(bytearray(answer.content), dtype=torch.float32).view(shape)


def test_the_summary_names_tokens_layers_and_what_heads_do(folder, reading, weights):
    told = heads.summary(reading)
    tokenizer = Writer.load(folder).tokenizer
    tokens = tokenizer.encode(STORY)[:47]
    assert told["tokens"] == [visible(tokenizer.token(token)) for token in tokens]
    assert told["layers"] == [f"blocks.{layer}.attention" for layer in range(LAYERS)]
    assert told["heads"] == [HEADS, HEADS]
    entropy = -torch.special.xlogy(weights.double(), weights.double()).sum(-1).mean(-1)
    torch.testing.assert_close(
        torch.tensor(told["entropy"], dtype=torch.float64), entropy, atol=1e-5, rtol=1e-5
    )
    found = gh.head_roles(Writer.load(folder).model, torch.tensor([tokens]))
    assert told["roles"] == [list(row) for row in found.roles]
    assert told["thresholds"] == dict(found.thresholds)
    for role, scores in found.scores.items():
        torch.testing.assert_close(
            torch.tensor(told["scores"][role], dtype=torch.float64), scores, atol=1e-6, rtol=1e-5
        )
    assert told["whole"] is None
    assert "".join(told["running"]) == STORY[: len("".join(told["running"]))]


@pytest.mark.parametrize(
    ("tokens", "running"),
    [
        (["a", "␣red", "␣␣dog␣", "x␣y"], "a red  dog x␣y"),
        (["a", "dog", "##gy", "."], " a doggy ."),
    ],
)
def test_running_tokens_are_the_text(tokens, running):
    joined = "".join(heads.running(tokens))
    assert joined.replace("##", "") == running


def test_the_head_that_is_opened_first_tells_most():
    scores = {"local": [[0.9, 0.8, 0.95]], "previous": [[0.6, 0.7, 0.5]]}
    told = {"heads": [3], "entropy": [[1.7, 2.3, 1.1]], "scores": scores}
    first = lambda *roles: heads._first(told | {"roles": [list(roles)]})  # noqa: E731
    assert first("local", "local", "local") == [0, 2]
    assert first("previous", "previous", "local") == [0, 1]
    assert first(None, None, None) == [0, 2]
    assert first("local", None, None) == [0, 0]


def test_small_maps_are_pooled_and_tell_what_the_first_token_gets(reading, weights, monkeypatch):
    monkeypatch.setattr(heads, "SIDE", 7)
    maps = heads.small_maps(replace(reading, _derived=Cache(5)))
    length = weights.shape[-1]
    assert maps.shape == (LAYERS * HEADS, 7, 8)
    trace = weights.flatten(0, 1)
    blocks = [torch.arange(length)[at * length // 7 : (at + 1) * length // 7] for at in range(7)]
    for row, queries in enumerate(blocks):
        for column, keys in enumerate(blocks):
            expected = trace[:, queries][:, :, keys].sum(-1).mean(-1)
            torch.testing.assert_close(maps[:, row, column], expected, atol=1e-6, rtol=1e-5)
        first = trace[:, queries, 0].mean(-1)
        torch.testing.assert_close(maps[:, row, 7], first, atol=1e-6, rtol=1e-5)


def test_what_follows_from_a_reading_is_computed_once_and_left_when_nobody_waits(reading):
    again = replace(reading, _derived=Cache(5))
    gone = Work()
    gone.cancel()
    with pytest.raises(Cancelled):
        heads.summary(again, gone)
    assert heads.summary(again) is heads.summary(again, gone)
    assert heads.small_maps(again) is heads.small_maps(again)


def test_requests_at_the_same_time_compute_small_maps_once(reading, monkeypatch):
    again = replace(reading, _derived=Cache(5))
    begun, goes_on = threading.Event(), threading.Event()
    original, asked, found = heads._small_maps, [], []

    def computed(one):
        asked.append(one)
        begun.set()
        assert goes_on.wait(60)
        return original(one)

    monkeypatch.setattr(heads, "_small_maps", computed)
    both = [
        threading.Thread(target=lambda: found.append(heads.small_maps(again))) for _ in range(2)
    ]
    both[0].start()
    assert begun.wait(60)
    both[1].start()
    both[1].join(0.1)
    goes_on.set()
    for thread in both:
        thread.join(60)
    assert asked == [again]
    assert found[0] is found[1]


@pytest.mark.parametrize(("layer", "head"), [(0, 0), (0, 2), (1, 1)])
def test_one_head_is_exact(reading, weights, layer, head):
    P = weights[layer, head]
    torch.testing.assert_close(heads.whole_map(reading, layer, head), P, atol=1e-6, rtol=1e-5)
    places = torch.arange(len(P))
    entropy = -torch.special.xlogy(P, P).sum(-1)
    distance = (P * (places[:, None] - places).abs()).sum(-1)
    expected = torch.stack([entropy, distance, P.sum(0)])
    torch.testing.assert_close(heads.along(reading, layer, head), expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("layer", "head", "sentence"),
    [
        (LAYERS, 0, "layer must be from 0 to 1, got 2"),
        (0, HEADS, "head must be from 0 to 2, got 3"),
        (0, -1, "head must be from 0 to 2, got -1"),
    ],
)
def test_a_head_that_is_not_there_is_refused(reading, layer, head, sentence):
    with pytest.raises(Refusal, match=sentence):
        heads.whole_map(reading, layer, head)


def test_a_report_holds_every_head_or_those_that_say_most(studio, text, reading):
    held = {
        (path, *asked.values()): value
        for path, asked, value in heads.stored_heads(studio, text, Work())
    }
    assert held["heads/reading", text] == heads.summary(reading)
    torch.testing.assert_close(held["heads/maps", text], heads.small_maps(reading))
    assert len(held) == 2 + 2 * LAYERS * HEADS
    torch.testing.assert_close(held["heads/weights", text, 1, 2], heads.whole_map(reading, 1, 2))
    torch.testing.assert_close(held["heads/along", text, 0, 1], heads.along(reading, 0, 1))
    few = list(heads.stored_heads(studio, text, Work(), most=2 * 4 * reading.length**2))
    chosen = few[0][2]["whole"]
    assert len(chosen) == 2
    assert [tuple(asked.values())[1:] for path, asked, _ in few if path == "heads/weights"] == [
        tuple(one) for one in chosen
    ]
    told = heads.summary(reading)
    previous = torch.tensor(told["scores"]["previous"]).flatten().argmax().item()
    assert list(divmod(previous, HEADS)) in chosen
    assert len(heads.chosen_heads(reading, 1)) == 1


def test_the_routes_give_what_the_functions_do(client, text, reading):
    lines = client.get("/api/heads/reading", params={"text": text}).text.splitlines()
    assert f'"layers":["{reading.layers[0]}"' in lines[-1]
    maps = numbers(client.get("/api/heads/maps", params={"text": text}))
    torch.testing.assert_close(maps, heads.small_maps(reading))
    asked = {"text": text, "layer": 1, "head": 2}
    torch.testing.assert_close(
        numbers(client.get("/api/heads/weights", params=asked)), heads.whole_map(reading, 1, 2)
    )
    torch.testing.assert_close(
        numbers(client.get("/api/heads/along", params=asked)), heads.along(reading, 1, 2)
    )


def test_the_routes_refuse_in_a_sentence(client, text):
    answer = client.get("/api/heads/weights", params={"text": text, "layer": 0, "head": 9})
    assert (answer.status_code, answer.json()["detail"]) == (
        400,
        "head must be from 0 to 2, got 9.",
    )
    assert client.get("/api/heads/maps", params={"text": "unknown"}).status_code == 410
    assert client.get("/api/heads/maps").status_code == 422
    broken = client.get("/api/heads/reading", params={"text": "unknown"}).text
    assert '"status":410' in broken
