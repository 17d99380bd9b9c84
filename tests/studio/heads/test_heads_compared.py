"""Two readings compared head by head, and roles on random tokens, against the library."""

import json
import math

import pytest
import torch
from fastapi.testclient import TestClient

import glasshead as gh
from glasshead.studio.app import application
from glasshead.studio.background_jobs import Cancelled, Refusal, Work
from glasshead.studio.shell import about
from glasshead.studio.studio import Studio
from glasshead.studio.views import heads
from glasshead.studio.views.heads_compared import (
    InductionTests,
    check_difference,
    compared,
    difference,
)
from studio.heads.heads_seen import HEADS, LAYERS, TEXT
from studio.heads.test_heads import numbers
from written import written

OTHER = "a red dog ran"


@pytest.fixture(scope="module")
def second(tmp_path_factory):
    """A run of another seed: the same tokenizer and shape, other weights."""
    return written(tmp_path_factory.mktemp("runs") / "other", "context_length=47", "seed=7").path


@pytest.fixture(scope="module")
def studio(folder, second, tmp_path_factory):
    smaller = ("context_length=47", "d_model=4", "num_heads=2", "num_layers=1")
    third = written(tmp_path_factory.mktemp("runs") / "third", *smaller).path
    return Studio(folder, other_folders=[second, third])


@pytest.fixture(scope="module")
def client(studio):
    return TestClient(application(studio), base_url="http://127.0.0.1")


def reading(studio, text, model=0):
    return heads.reading_of(studio, studio.texts.add(text), Work(), model)


def of_equal_length(studio):
    """Two texts of as many tokens, that are not the same."""
    one, other = reading(studio, TEXT), reading(studio, OTHER)
    assert one.length == other.length
    assert one.words != other.words
    return one, other


def test_a_reading_minus_itself_is_zero_everywhere(studio, client):
    one = reading(studio, TEXT)
    for layer in range(LAYERS):
        for head in range(HEADS):
            P = heads.whole_map(one, layer, head)
            none = difference(P, P)
            assert (none == 0).all()
            # What is hidden stays so, and what is not is seen to be 0.
            assert (none.signbit() == P.signbit()).all()
    told = compared(one, one)
    assert told["entropy"] == [[0.0] * HEADS] * LAYERS
    for scores in told["scores"].values():
        assert all(score in (0.0, None) for row in scores for score in row)
    text = studio.texts.add(TEXT)
    place = {"layer": 1, "head": 2}
    for path, of in (("maps", {}), ("weights", place), ("along", place)):
        asked = {"text": text, "minus": text, **of}
        assert not numbers(client.get(f"/api/heads/{path}", params=asked)).any()


def test_differences_are_those_of_the_weights(studio, client):
    one, other = of_equal_length(studio)
    asked = {"text": studio.texts.add(TEXT), "minus": studio.texts.add(OTHER)}
    place = {"layer": 1, "head": 2}
    found = numbers(client.get("/api/heads/weights", params={**asked, **place}))
    expected = heads.whole_map(one, 1, 2) - heads.whole_map(other, 1, 2)
    torch.testing.assert_close(found, expected, atol=0, rtol=0)
    assert found.any()
    # The upper triangle is hidden in both; the diagonal of the first row is 1 in both.
    length = one.length
    hidden = torch.ones(length, length).triu(1).bool()
    assert (found.signbit() & (found == 0) == hidden).all()
    maps = numbers(client.get("/api/heads/maps", params=asked))
    torch.testing.assert_close(maps, heads.small_maps(one) - heads.small_maps(other))
    along = numbers(client.get("/api/heads/along", params={**asked, **place}))
    torch.testing.assert_close(along, heads.along(one, 1, 2) - heads.along(other, 1, 2))
    told = client.get("/api/heads/compared", params=asked).json()
    first, second = heads.summary(one), heads.summary(other)
    assert told["refused"] is None
    for layer in range(LAYERS):
        for head in range(HEADS):
            minus = first["entropy"][layer][head] - second["entropy"][layer][head]
            assert told["entropy"][layer][head] == minus
            for role in first["scores"]:
                pair = [each["scores"][role][layer][head] for each in (first, second)]
                expected = None if None in pair else pair[0] - pair[1]
                assert told["scores"][role][layer][head] == expected


def test_two_models_are_compared_on_one_text(studio, client, second, tmp_path):
    text = studio.texts.add(TEXT)
    asked = {"text": text, "minus": text, "minus_model": 1, "layer": 0, "head": 2}
    found = numbers(client.get("/api/heads/weights", params=asked))
    own = Studio(second)
    other = heads.reading_of(own, own.texts.add(TEXT), Work())
    expected = heads.whole_map(reading(studio, TEXT), 0, 2) - heads.whole_map(other, 0, 2)
    torch.testing.assert_close(found, expected)
    assert found.any()
    alone = client.get(
        "/api/heads/weights", params={"text": text, "model": 1, "layer": 0, "head": 2}
    )
    torch.testing.assert_close(numbers(alone), heads.whole_map(other, 0, 2))
    assert about(studio)["models"] == [each.label for each in (studio.subject, *studio.others)]
    again = Studio(second, other_folders=[tmp_path / second.name])
    assert about(again)["models"] == [str(second), str(tmp_path / second.name)]
    assert about(own)["models"] == []


def test_hidden_in_one_alone_is_no_longer_hidden():
    found = difference(torch.tensor([-0.0, 0.0, 0.25, -0.0]), torch.tensor([0.0, -0.0, -0.0, -0.0]))
    assert found.tolist() == [0, 0, 0.25, 0]
    assert found.signbit().tolist() == [False, False, False, True]


def test_texts_and_models_of_other_shapes_have_no_difference(studio, client):
    one, longer = reading(studio, TEXT), reading(studio, f"{TEXT} and a cat")
    lengths = f"{one.length} and {longer.length}"
    sentence = rf"two texts with the same number of tokens, got {lengths}. Add words"
    with pytest.raises(Refusal, match=sentence):
        check_difference(one, longer)
    asked = {"text": studio.texts.add(TEXT), "minus": studio.texts.add(f"{TEXT} and a cat")}
    for path, place in (("maps", {}), ("weights", {"layer": 0, "head": 0})):
        answer = client.get(f"/api/heads/{path}", params={**asked, **place})
        assert answer.status_code == 400
        assert "the same number of tokens" in answer.json()["detail"]
    told = client.get("/api/heads/compared", params=asked).json()
    assert "the same number of tokens" in told["refused"]
    # Entropies can be told all the same.
    assert all(math.isfinite(value) for row in told["entropy"] for value in row)
    there = client.get(
        "/api/heads/compared", params=asked, headers={"Accept-Language": "es"}
    ).json()["refused"]
    assert there != told["refused"]
    assert client.get("/api/heads/compared", params={"text": asked["text"]}).status_code == 400
    unknown = client.get("/api/heads/maps", params={"text": asked["text"], "model": 3})
    assert unknown.json()["detail"] == "model must be from 0 to 2, got 3."


def test_models_with_other_heads_have_entropies_and_roles_alone(studio):
    one, other = reading(studio, TEXT), reading(studio, TEXT, 2)
    assert (one.heads, other.heads) == ((3, 3), (2,))
    told = compared(one, other)
    first, second = heads.summary(one)["entropy"], heads.summary(other)["entropy"]
    minus = [first[0][head] - second[0][head] for head in range(2)]
    assert told["entropy"] == [[*minus, None], [None] * 3]
    with pytest.raises(Refusal, match=r"the same number of layers and heads, got 2 × 3 and 1 × 2"):
        check_difference(one, other)


def test_the_induction_test_has_the_librarys_numbers(studio, folder, client):
    told = InductionTests(studio).roles(0, Work())
    found = gh.find_roles(folder)
    assert told["layers"] == list(found.names)
    assert told["roles"] == [list(row) for row in found.roles]
    for role, scores in found.scores.items():
        torch.testing.assert_close(
            torch.tensor(told["scores"][role], dtype=torch.float64), scores, atol=0, rtol=0
        )
    # 25 tokens and the same again stand in a context of 47 at most 23 at a time.
    assert told["length"] <= 47
    assert told["period"] * told["times"] <= told["length"]
    lines = client.get("/api/heads/roles").text.splitlines()
    assert json.loads(lines[-1])["result"] == told
    other = InductionTests(studio).roles(1, Work())
    assert other["scores"] != told["scores"]


def test_the_induction_test_is_left_when_nobody_waits(studio):
    gone = Work()
    gone.cancel()
    tests = InductionTests(studio)
    with pytest.raises(Cancelled):
        tests.roles(0, gone)
    told = tests.roles(0, Work())
    assert tests.roles(0, Work()) is told
