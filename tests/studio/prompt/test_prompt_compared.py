"""Two prompts compared: their candidates, the change of logits, and the heads that wrote it."""

import pytest
import torch
from fastapi.testclient import TestClient

import glasshead as gh
from classified import classified
from glasshead.studio.app import application
from glasshead.studio.background_jobs import Refusal, Work
from glasshead.studio.studio import Studio
from glasshead.studio.views.prompt_compared import ComparedPrompts
from glasshead.tasks.write import Writer
from pretrained_folders import bert_folder, llama_folder
from translated import translated

# 2 layers of 3.
HEADS = 2 * 3
TEXT, OTHER = "a big red dog saw a ball", "a red dog ran"


def ask(folder, texts=(TEXT, OTHER), without=(), top=3, temperature=0.7):
    return ComparedPrompts(Studio(folder)).compared(texts, without, top, temperature, Work())


@pytest.fixture(scope="module")
def told(folder):
    return ask(folder)


@pytest.fixture(scope="module")
def logits(folder):
    """The logits after each prompt, by the library itself, and the tokens' names."""
    writer = Writer.load(folder)
    with torch.inference_mode():
        rows = [
            writer.model(torch.tensor([writer.tokenizer.encode(text)]))[0, -1]
            for text in (TEXT, OTHER)
        ]
    return writer, torch.stack(rows)


def test_candidates_are_the_top_of_both_prompts_with_their_logits(told, logits):
    _, rows = logits
    shares = (rows / 0.7).softmax(-1)
    tops = {*shares[0].topk(3).indices.tolist(), *shares[1].topk(3).indices.tolist()}
    order = sorted(tops, key=lambda token: -shares[:, token].max())
    assert [one["logit"] for one in told["candidates"]] == [
        pytest.approx(rows[:, token].tolist(), abs=1e-5) for token in order
    ]
    assert [one["p"] for one in told["candidates"]] == [
        pytest.approx(shares[:, token].tolist(), abs=1e-6) for token in order
    ]
    of, against = rows.argmax(-1).tolist()
    pair = rows[:, of] - (rows[:, against] if of != against else 0)
    assert told["logit"] == pytest.approx(pair.tolist(), abs=1e-5)
    assert (told["against"] is None) == (of == against)


def test_the_parts_of_heads_are_those_of_logit_parts_and_sum_to_the_change(told, logits):
    writer, rows = logits
    of, against = rows.argmax(-1).tolist()
    found = []
    for text in (TEXT, OTHER):
        with torch.no_grad(), gh.watch(writer.model, keep="parts") as seen:
            writer.model(torch.tensor([writer.tokenizer.encode(text)]))
        found.append(gh.logit_parts(seen, of, None if of == against else against))
    change = {
        (one.name, one.head): float(first - second)
        for one, first, second in zip(
            found[0].components, found[0].parts, found[1].parts, strict=True
        )
    }
    parts = told["changed"]["parts"]
    # 2 layers of 3 heads, which are fewer than are shown.
    assert {(one["layer"], one["head"]) for one in parts} == {
        (layer, head) for layer in range(2) for head in range(3)
    }
    for one in parts:
        expected = change[f"blocks.{one['layer']}.attention", one["head"]]
        assert one["part"] == pytest.approx(expected, abs=1e-5)
    sizes = [abs(one["part"]) for one in parts]
    assert sizes == sorted(sizes, reverse=True)
    assert told["changed"]["count"] == 0
    assert told["changed"]["rest"] == pytest.approx(0, abs=1e-6)
    beyond = sum(part for (_, head), part in change.items() if head is None)
    assert told["changed"]["beyond"] == pytest.approx(beyond, abs=1e-5)
    whole = sum(one["part"] for one in parts) + beyond
    assert whole == pytest.approx(told["logit"][0] - told["logit"][1], abs=1e-4)


def test_a_prompt_and_itself_differ_by_nothing(folder):
    same = ask(folder, (TEXT, TEXT))
    assert all(first == second for first, second in (one["logit"] for one in same["candidates"]))
    assert same["against"] is None
    assert same["changed"] == {"parts": [], "rest": 0.0, "count": HEADS, "beyond": 0.0}


def test_heads_of_a_layer_with_ablated_heads_are_among_other_components(folder, logits):
    told = ask(folder, without=[(1, 2)])
    assert {one["layer"] for one in told["changed"]["parts"]} == {0}
    parts = sum(one["part"] for one in told["changed"]["parts"])
    change = told["logit"][0] - told["logit"][1]
    assert told["changed"]["beyond"] == pytest.approx(change - parts, abs=1e-5)
    writer, _ = logits
    with torch.inference_mode(), gh.ablate(writer.model, {"blocks.1.attention": [2]}):
        row = writer.model(torch.tensor([writer.tokenizer.encode(TEXT)]))[0, -1]
    highest = max(one["logit"][0] for one in told["candidates"])
    assert highest == pytest.approx(row.max().item(), abs=1e-5)


def test_the_route_is_of_two_prompts(folder):
    client = TestClient(application(Studio(folder)), base_url="http://127.0.0.1")
    asked = {"text": TEXT, "minus": OTHER, "top": 3, "temperature": 0.7}
    assert client.get("/api/prompt/compared", params=asked).json() == ask(folder)
    del asked["minus"]
    assert client.get("/api/prompt/compared", params=asked).status_code == 422
    asked |= {"minus": OTHER, "without": "5.0"}
    answer = client.get("/api/prompt/compared", params=asked)
    assert (answer.status_code, answer.json()["detail"]) == (
        400,
        "layer must be from 0 to 1, got 5.",
    )


@pytest.mark.slow
def test_a_llama_has_the_parts_of_its_heads(tmp_path):
    told = ask(llama_folder(tmp_path / "llama"), ("tom saw a big red dog", "tom saw a ball"))
    changed = told["changed"]
    whole = sum(one["part"] for one in changed["parts"]) + changed["rest"] + changed["beyond"]
    assert whole == pytest.approx(told["logit"][0] - told["logit"][1], rel=1e-3)
    assert told["refused"] is None


@pytest.mark.slow
def test_what_is_not_known_is_refused_in_a_sentence(tmp_path):
    labels = ask(classified(tmp_path / "classifier").path, ("a big red dog", "a ball"))
    assert {one["text"] for one in labels["candidates"]} == {"negative", "positive"}
    assert labels["changed"] is None
    assert "are not a sum of what its heads wrote" in str(labels["refused"])
    blanks = bert_folder(tmp_path / "bert", "BertForMaskedLM")
    both = ask(blanks, ("tom saw a [MASK] dog", "a [MASK] ran"))
    assert len(both["candidates"]) >= 3
    with pytest.raises(Refusal, match="needs a blank in both prompts"):
        ask(blanks, ("tom saw a [MASK] dog", "a dog ran"))
    with pytest.raises(Refusal, match="needs a model that predicts a token"):
        ask(translated(tmp_path / "translator").path, ("a dog", "a ball"))
