"""`gh.observe_texts` and `gh.find_roles`: what they take, return and refuse."""

from pathlib import Path

import pytest
import torch
from torch import nn

import glasshead as gh
from glasshead.tasks.tokenizers import words

CONTEXT, LAYERS, HEADS = 7, 2, 3
TEXTS = ["the cat sat on the mat and the dog sat on the cat", "a dog and a cat"]
STATISTICS = {"entropy": gh.Entropy(), "received": gh.Received(), "sink": gh.MassOn([0])}
TOKENIZER = words(TEXTS, vocab_size=17)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(3)
    config = gh.LanguageModelConfig(
        vocab_size=17, d_model=12, num_heads=HEADS, num_layers=LAYERS, context_length=CONTEXT
    )
    model = gh.LanguageModel(config).eval()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model


@pytest.fixture
def observed(model):
    def run(texts, statistics=STATISTICS, **options):
        return gh.observe_texts(model, texts, statistics, tokenizer=TOKENIZER, **options)

    return run


def same(found, expected):
    assert list(found) == list(expected)
    for layer in expected:
        assert list(found[layer]) == list(expected[layer])
        for name, value in expected[layer].items():
            torch.testing.assert_close(found[layer][name], value, atol=1e-9, rtol=1e-6)


def by_hand(model, chunks):
    """Each chunk alone; by position count those that are as long as the first."""
    whole = gh.CorpusStatistics({n: STATISTICS[n] for n in ("entropy", "sink")}, positions=CONTEXT)
    full = gh.CorpusStatistics({"received": STATISTICS["received"]}, positions=CONTEXT)
    for chunk in chunks:
        statistics = whole.statistics | full.statistics
        with torch.inference_mode(), gh.watch(model, statistics) as seen:
            model(torch.tensor([chunk]))
        whole.update(seen)
        if len(chunk) == len(chunks[0]):
            full.update(seen)
    first, second = whole.compute(), full.compute()
    return {
        layer: {
            "entropy": first[layer]["entropy"],
            "received": second[layer]["received"],
            "sink": first[layer]["sink"],
        }
        for layer in first
    }


@pytest.mark.parametrize("length", [None, 3])
def test_texts_are_read_one_after_another_in_chunks(model, observed, length):
    tokens = [token for text in TEXTS for token in (*TOKENIZER.encode(text), TOKENIZER.end_id)]
    size = length or CONTEXT
    chunks = [tokens[at : at + size] for at in range(0, len(tokens), size)]
    found = observed(TEXTS, length=length)
    same(found, by_hand(model, chunks))
    assert found.documents == found.source["pieces"] == len(chunks)
    assert found.source == {
        "model": "LanguageModel",
        "text": "2 texts",
        "tokens": len(tokens),
        "pieces": len(chunks),
        "length": size,
        "cut": {"texts": 0, "tokens": 0},
    }
    assert found.tokens is None


def test_a_text_is_read_whole_and_its_tokens_are_kept(model, observed):
    text = "the dog sat"
    found = observed(text, length="whole")
    same(found, by_hand(model, [TOKENIZER.encode(text)]))
    assert found.tokens == tuple(map(TOKENIZER.token, TOKENIZER.encode(text)))
    assert found.to_frame("received")["token"].tolist()[:3] == list(found.tokens)


def test_files_folders_and_strings_are_texts_alike(observed, tmp_path):
    (tmp_path / "first.txt").write_text(TEXTS[0])
    (tmp_path / "second.txt").write_text(TEXTS[1])
    expected = observed(TEXTS)
    files = [tmp_path / "first.txt", tmp_path / "second.txt"]
    for texts in (iter(TEXTS), tmp_path, files, [files[0], TEXTS[1]]):
        same(observed(texts), expected)
    assert observed(tmp_path).source["text"] == str(tmp_path)


def test_a_result_is_saved_and_loaded(observed, tmp_path):
    found = observed(TEXTS[:1])
    found.save(tmp_path / "seen.safetensors")
    loaded = gh.load(tmp_path / "seen.safetensors")
    same(loaded, found)
    assert (loaded.source, loaded.tokens) == (found.source, found.tokens)


def test_whole_texts_are_cut_where_that_is_asked_for(observed):
    with pytest.raises(ValueError, match=r"Add truncate=True, which cuts 1 of 2 .* length=7"):
        observed(TEXTS, length="whole")
    found = observed(TEXTS, length="whole", truncate=True)
    assert found.source["cut"] == {"texts": 1, "tokens": len(TOKENIZER.encode(TEXTS[0])) - CONTEXT}


def test_any_module_that_takes_tokens_is_read():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.attend = nn.Embedding(17, 12), gh.MultiHeadAttention(12, HEADS)

        def forward(self, tokens):
            return self.attend(self.embed(tokens))

    found = gh.observe_texts(Model(), TEXTS, [gh.Entropy()], tokenizer=TOKENIZER)
    assert list(found) == ["attend"]
    assert found.source["length"] == found.source["tokens"]


def test_progress_ends_with_all_tokens(observed):
    told = []
    found = observed(TEXTS, length=3, progress=lambda *numbers: told.append(numbers))
    assert told[-1] == (found.source["tokens"],) * 2
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_the_model_keeps_no_hook_where_progress_fails(model, observed):
    def fail(done, of):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        observed(TEXTS, progress=fail)
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("given", "error", "sentence"),
    [
        ({"statistics": []}, ValueError, "observe_texts needs statistics such as"),
        ({"statistics": [gh.TopK(2)]}, ValueError, "a corpus needs statistics that add up"),
        ({"texts": []}, ValueError, "texts must have at least one text, or the Path of a"),
        ({"texts": [" ", ""]}, ValueError, "2 texts has no text in it. Give some with a word"),
        ({"texts": [3]}, TypeError, "texts must be strings, or Paths of files, got int"),
        ({"texts": None}, TypeError, "texts must be one text or several, .* got NoneType"),
        ({"texts": Path("none.txt")}, OSError, "there is no file none.txt"),
        ({"texts": __file__}, ValueError, r"which names a file\. Pass Path\("),
        ({"tokenizer": None}, TypeError, "tokenizer must be a tokenizer"),
        ({"tokenizer": str}, TypeError, "Pass the one that LanguageModel was trained with"),
        (
            {"model": 5},
            TypeError,
            "model must be a torch.nn.Module, or the folder of one, got int",
        ),
        ({"model": "folder"}, ValueError, "the folder folder has a tokenizer of its own"),
        ({"length": 0}, ValueError, "length must be"),
        ({"length": "all"}, TypeError, "length must be"),
        (
            {"truncate": True},
            ValueError,
            "truncate=True needs texts that are read whole. Add length='whole', or omit it",
        ),
        ({"length": 99}, ValueError, "Use length=7, or another up to 7"),
    ],
)
def test_what_does_not_fit_is_refused(model, given, error, sentence):
    default = {"model": model, "texts": TEXTS, "statistics": STATISTICS, "tokenizer": TOKENIZER}
    with pytest.raises(error, match=sentence):
        gh.observe_texts(**default | given)


def test_roles_of_a_text_are_those_of_its_tokens(model):
    tokens = torch.tensor([TOKENIZER.encode(TEXTS[1])])
    found = gh.find_roles(model, TEXTS[1], tokenizer=TOKENIZER, near=2, thresholds={"first": 0.2})
    right = gh.head_roles(model, tokens, near=2, thresholds={"first": 0.2})
    assert found.roles == right.roles
    for role, scores in right.scores.items():
        torch.testing.assert_close(found.scores[role], scores, equal_nan=True)


def test_roles_on_random_tokens_follow_from_the_seed(model):
    one, again, other = (
        gh.find_roles(model, tokenizer=TOKENIZER, period=3, seed=seed) for seed in (1, 1, 2)
    )
    assert torch.equal(one.scores["first"], again.scores["first"])
    assert not torch.equal(one.scores["first"], other.scores["first"])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"period": 1}, "period must be"),
        ({"texts": TEXTS, "period": 3}, "period needs random tokens, got texts. Omit"),
        ({"length": 5}, "length needs texts to cut into chunks, got none. Pass"),
        ({"period": 5}, "period must be at most 3, as"),
        ({"texts": "cat"}, "least 3 tokens to find roles, got 1 in"),
        ({"thresholds": {"last": 0.5}}, "a role must be one of"),
    ],
)
def test_roles_that_cannot_be_found_are_refused(model, given, sentence):
    with pytest.raises(ValueError, match=sentence):
        gh.find_roles(model, tokenizer=TOKENIZER, **given)


def test_the_tokenizer_of_a_larger_model_is_refused():
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=5,
        hidden_size=12,
        intermediate_size=7,
        num_hidden_layers=1,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=TOKENIZER.inner, eos_token="<|end|>"
    )
    model = transformers.LlamaForCausalLM(config).eval()
    for call in (
        lambda: gh.observe_texts(model, TEXTS, STATISTICS, tokenizer=tokenizer),
        lambda: gh.find_roles(model, tokenizer=tokenizer),
    ):
        with pytest.raises(ValueError, match="must be from 0 to 4, got 12 from its tokenizer"):
            call()


def test_a_tokenizer_of_transformers_leaves_a_language_model_its_own_context(model):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=TOKENIZER.inner, eos_token="<|end|>", model_max_length=1000
    )
    found = gh.observe_texts(model, TEXTS, STATISTICS, tokenizer=theirs)
    assert found.source["length"] == CONTEXT


class Killed(BaseException):
    """In place of a signal."""


@pytest.fixture
def interrupted(observed, monkeypatch, tmp_path):
    """Read some batches of two chunks, keep the sums after each, and be killed."""
    from glasshead.tasks.readers import observe_texts, text_stream

    monkeypatch.setattr(observe_texts, "_EVERY", 0.0)
    monkeypatch.setattr(text_stream, "_TOKENS_AT_ONCE", 2 * CONTEXT)
    partial = tmp_path / "made" / "observed.partial"

    def run(texts, tokens, **options):
        def progress(read, of):
            assert of > tokens
            if read >= tokens:
                raise Killed

        with pytest.raises(Killed):
            observed(texts, progress=progress, partial=partial, **options)
        return partial

    return run


@pytest.mark.parametrize("tokens", [2 * CONTEXT, 2 * CONTEXT + 1, 6 * CONTEXT, 8 * CONTEXT + 1])
@pytest.mark.parametrize("length", [None, "whole"])
def test_an_interrupted_run_goes_on_with_the_same_bits(observed, interrupted, tokens, length):
    texts = [
        " ".join(words) for n in (3, 7, 5) for words in [("the cat and a dog sat " * n).split()]
    ]
    texts = (
        [text[: len(text) // 3 * 3] for text in texts] * 3
        if length is None
        else ["the cat sat", "a dog", "the mat and a cat sat on", *["the dog sat on a mat"] * 17]
    )
    expected = observed(texts, length=length)
    partial = interrupted(texts, tokens, length=length)
    # Killed once more, before it has read a whole batch.
    if partial.exists():
        interrupted(texts, tokens + 1, length=length)
    reported = []
    found = observed(
        texts, length=length, partial=partial, progress=lambda *numbers: reported.append(numbers)
    )
    for layer in expected:
        for name, value in expected[layer].items():
            assert torch.equal(found[layer][name], value)
    assert found.documents == expected.documents
    assert found.source == expected.source
    assert reported[0][0] >= tokens - 2 * CONTEXT
    assert not list(partial.parent.glob("*"))


def test_what_was_kept_of_other_inputs_is_refused(observed, interrupted, model):
    text = " ".join(TEXTS * 7)
    partial = interrupted(text, 5 * CONTEXT)
    kept = partial.read_bytes()
    begun = r"observed\.partial holds the sums of a run with another {}\. Read what it began with"
    with pytest.raises(ValueError, match=begun.format("text or length")):
        observed(text + " cat", partial=partial)
    with pytest.raises(ValueError, match=begun.format("text or length")):
        observed(text, length=5, partial=partial)
    with pytest.raises(ValueError, match=begun.format("set of statistics")):
        observed(text, {"entropy": gh.Entropy()}, partial=partial)
    weight = model.blocks[1].attention.output.weight
    before = weight.data.clone()
    weight.data += 1e-6
    try:
        with pytest.raises(ValueError, match=begun.format("model")):
            observed(text, partial=partial)
    finally:
        weight.data = before
    assert partial.read_bytes() == kept
    partial.write_bytes(kept[:100])
    with pytest.raises(ValueError, match="is not a safetensors file"):
        observed(text, partial=partial)


def test_a_partial_file_without_its_sums_is_refused(observed, interrupted):
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    text = " ".join(TEXTS * 7)
    partial = interrupted(text, 5 * CONTEXT)
    with safe_open(partial, "pt") as opened:
        metadata = opened.metadata()
    sums = load_file(partial)
    del sums["all.layout"]
    save_file(sums, partial, metadata)
    with pytest.raises(ValueError, match="partial statistics of a model that cannot be read"):
        observed(text, partial=partial)
