"""Weights come back as they were; what does not fit is named, and changes nothing.

Generation with a cache that lets go of keys.
The embedding and its slots, and what a classifier makes of them.
"""

import copy
import pickle

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import glasshead as gh
from glasshead.models.decoding import Beam, Greedy, generate
from glasshead.models.language_model import LanguageModelSteps
from glasshead.models.layer_factory import Embedding
from glasshead.models.saving import read_weights, write_weights

MODELS = {
    "tied": lambda: gh.LanguageModel(gh.LanguageModelConfig(vocab_size=11, **SIZES)),
    "untied": lambda: gh.LanguageModel(gh.LanguageModelConfig(vocab_size=11, tied=False, **SIZES)),
    "translator": lambda: gh.Translator(gh.TranslatorConfig(vocab_size=11, **SIZES)),
    "classifier": lambda: gh.Classifier(gh.ClassifierConfig(vocab_size=11, **SIZES)),
    "turned": lambda: gh.LanguageModel(
        gh.LanguageModelConfig(vocab_size=11, positions="rotary", **SIZES)
    ),
}


SIZES = {"d_model": 12, "num_heads": 3, "num_layers": 2, "context_length": 7}


OUTPUT = "blocks.1.attention.output.weight"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "model.safetensors"


def changed(path, change):
    """The file with other tensors, by the same program."""
    with safe_open(path, framework="pt") as opened:
        told = opened.metadata()
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata=told)


def assert_refused(model, file, sentence, error=ValueError):
    """One sentence, and the model is as it was."""
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(error, match=sentence) as raised:
        read_weights(model, file)
    assert "\n" not in str(raised.value)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
class TestRoundTrip:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
    def test_comes_back_bit_for_bit(self, build, dtype, file):
        model, other = build().to(dtype), build().to(dtype)
        write_weights(model, file)
        read_weights(other, file)
        states = model.state_dict(), other.state_dict()
        assert list(states[0]) == list(states[1])
        for mine, theirs in zip(*(state.values() for state in states), strict=True):
            assert mine.dtype == theirs.dtype
            assert torch.equal(mine, theirs)

    def test_every_number_is_in_the_file_once(self, build, file):
        model = build()
        write_weights(model, file)
        count = sum(x.numel() for x in load_file(file).values())
        assert count == sum(p.numel() for p in model.parameters())
        assert file.stat().st_size < 4 * count + 10_000


def test_a_frozen_model_and_one_in_use_can_be_saved(file):
    model, tokens = MODELS["turned"](), torch.tensor([[3, 1, 4]])
    model(tokens).sum().backward()
    write_weights(model.requires_grad_(False), file)
    other = MODELS["turned"]().eval()
    read_weights(other, file)
    assert torch.equal(other(tokens), model.eval()(tokens))
    assert all(parameter.requires_grad for parameter in other.parameters())


class TestWhatDoesNotFit:
    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            (lambda tensors: tensors.pop(OUTPUT), rf"fit the model: it lacks {OUTPUT}\. Use the"),
            (lambda tensors: tensors.update(own=torch.ones(3)), "it has besides own. Use the"),
            (
                lambda tensors: tensors.update(own=tensors.pop(OUTPUT)),
                rf"it lacks {OUTPUT} and has besides own\. Use the weights",
            ),
            (
                lambda tensors: tensors.update({OUTPUT: torch.ones(12, 11)}),
                rf"{OUTPUT} must be \[12, 12\], got \[12, 11\]\. Use the",
            ),
            (
                lambda tensors: tensors[OUTPUT][3].fill_(torch.nan),
                rf"must be finite, got NaN or infinity in {OUTPUT}\. Train the model again",
            ),
            (lambda tensors: tensors[OUTPUT][3].fill_(torch.inf), "got NaN or infinity"),
            (
                lambda tensors: tensors.update({"a\x1b[31m": torch.ones(1)}),
                r"besides a\\x1b\[31m\.",
            ),
        ],
        ids=["missing", "surplus", "renamed", "shape", "NaN", "infinity", "a name that steers"],
    )
    def test_is_named(self, file, change, sentence):
        write_weights(MODELS["tied"](), file)
        changed(file, change)
        assert_refused(MODELS["tied"](), file, sentence)

    def test_many_names_are_counted(self, file):
        write_weights(MODELS["classifier"](), file)
        assert_refused(MODELS["translator"](), file, r"lacks .*, .*, .* and \d+ more and has")

    def test_a_vocabulary_of_another_size(self, file):
        write_weights(MODELS["tied"](), file)
        other = gh.LanguageModel(gh.LanguageModelConfig(vocab_size=13, **SIZES))
        sentence = r"embedding.tokens.weight must be \[13, 12\].*tokenizer"
        assert_refused(other, file, sentence)


class TestFiles:
    @pytest.mark.parametrize("content", [b"", b"weights", pickle.dumps({"a": 1})])
    def test_of_another_kind(self, file, content):
        file.write_bytes(content)
        assert_refused(MODELS["tied"](), file, "is not a safetensors file")

    @pytest.mark.parametrize("part", [0.999, 0.5, 0.01])
    def test_that_were_cut_off(self, file, part):
        write_weights(MODELS["tied"](), file)
        content = file.read_bytes()
        file.write_bytes(content[: int(part * len(content))])
        assert_refused(MODELS["tied"](), file, "is not a safetensors file")

    def test_of_another_program_or_purpose(self, file):
        save_file({"a": torch.ones(3)}, file)
        assert_refused(MODELS["tied"](), file, "must hold the kind 'weights', got a file without")
        x = torch.randn(5, 3)
        gh.Attention().observe(x, x, x, [gh.Entropy()]).save(file)
        assert_refused(
            MODELS["tied"](), file, "must hold the kind 'weights', got the kind 'observation'"
        )

    def test_that_are_not_there(self, tmp_path):
        model = MODELS["tied"]()
        assert_refused(model, tmp_path / "none", "there is no file .*none", FileNotFoundError)
        assert_refused(model, tmp_path, r"is a folder\. Name a file in it", IsADirectoryError)
        with pytest.raises(FileNotFoundError, match=r"there is no folder .*none\. Create it first"):
            write_weights(model, tmp_path / "none" / "model.safetensors")
        with pytest.raises(IsADirectoryError, match=r"is a folder\. Name a file in it"):
            write_weights(model, tmp_path)

    def test_a_full_disk_leaves_the_older_file(self, file, monkeypatch):
        model = MODELS["tied"]()
        write_weights(model, file)

        def half(tensors, path, metadata):
            del tensors, metadata
            path.write_bytes(b"half")
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr("glasshead.attention.io.save_file", half)
            with pytest.raises(OSError, match="cannot be written .No space left on device.. Name"):
                write_weights(MODELS["tied"](), file)
        assert list(file.parent.iterdir()) == [file]
        back = MODELS["tied"]()
        read_weights(back, file)
        assert torch.equal(back.get_parameter(OUTPUT), model.get_parameter(OUTPUT))


VOCABULARY, LENGTH, NEW = 11, 19, 23


def model_of(**settings):
    torch.manual_seed(0)
    sizes = {"d_model": 12, "num_heads": 6, "num_kv_heads": 2, "num_layers": 2}
    config = gh.LanguageModelConfig(
        vocab_size=VOCABULARY, context_length=61, **sizes, positions="rotary", **settings
    )
    return gh.LanguageModel(config).eval()


def text(model, strategy=None, tokens=NEW, **asked):
    torch.manual_seed(1)
    prompt = torch.randint(VOCABULARY, (2, LENGTH))
    steps = LanguageModelSteps(model, **asked)
    return generate(steps, prompt, strategy or Greedy(), max_tokens=tokens).tokens


@pytest.mark.parametrize("strategy", [Greedy(), Beam(3)], ids=["greedy", "beam"])
@pytest.mark.parametrize("policy", [gh.H2O(50), gh.SnapKV(50), gh.TOVA(50), gh.Sinks(4, 46)])
def test_a_budget_that_is_not_reached_writes_the_same(policy, strategy):
    model = model_of()
    assert text(model, strategy, policy=policy) == text(model, strategy)


@pytest.mark.parametrize("policy", [gh.H2O(7), gh.SnapKV(7, 3), gh.TOVA(7), gh.Sinks(2, 5)])
def test_generation_goes_on_beyond_the_budget_and_the_context(policy):
    written = text(model_of(), tokens=70, policy=policy)
    assert [len(row) for row in written] == [70, 70]


def test_sinks_of_a_window_model_that_hold_its_window_write_the_same():
    model = model_of(window=6)
    assert text(model, policy=gh.Sinks(1, 5)) == text(model)


@pytest.mark.parametrize("policy", [None, gh.TOVA(5)])
def test_a_translator_keeps_its_source(policy):
    config = gh.TranslatorConfig(vocab_size=VOCABULARY, d_model=12, num_heads=3, num_layers=2)
    model, lengths = gh.Translator(config).eval(), torch.tensor([13, 7])
    cache, memory = model.new_cache(policy), model.encode(torch.ones(2, 13).long(), lengths)
    for token in torch.randint(VOCABULARY, (2, 9)).split(1, 1):
        model.decode(token, memory, lengths, cache=cache)
    assert [one.count for one in cache.crossed.values()] == [13, 13]
    assert [one.count for one in cache.own.values()] == [5 if policy else 9] * 2


def test_steps_take_padding_as_a_list_and_refuse_other_rows():
    model, prompt = model_of(), torch.randint(VOCABULARY, (2, 7))
    found = model.steps(padding=[0, 3]).next(prompt)
    steps = model.steps(padding=torch.tensor([0, 3]))
    assert torch.equal(found, steps.next(prompt))
    with pytest.raises(
        ValueError, match=r"this cache needs batches of 2 rows, got 1\. Create a new"
    ):
        steps.next(prompt[:1])


WORDS, TOKENS, D_MODEL = 13, 11, 29


WHERE = torch.arange(TOKENS)


def texts(*shape):
    return torch.randint(WORDS, shape)


def test_is_the_norm_of_words_and_positions():
    norm = nn.LayerNorm(D_MODEL, eps=1e-3)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    embedding = Embedding(WORDS, D_MODEL, gh.Sinusoidal(D_MODEL), scale=3.0, norm=norm)
    tokens = texts(5, TOKENS)
    rows = 3.0 * embedding.tokens.weight[tokens] + gh.Sinusoidal(D_MODEL)(WHERE)
    mean, variance = rows.mean(-1, keepdim=True), rows.var(-1, correction=0, keepdim=True)
    expected = (rows - mean) / (variance + 1e-3).sqrt() * norm.weight + norm.bias
    torch.testing.assert_close(embedding(tokens, WHERE), expected)


@pytest.mark.parametrize(("given", "own"), [(None, 0.125), (0.375, 0.375), (0.0, 0.0)])
def test_what_a_classifier_drops_of_its_embedding(given, own):
    config = gh.ClassifierConfig(
        vocab_size=WORDS,
        d_model=12,
        num_heads=3,
        dropout=0.125,
        embedding_dropout=given,
    )
    model = gh.Classifier(config)
    assert model.embedding.dropout.p == own
    block = model.blocks[0]
    assert {block.around_attention.dropout.p, block.around_feed_forward.dropout.p} == {0.125}


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_a_classifiers_embedding_has_the_models_norm_or_none(norm):
    def model(**given):
        config = gh.ClassifierConfig(vocab_size=WORDS, d_model=12, num_heads=3, norm=norm, **given)
        return gh.Classifier(config).eval()

    tokens, where = texts(5, 7), WHERE[:7]
    normed = model(embedding_norm=True)
    assert type(normed.embedding.norm) is {"layer": nn.LayerNorm, "rms": nn.RMSNorm}[norm]
    power = normed.embedding(tokens, where).square().mean(-1)
    torch.testing.assert_close(power, torch.ones(5, 7), rtol=0.1, atol=0)
    assert model().embedding.norm is None


def linears(model):
    return [module for module in model.modules() if isinstance(module, nn.Linear)]


def test_a_classifier_begins_with_small_weights_or_as_pytorchs_layers():
    def model(**given):
        torch.manual_seed(5)
        sizes = {"vocab_size": WORDS, "d_model": 64, "positions": "none"}
        return gh.Classifier(gh.ClassifierConfig(**sizes, **given))

    torch.manual_seed(5)
    table = nn.Embedding(WORDS, 64).weight
    begun = model(initial="torch")
    assert torch.equal(begun.embedding.tokens.weight, table)
    for linear in linears(begun):
        bound = linear.in_features**-0.5
        assert 0.9 * bound < linear.weight.abs().max() <= bound
        assert linear.bias.any()
    small = model()
    assert 0.015 < small.embedding.tokens.weight.std() < 0.025
    assert all(linear.weight.std() < 0.025 for linear in linears(small))
    assert not any(linear.bias.any() for linear in linears(small))
