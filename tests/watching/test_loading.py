"""`gh.load`: one reader for whatever is saved, and the right reader named where it is another's."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import glasshead as gh
from glasshead.models.saving import write_weights

LAYERS, HEADS, TOKENS = 2, 3, 7
READERS = {
    "Observation": gh.Observation,
    "Weights": gh.Weights,
    "JoinedWeights": gh.JoinedWeights,
    "Seen": gh.Seen,
    "CorpusResult": gh.CorpusResult,
}


@pytest.fixture
def saved(tmp_path):
    """A file of each kind, by the class that reads it."""
    torch.manual_seed(11)
    files = {name: tmp_path / f"{name}.safetensors" for name in READERS}
    x, attention = torch.randn(5, 3), gh.Attention(mask=gh.causal())
    attention.observe(x, x, x, [gh.Entropy(), gh.TopK(2)]).save(files["Observation"])
    W = attention.weights(x, x)
    W.save(files["Weights"])
    gh.JoinedWeights([W, W], [0, 3]).save(files["JoinedWeights"])
    seen, result = watched()
    seen.save(files["Seen"])
    result.save(files["CorpusResult"])
    return files


def watched():
    sizes = {"vocab_size": 13, "d_model": 12, "num_heads": HEADS, "num_layers": LAYERS}
    model = gh.LanguageModel(gh.LanguageModelConfig(**sizes)).eval()
    corpus = gh.CorpusStatistics([gh.Entropy(), gh.Received()], positions=TOKENS)
    with torch.no_grad(), gh.watch(model, corpus.statistics) as seen:
        model(torch.randint(13, (1, TOKENS)))
    corpus.update(seen)
    return seen, corpus.compute()


@pytest.mark.parametrize("name", READERS)
def test_one_function_reads_each_kind_as_its_own_class(saved, name):
    found, own = gh.load(str(saved[name])), READERS[name].load(saved[name])
    assert type(found) is type(own) is READERS[name]
    assert repr(found) == repr(own)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", READERS)
def test_another_kind_names_the_class_that_reads_it(saved, kind, reader):
    if kind == reader:
        return
    with pytest.raises(ValueError, match=rf"must hold the kind .*\. Load it with gh\.{kind}\."):
        READERS[reader].load(saved[kind])


@pytest.mark.parametrize("kind", ["pickle", 3, ["observation"], None, "a\nb"])
@pytest.mark.parametrize("load", [gh.load, *(reader.load for reader in READERS.values())])
def test_a_kind_that_nobody_knows_is_refused(tmp_path, kind, load):
    file = tmp_path / "file.safetensors"
    told = json.dumps({"kind": kind, "version": 1})
    save_file({"x": torch.ones(3)}, file, metadata={"glasshead": told})
    with pytest.raises(ValueError, match=r"got a kind that this glasshead does not know\. Update"):
        load(file)


def test_what_glasshead_has_not_saved_is_refused(tmp_path):
    save_file({"x": torch.ones(3)}, tmp_path / "other.safetensors")
    with pytest.raises(
        ValueError, match="must hold something that glasshead saved, got a file without"
    ):
        gh.load(tmp_path / "other.safetensors")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*\. Check its name"):
        gh.load(tmp_path / "none.safetensors")
    (tmp_path / "text.safetensors").write_text("text")
    with pytest.raises(ValueError, match="is not a safetensors file"):
        gh.load(tmp_path / "text.safetensors")


def test_the_parameters_of_a_model_send_to_its_folder(tmp_path):
    write_weights(torch.nn.Linear(3, 5), tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"holds the parameters of a model, without its config\. "):
        gh.load(tmp_path / "model.safetensors")


def test_a_statistic_is_had_as_of_what_was_seen():
    seen, result = watched()
    for layer in seen:
        of_seen, of_corpus = seen[layer], result[layer]
        mean = of_seen.entropy.double().mean((0, 2))
        for entropy in (of_corpus.entropy, of_corpus["entropy"], of_corpus[gh.Entropy()]):
            torch.testing.assert_close(entropy, mean)
        assert torch.equal(of_corpus[gh.Received()], of_corpus.received)
        torch.testing.assert_close(of_corpus.received, of_seen.received[0].double())
        assert {"entropy", "received"} <= set(dir(of_corpus))
        with pytest.raises(AttributeError, match=r"'max_score' was not requested\. Use one of e"):
            _ = of_corpus.max_score
        with pytest.raises(
            KeyError, match=r"MaxScore.* was not requested\. Use one of entropy, received"
        ):
            _ = of_corpus[gh.MaxScore()]


def test_tokens_and_source_are_kept_and_stand_beside_what_they_received(tmp_path):
    _, result = watched()
    words = [f"word {place}" for place in range(TOKENS)]
    values = {layer: dict(result[layer]) for layer in result}
    source = {"text": "a.txt", "length": TOKENS}
    told = gh.CorpusResult(values, result.statistics, 1, tokens=words, source=source)
    told.save(tmp_path / "told.safetensors")
    back = gh.load(tmp_path / "told.safetensors")
    assert (back.tokens, back.source, back.documents) == (tuple(words), source, 1)
    frame = back.to_frame("received")
    assert list(frame.columns) == ["token", "received"]
    assert len(frame) == LAYERS * HEADS * TOKENS
    for (layer, head, key), row in frame.iterrows():
        assert row.token == words[key]
        assert row.received == result[layer].received[head, key]
    assert "token" not in back.to_frame()
    # Positions that several pieces share are no tokens.
    longer = gh.CorpusResult(values, result.statistics, 2, tokens=words * 2)
    assert "token" not in longer.to_frame("received")


@pytest.mark.parametrize(
    "change",
    [
        {"documents": 1e999},
        {"documents": "many"},
        {"written_tokens": "abc"},
        {"written_tokens": [1, 2]},
        {"statistics": [1]},
        {"layers": ["other"]},
        {"layers": None},
        {"source": [1]},
    ],
)
def test_a_result_that_was_tampered_with_is_refused(saved, change):
    file = saved["CorpusResult"]
    with safe_open(file, "pt") as opened:
        told = json.loads(opened.metadata()["glasshead"])
    tensors = load_file(file)
    save_file(tensors, file, metadata={"glasshead": json.dumps(told | change)})
    for load in (gh.load, gh.CorpusResult.load):
        with pytest.raises(ValueError, match="description of statistics of a corpus that cannot"):
            load(file)
