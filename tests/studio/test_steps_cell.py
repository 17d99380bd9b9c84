"""A query of a head of a model, worked out: each number is the model's own."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

import glasshead as gh
from glasshead.explanation.walk import SHOWN, head_trace, row_of
from glasshead.studio.background_jobs import Refusal, Work
from glasshead.studio.studio import Studio
from glasshead.studio.views import heads
from glasshead.studio.views.steps_cell import Cells
from pretrained_folders import TOKENS, llama_folder, tokenizer_files

TEXT = "ab abc a c b ab bc aa ca bab abc aab c b a a b c ab"
LAYER, HEAD, QUERY = 1, 2, 13


def gpt2_folder(folder):
    """A GPT-2 that nobody trained, sharper than at the beginning, with its tokenizer."""
    torch.manual_seed(11)
    config = GPT2Config(
        vocab_size=len(TOKENS) + 3, n_positions=67, n_embd=35, n_layer=2, n_head=5, eos_token_id=2
    )
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "c_attn" in name:
                parameter.mul_(17)
    model.save_pretrained(folder)
    tokenizer_files(folder, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    return folder


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def read(request, tmp_path_factory):
    """A folder of another's model, its reading of a text, and that model itself."""
    make = llama_folder if request.param == "llama" else gpt2_folder
    folder = make(tmp_path_factory.mktemp("models") / request.param)
    studio = Studio(folder)
    text = studio.texts.add(TEXT)
    reading = heads.reading_of(studio, text, Work())
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    return studio, text, reading, model


def test_the_numbers_are_those_of_the_model(read):
    studio, text, reading, model = read
    row = Cells(studio).row(text, LAYER, HEAD, QUERY, 0, Work())
    with torch.inference_mode():
        made = model(reading.tokens[None], output_attentions=True).attentions[LAYER][0, HEAD, QUERY]
    weights = torch.tensor(row["weights"])
    torch.testing.assert_close(weights, made, atol=1e-5, rtol=1e-4)
    assert row["hidden"] == reading.length - QUERY - 1
    with torch.inference_mode(), gh.watch(model, keep="context") as seen:
        model(reading.tokens[None])
    context = seen[reading.layers[LAYER]][0].context[0, HEAD, QUERY]
    torch.testing.assert_close(torch.tensor(row["context"]), context, atol=1e-4, rtol=1e-4)


def test_each_number_follows_from_those_before(read):
    studio, text, reading, _ = read
    row = Cells(studio).row(text, LAYER, HEAD, QUERY, 0, Work())
    places = [key["place"] for key in row["keys"]]
    assert 0 in places
    assert len(places) < reading.length
    dim = len(row["q"])
    assert row["beta"] == pytest.approx(dim**-0.5)
    for key in row["keys"]:
        score = sum(q * k for q, k in zip(row["q"], key["k"], strict=True))
        assert key["score"] == pytest.approx(score, abs=1e-3)
        assert key["scaled"] == pytest.approx(row["beta"] * key["score"], abs=1e-4)
        assert (key["masked"] is None) == (key["place"] > QUERY)
        if key["masked"] is None:
            assert key["weight"] == 0
        else:
            power = torch.tensor(key["masked"] - row["largest"], dtype=torch.float64).exp()
            assert key["weight"] == pytest.approx(float(power) / row["total"], abs=1e-6)
    rest = row["rest"]
    assert rest["count"] == reading.length - len(places)
    assert rest["weight"] + sum(key["weight"] for key in row["keys"]) == pytest.approx(1, abs=1e-5)
    for at, number in enumerate(row["context"]):
        shares = sum(key["weight"] * key["v"][at] for key in row["keys"])
        assert shares + rest["weight"] * rest["mean"][at] == pytest.approx(number, abs=1e-4)
    largest = torch.tensor(row["weights"]).topk(SHOWN).indices.tolist()
    assert set(largest) <= set(places)


@pytest.mark.parametrize("query", [0, QUERY])
def test_the_vectors_of_all_keys_make_the_weights(read, query):
    studio, text, reading, _ = read
    cells = Cells(studio)
    row = cells.row(text, LAYER, HEAD, query, None, Work())
    dim = len(row["q"])
    vectors = cells.vectors(text, LAYER, HEAD, query, Work())
    keys, values, bias = vectors.split([dim, len(row["context"]), 1], -1)
    assert len(keys) == reading.length
    assert bias[:, 0].isneginf().tolist() == [key > query for key in range(reading.length)]
    scores = keys @ torch.tensor(row["q"]) * row["beta"] + bias[:, 0]
    torch.testing.assert_close(scores.softmax(-1), torch.tensor(row["weights"]))
    torch.testing.assert_close(
        torch.tensor(row["weights"]) @ values, torch.tensor(row["context"]), atol=1e-5, rtol=1e-4
    )


def traced_head(attention, length=7, dim=5):
    torch.manual_seed(3)
    x = torch.randn(1, 2, length, dim)
    return head_trace(attention.trace(x, x.flip(-1), x), (0, 1))


@pytest.mark.parametrize(
    ("attention", "query", "changes"),
    [
        (gh.Attention(), 2, ["scaled"]),
        (gh.Attention(score=gh.Dot()), 2, []),
        (gh.Attention(mask=gh.causal()), 2, ["scaled", "masked"]),
        (gh.Attention(mask=gh.causal()), 6, ["scaled"]),
        (gh.Attention(softcap=3.0), 2, ["scaled", "capped"]),
        (gh.Attention(bias=gh.ALiBi(2)), 2, ["scaled", "biased"]),
        # Of the first query, the only key that is seen has a bias of 0.
        (gh.Attention(bias=gh.ALiBi(2), mask=gh.causal()), 0, ["scaled", "masked"]),
    ],
)
def test_steps_without_effect_are_known(attention, query, changes):
    words = list("abcdefg")
    assert row_of(traced_head(attention), words[query], words, query)["changes"] == changes


def test_a_llama_shows_rotated_queries_and_its_shared_key_head(tmp_path):
    studio = Studio(llama_folder(tmp_path / "model"))
    text = studio.texts.add("ab abc a c b")
    row = Cells(studio).row(text, 0, 2, None, None, Work())
    assert row["key_head"] == [0, 1]
    assert row["query"] == len(row["tokens"]) - 1
    model = studio.subject.reader().model
    captured = {}
    reading = heads.reading_of(studio, text, Work())
    attention = model.get_submodule(reading.layers[0])
    projection = attention.get_submodule("q_proj")
    hook = projection.register_forward_hook(
        lambda _, given, made: captured.update(raw=made.detach())
    )
    with torch.inference_mode():
        studio.subject.reader().read(reading.tokens[None])
    hook.remove()
    raw = captured["raw"][0].unflatten(-1, (3, -1))[-1, 2]
    rotated = torch.tensor(row["q"])
    assert not torch.allclose(rotated, raw, atol=1e-3)
    # A rotation keeps the length.
    torch.testing.assert_close(rotated.norm(), raw.norm(), atol=1e-4, rtol=1e-4)


def test_a_run_of_the_library_is_worked_out_too(folder):
    studio = Studio(folder)
    text = studio.texts.add("Once upon a time Tom saw a big red ball and a dog.")
    row = Cells(studio).row(text, 1, 2, 7, 3, Work())
    reading = heads.reading_of(studio, text, Work())
    expected = heads.whole_map(reading, 1, 2)[7].abs()
    torch.testing.assert_close(torch.tensor(row["weights"]), expected, atol=1e-6, rtol=1e-5)
    json.dumps(row, allow_nan=False)


@pytest.mark.parametrize(
    ("place", "what"),
    [
        ((9, 0, 0, 0), "layer"),
        ((0, 9, 0, 0), "head"),
        ((0, 0, 99, 0), "query"),
        ((0, 0, 0, 99), "key"),
    ],
)
def test_what_is_not_there_is_refused(read, place, what):
    studio, text, _, _ = read
    layer, head, query, key = place
    with pytest.raises(Refusal, match=f"{what} must be from 0 to"):
        Cells(studio).row(text, layer, head, query, key, Work())
