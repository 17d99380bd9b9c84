"""What the view `model` says of each head: what it writes and reads, as the library does."""

from contextlib import contextmanager

import pytest
import torch
from fastapi.testclient import TestClient
from torch import nn

import glasshead as gh
from classified import classified
from glasshead.studio.app import application
from glasshead.studio.background_jobs import Cancelled, Refusal, Work
from glasshead.studio.shell import first_view, why_not
from glasshead.studio.studio import Limits, Studio
from glasshead.studio.views import model as view
from glasshead.studio.views.model import WholeModel, mlps
from glasshead.tasks.write import Writer
from glasshead.watching import UnseenError
from pretrained_folders import llama_folder
from translated import translated

TEXT = "a big red dog saw a ball"


@pytest.fixture(scope="module")
def whole(folder):
    return WholeModel(Studio(folder))


def by_the_library(folder):
    writer = Writer.load(folder)
    tokens = torch.tensor(writer.tokenizer.encode(TEXT))
    with (
        torch.no_grad(),
        gh.watch(writer.model, keep="weights") as seen,
        gh.head_writes(writer.model) as writes,
    ):
        writer.model(tokens[None])
    return seen, writes


def test_norms_and_shares_are_those_of_head_writes(whole, folder):
    _, writes = by_the_library(folder)
    norm, share = whole.writes(TEXT, Work())
    calls = [call for calls in writes.values() for call in calls]
    torch.testing.assert_close(norm, torch.cat([call.norm[0] for call in calls]))
    torch.testing.assert_close(share, torch.cat([call.share[0] for call in calls]))
    assert (share < 0).any()


def test_reads_and_maps_are_the_weights_of_a_watch(whole, folder):
    seen, _ = by_the_library(folder)
    dense = torch.cat([layer[0].weights.dense()[0] for layer in seen.values()])
    for query in (0, 5):
        torch.testing.assert_close(whole.reads(TEXT, query, Work()), dense[:, query])
    torch.testing.assert_close(whole.map(TEXT, 1, 2, Work()), dense[5])
    # What the mask hides has a sign that no weight of 0 has.
    hidden = whole.map(TEXT, 0, 0, Work()).signbit()
    assert torch.equal(hidden, torch.ones_like(hidden).triu(1))


def test_the_model_is_told_by_its_layers(whole):
    told = whole.summary(TEXT, Work())
    assert (told["heads"], told["lit"], told["layers"]) == (
        [3, 3],
        "writes",
        ["blocks.0.attention", "blocks.1.attention"],
    )
    assert told["projections"] == ["blocks.0.attention.output", "blocks.1.attention.output"]
    assert told["mlps"] == [["blocks.0.feed_forward"], ["blocks.1.feed_forward"]]
    assert len(told["running"]) == len(told["tokens"]) == told["of"]
    # The first head writes much and looks sharply.
    norms = whole.writes(TEXT, Work())[0, :, -1]
    reads = whole.reads(TEXT, told["of"] - 1, Work())[:, 1:-2].amax(-1)
    layer, head = told["first"]
    assert 3 * layer + head == (norms * reads).argmax()


@pytest.mark.parametrize(
    ("build", "text"), [(classified, "good film"), (translated, "ich lese das buch")]
)
def test_classifiers_and_translators_are_shown_too(build, text, tmp_path):
    whole = WholeModel(Studio(build(tmp_path / "run").path))
    told = whole.summary(text, Work())
    writes = whole.writes(text, Work())
    assert writes.shape == (2, sum(told["heads"]), len(told["tokens"]))
    assert told["lit"] == "writes"
    assert writes.isfinite().all()
    assert all(told["mlps"])


def test_a_model_of_hugging_face_is_lit_by_its_own_projection(tmp_path):
    from transformers import AutoModelForCausalLM

    folder = llama_folder(tmp_path / "llama")
    whole = WholeModel(Studio(folder))
    told = whole.summary("the big dog", Work())
    assert told["projections"][1] == "model.layers.1.self_attn.o_proj"
    assert told["mlps"] == [["model.layers.0.mlp"], ["model.layers.1.mlp"]]
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    reading, _ = whole._pass("the big dog", Work())
    with torch.no_grad(), gh.head_writes(model) as writes:
        model(reading.tokens[None])
    expected = torch.cat([calls[0].norm[0] for calls in writes.values()])
    torch.testing.assert_close(whole.writes("the big dog", Work())[0], expected)


def test_writes_that_are_not_known_light_by_the_context(folder, monkeypatch):
    @contextmanager
    def unknown(model):
        yield {}
        raise UnseenError("the heads go elsewhere.")

    monkeypatch.setattr(gh, "head_writes", unknown)
    whole = WholeModel(Studio(folder))
    told = whole.summary(TEXT, Work())
    assert (told["lit"], told["projections"]) == ("context", [None, None])
    norm, share = whole.writes(TEXT, Work())
    assert share.isnan().all()
    reading, _ = whole._pass(TEXT, Work())
    model = Writer.load(folder).model
    with torch.inference_mode(), gh.watch(model, keep="context") as seen:
        model(reading.tokens[None])
    expected = torch.cat([layer.context[0].norm(dim=-1) for layer in seen.values()])
    torch.testing.assert_close(norm, expected)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2)
        self.norm = nn.LayerNorm(6)


def test_a_block_without_an_mlp_has_none():
    model = nn.Sequential(Block(), Block())
    assert mlps(model, "0.attention", "0.attention.out_proj") == []


def test_mlps_of_bert_stand_beside_its_attention():
    from transformers import BertConfig, BertModel

    small = {"hidden_size": 12, "num_attention_heads": 2, "intermediate_size": 7}
    model = BertModel(BertConfig(vocab_size=11, num_hidden_layers=2, **small))
    names = mlps(model, "encoder.layer.1.attention.self", "encoder.layer.1.attention.output.dense")
    assert names == ["encoder.layer.1.intermediate", "encoder.layer.1.output"]


def test_layers_that_share_a_module_are_told_apart():
    reading = type("Reading", (), {"layers": ("a.b", "a.c#0", "a.c#11")})
    assert view._calls(reading) == [("a.b", 0), ("a.c", 0), ("a.c", 11)]  # type: ignore[arg-type]


def test_what_is_not_to_be_had_is_refused_in_a_sentence(whole, folder):
    with pytest.raises(Refusal, match=r"Enter at least one word"):
        whole.summary(" \n", Work())
    with pytest.raises(Refusal, match=r"query must be from 0 to \d+, got 99"):
        whole.reads(TEXT, 99, Work())
    with pytest.raises(Refusal, match=r"head must be from 0 to 2, got 3"):
        whole.map(TEXT, 0, 3, Work())
    gone = Work()
    gone.cancel()
    with pytest.raises(Cancelled):
        WholeModel(Studio(folder)).summary(TEXT, gone)


def test_a_long_text_is_read_up_to_a_limit(folder):
    told = WholeModel(Studio(folder, Limits(prompt=5))).summary(TEXT, Work())
    assert (len(told["tokens"]), told["of"] > 5) == (5, True)


def test_the_routes_answer_and_refuse(folder):
    client = TestClient(application(Studio(folder)), base_url="http://localhost")
    told = client.get("/api/model", params={"text": TEXT}).json()
    length = len(told["tokens"])
    for path, params, shape in (
        ("writes", {}, f"2,6,{length}"),
        ("reads", {"query": 3}, f"6,{length}"),
        ("map", {"layer": 1, "head": 2}, f"{length},{length}"),
    ):
        found = client.get(f"/api/model/{path}", params={"text": TEXT, **params})
        assert (found.status_code, found.headers["shape"]) == (200, shape)
    refused = client.get("/api/model/reads", params={"text": TEXT, "query": 99})
    assert refused.status_code == 400
    assert client.get("/api/model/map", params={"text": TEXT, "layer": 0}).status_code == 422
    without = TestClient(application(Studio()), base_url="http://localhost")
    assert without.get("/api/model", params={"text": TEXT}).status_code == 404


def test_stored_weights_have_no_model():
    assert why_not("model", "weights") == why_not("model", None) == "model.none"
    assert first_view(Studio().subject, None) == "prompt"
