"""What the view `prompt` says of a model: its predictions, and those without some heads."""

import json

import pytest
import torch
from fastapi.testclient import TestClient
from torch.nn import functional as F

import glasshead as gh
from classified import classified
from glasshead.studio.app import application
from glasshead.studio.background_jobs import Cancelled, Refusal, Work
from glasshead.studio.studio import Limits, Studio
from glasshead.studio.views import heads
from glasshead.studio.views.prompt import Prompts, described, likely
from glasshead.tasks.classify import TextClassifier
from glasshead.tasks.tokenizers import trial
from glasshead.tasks.translate import TextTranslator
from glasshead.tasks.write import Writer
from pretrained_folders import bert_folder, llama_folder
from translated import translated

TEXT = "a big red dog saw a ball"
AWAY = [(0, 1), (1, 0), (1, 2)]


@pytest.fixture(scope="module")
def prompts(folder):
    return Prompts(Studio(folder))


def ask(prompts, text=TEXT, without=(), top=5, temperature=1.0):
    return prompts.predictions(text, list(without), top, temperature, Work())


def of_the_run(folder, text=TEXT, without=AWAY):
    """The logits after each token, with all heads and without some, by the library itself."""
    writer = Writer.load(folder)
    tokens = torch.tensor(writer.tokenizer.encode(text))
    away = {}
    for layer, head in without:
        away.setdefault(f"blocks.{layer}.attention", []).append(head)
    with torch.inference_mode():
        whole = writer.model(tokens[None])[0]
        with gh.ablate(writer.model, away):
            return tokens, whole, writer.model(tokens[None])[0]


def test_predictions_are_the_softmax_of_the_model_s_logits(prompts, folder):
    tokens, logits, _ = of_the_run(folder)
    told = ask(prompts, temperature=0.7)
    expected = (logits[-1] / 0.7).softmax(-1).topk(5)
    assert [one["p"] for one in told["likely"]] == pytest.approx(expected.values.tolist())
    assert [one["before"] for one in told["likely"]] == [one["p"] for one in told["likely"]]
    assert told["loss"] == pytest.approx(F.cross_entropy(logits[:-1], tokens[1:]).item())
    assert (told["predicts"], len(told["tokens"]), told["heads"]) == ("tokens", len(tokens), [3, 3])


def test_a_tokenizer_that_takes_too_long_or_grows_is_refused_and_the_next_text_answered(
    tmp_path, monkeypatch, capfd
):
    folder = llama_folder(tmp_path / "llama")
    file = folder / "tokenizer.json"
    whole = json.loads(file.read_text())
    # Its time grows by the cube of a run of "x " that something follows.
    pattern = {"Regex": r"(?:x )+(?:x )+$|\w+"}
    split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    file.write_text(json.dumps(whole | {"pre_tokenizer": split}))
    capfd.readouterr()
    client = TestClient(application(Studio(folder)), base_url="http://localhost")
    assert client.get("/api/prompt", params={"text": TEXT}).status_code == 200
    with monkeypatch.context() as hurried:
        hurried.setattr(trial, "_SECONDS", 0.2)
        late = client.get("/api/prompt", params={"text": TEXT + " " + "x " * 937 + "y"})
    assert late.status_code == 400
    assert "tokenizer.json has a tokenizer that takes more than 0 s for 1," in late.json()["detail"]
    assert client.get("/api/prompt", params={"text": TEXT}).status_code == 200
    doubled = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    bomb = {"normalizer": {"type": "Sequence", "normalizers": [doubled] * 40}}
    file.write_text(json.dumps(whole | bomb))
    client = TestClient(application(Studio(folder)), base_url="http://localhost")
    for _ in range(2):
        refused = client.get("/api/prompt", params={"text": TEXT})
        assert refused.status_code == 400
        assert "has rules that turn one character into more than 16" in refused.json()["detail"]
    assert client.get("/api/health").status_code == 200
    assert capfd.readouterr().err == ""


def test_heads_that_are_taken_away_are_those_of_ablate(prompts, folder):
    tokens, whole, logits = of_the_run(folder)
    told = ask(prompts, without=AWAY)
    assert not torch.allclose(whole, logits)
    now, before = logits[-1].softmax(-1), whole[-1].softmax(-1)
    top = now.topk(5).indices
    assert [one["p"] for one in told["likely"]] == pytest.approx(now[top].tolist())
    assert [one["before"] for one in told["likely"]] == pytest.approx(before[top].tolist())
    losses = [F.cross_entropy(each[:-1], tokens[1:]).item() for each in (logits, whole)]
    assert [told["loss"], told["loss_before"]] == pytest.approx(losses)


def test_weights_are_those_of_a_watch_within_the_ablation(prompts, folder):
    writer = Writer.load(folder)
    tokens = torch.tensor(writer.tokenizer.encode(TEXT))
    with (
        torch.inference_mode(),
        gh.ablate(writer.model, {"blocks.0.attention": [1]}),
        gh.watch(writer.model, keep="weights") as seen,
    ):
        writer.model(tokens[None])
    found = prompts.weights(TEXT, [(0, 1)], [(1, 2), (0, 0)], Work())
    for (layer, head), each in zip([(1, 2), (0, 0)], found, strict=True):
        expected = seen[f"blocks.{layer}.attention"][0].weights.dense()[0, head]
        torch.testing.assert_close(each, expected)
    # What the mask hides has a sign that no weight of 0 has.
    assert torch.equal(found[0].signbit(), torch.ones_like(found[0], dtype=torch.bool).triu(1))
    assert prompts.maps(TEXT, [], Work()).shape == (6, len(tokens), len(tokens) + 1)


def test_the_last_token_looks_sharply_at_another_in_the_first_head(prompts):
    layer, head = ask(prompts)["first"]
    reading = prompts.pass_of(TEXT, (), Work()).reading

    def sharpness(layer, head):
        # Neither the first token counts nor the last two.
        return heads.whole_map(reading, layer, head)[-1, 1:-2].max()

    best = max(sharpness(*each) for each in ((one, two) for one in range(2) for two in range(3)))
    assert sharpness(layer, head) == pytest.approx(best.item())


def test_a_temperature_of_0_gives_all_to_the_largest(prompts):
    assert [one["p"] for one in ask(prompts, temperature=0.0)["likely"]] == [1.0, 0, 0, 0, 0]
    assert likely(torch.tensor([3.0, 1.0]), 2.0)[0] == pytest.approx(1 / (1 + torch.e**-1))


def test_a_model_of_hugging_face_predicts_and_loses_heads_as_well(tmp_path):
    from transformers import AutoModelForCausalLM

    folder = llama_folder(tmp_path / "llama")
    prompts = Prompts(Studio(folder))
    told = ask(prompts, "the big dog", AWAY)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    reading = prompts.pass_of("the big dog", (), Work()).reading
    away = {reading.layers[0]: [1], reading.layers[1]: [0, 2]}
    with torch.inference_mode(), gh.ablate(model, {name: away[name] for name in away}):
        logits = model(reading.tokens[None]).logits[0, -1]
    expected = logits.softmax(-1).topk(5).values
    assert [one["p"] for one in told["likely"]] == pytest.approx(expected.tolist(), rel=1e-4)
    said = described(prompts._studio) or {}
    assert (said["name"], said["layers"], said["heads"]) == ("llama", 2, 3)
    assert said["parameters"] == sum(each.numel() for each in model.parameters())


def test_a_classifier_tells_its_labels(tmp_path):
    folder = classified(tmp_path / "run").path
    prompts = Prompts(Studio(folder))
    (answer,) = TextClassifier.load(folder).classify(["good film"])
    told = ask(prompts, "good film", temperature=0.0)
    assert told["predicts"] == "labels"
    assert {one["text"]: pytest.approx(one["p"]) for one in told["likely"]} == dict(answer.shares)
    assert told["loss"] is None
    changed = ask(prompts, "good film", [(0, 0)])
    assert [one["before"] for one in changed["likely"]] != [one["p"] for one in changed["likely"]]


def of_a_bert(folder, head, text, **config):
    """What the studio answers for a BERT with a head, the model's own logits, and the tokens."""
    import transformers

    kind = f"BertFor{head}"
    prompts = Prompts(Studio(bert_folder(folder, kind, **config)))
    tokens = prompts.pass_of(text, (), Work()).reading.tokens
    with torch.inference_mode():
        model = getattr(transformers, kind).from_pretrained(folder).eval()
        return prompts, model(tokens[None]).logits.squeeze(0), tokens


LABELS = {"id2label": {0: "bad", 1: "good", 2: "odd", 3: "even", 4: "new"}}


def test_a_sequence_classifier_of_hugging_face_tells_its_labels(tmp_path):
    prompts, logits, _ = of_a_bert(tmp_path, "SequenceClassification", "a big dog", **LABELS)
    told = ask(prompts, "a big dog", top=7)
    shares = dict(zip(LABELS["id2label"].values(), logits.softmax(-1).tolist(), strict=True))
    assert (told["predicts"], told["loss"]) == ("labels", None)
    assert {one["text"]: one["p"] for one in told["likely"]} == pytest.approx(shares, rel=1e-4)
    away = ask(prompts, "a big dog", [(0, 1)], top=7)["likely"]
    assert {one["text"]: one["before"] for one in away} == pytest.approx(shares, rel=1e-4)
    assert any(one["before"] != one["p"] for one in away)


def test_labels_of_which_several_hold_have_a_sigmoid_each(tmp_path):
    several = {"problem_type": "multi_label_classification", **LABELS}
    prompts, logits, _ = of_a_bert(tmp_path, "SequenceClassification", "a dog", **several)
    shares = sorted(logits.sigmoid().tolist(), reverse=True)
    assert [one["p"] for one in ask(prompts, "a dog")["likely"]] == pytest.approx(shares, rel=1e-4)


def test_a_token_classifier_tells_the_label_of_each_token_of_the_text(tmp_path):
    prompts, logits, _ = of_a_bert(tmp_path, "TokenClassification", "tom saw a dog", **LABELS)
    told = ask(prompts, "tom saw a dog", top=7)
    shares, labels = logits.softmax(-1)[1:-1].max(-1)
    named = [LABELS["id2label"][label] for label in labels.tolist()]
    words = zip(["tom", "saw", "a", "dog"], named, strict=True)
    assert told["predicts"] == "token_labels"
    assert [one["text"] for one in told["likely"]] == [f"{word} → {label}" for word, label in words]
    assert [one["p"] for one in told["likely"]] == pytest.approx(shares.tolist(), rel=1e-4)


def test_a_masked_language_model_tells_candidates_for_its_first_blank(tmp_path):
    text = "tom saw a [MASK] dog and a [MASK]"
    prompts, logits, tokens = of_a_bert(tmp_path, "MaskedLM", text)
    told = ask(prompts, text)
    expected = logits[tokens.tolist().index(4)].softmax(-1).topk(5).values
    assert (told["predicts"], told["blank"], told["loss"]) == ("blanks", "[MASK]", None)
    assert [one["p"] for one in told["likely"]] == pytest.approx(expected.tolist(), rel=1e-4)
    assert ask(prompts, "tom saw a dog")["likely"] == []


def test_a_head_without_weights_in_the_file_predicts_nothing(tmp_path):
    folder = bert_folder(tmp_path, "BertModel")
    config = json.loads((folder / "config.json").read_text())
    named = {"architectures": ["BertForSequenceClassification"]}
    (folder / "config.json").write_text(json.dumps(config | named))
    told = ask(Prompts(Studio(folder)), "a big dog")
    assert (told["predicts"], told["likely"]) == ("nothing", [])


def test_layers_that_share_weights_lose_no_head_alone(tmp_path):
    prompts = Prompts(Studio(bert_folder(tmp_path, "AlbertForMaskedLM")))
    for layer in range(2):
        with pytest.raises(Refusal, match=r"layers that share one attention"):
            ask(prompts, "a big dog", [(layer, 0)])


def test_a_translator_tells_its_candidates(tmp_path):
    folder = translated(tmp_path / "run").path
    prompts = Prompts(Studio(folder))
    told = ask(prompts, "ich lese")
    found = TextTranslator.load(folder).translate(["ich lese"])
    assert told["predicts"] == "translations"
    assert len(told["likely"]) <= 3
    assert found
    assert all(0 <= one["p"] == one["before"] <= 1 for one in told["likely"])
    away = ask(prompts, "ich lese", [(0, 0), (0, 1)])
    assert [one["p"] for one in away["likely"]] != [one["p"] for one in told["likely"]]


def test_what_is_not_to_be_had_is_refused_in_a_sentence(prompts, folder):
    with pytest.raises(Refusal, match=r"Enter at least one word"):
        ask(prompts, " \n")
    with pytest.raises(Refusal, match=r"head must be from 0 to 2, got 3"):
        ask(prompts, without=[(0, 3)])
    with pytest.raises(Refusal, match=r"layer must be from 0 to 1, got 2"):
        ask(prompts, without=[(2, 0)])
    gone = Work()
    gone.cancel()
    with pytest.raises(Cancelled):
        Prompts(Studio(folder)).predictions(TEXT, [], 5, 1.0, gone)


def test_a_long_prompt_is_read_up_to_a_limit(folder):
    prompts = Prompts(Studio(folder, Limits(prompt=5)))
    told = ask(prompts)
    assert (len(told["tokens"]), told["of"] > 5) == (5, True)


def test_the_routes_take_heads_as_the_address_writes_them(folder):
    client = TestClient(application(Studio(folder)), base_url="http://localhost")
    told = client.get("/api/prompt", params={"text": TEXT, "without": "0.1,1.0,1.2", "top": 3})
    assert (told.status_code, len(told.json()["likely"])) == (200, 3)
    weights = client.get("/api/prompt/weights", params={"text": TEXT, "heads": "1.2,0.0"})
    length = len(told.json()["tokens"])
    assert weights.headers["shape"] == f"2,{length},{length}"
    for params, said in (
        ({"text": TEXT, "without": "x"}, "without cannot be x."),
        (
            {"text": TEXT, "top": 0},
            "top must be a number of at least 1, got 0.",
        ),
        ({"text": TEXT, "temperature": "nan"}, "temperature must be a number, got nan."),
    ):
        refused = client.get("/api/prompt", params=params)
        assert (refused.status_code, refused.json()["detail"]) == (422, said)
    assert client.get("/api/prompt/model").json()["layers"] == 2
    without = TestClient(application(Studio()), base_url="http://localhost")
    assert without.get("/api/prompt", params={"text": TEXT}).status_code == 404
