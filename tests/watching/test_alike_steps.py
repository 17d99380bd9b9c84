"""Layers of a step with equal arguments are observed as each would be by itself."""

import gc
import weakref

import pytest
import torch

import glasshead as gh
from glasshead.watching.alike_steps import AlikeSteps, _ModuleFingerprint, fingerprint_of, matches
from glasshead.watching.module_calls import ModuleCall
from glasshead.watching.recorded_call import CallInfo
from glasshead.watching.sequences import SequenceLedger
from glasshead.watching.watcher import Watcher

transformers = pytest.importorskip("transformers")

LAYERS, TOLD, NEW = 3, 7, 5
STATISTICS = [gh.Entropy(), gh.Received(), gh.MassOn([0]), gh.MaxWeight()]
SIZES = {
    "vocab_size": 53,
    "hidden_size": 24,
    "intermediate_size": 29,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "pad_token_id": 0,
}


def llama(**options):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZES, **options)
    return transformers.LlamaForCausalLM(config).eval()


def gemma2():
    """Layers with a window of 5 keys and a softcap, and full ones, in turn."""
    torch.manual_seed(0)
    config = transformers.Gemma2Config(**SIZES, sliding_window=5)
    return transformers.Gemma2ForCausalLM(config).eval()


def gpt2():
    """Layers whose scores are divided by their number."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=53,
        n_embd=24,
        n_layer=LAYERS,
        n_head=4,
        n_positions=31,
        scale_attn_by_inverse_layer_idx=True,
    )
    return transformers.GPT2LMHeadModel(config).eval()


def written(model, *, rows=2, **options):
    """What is seen while a batch of two texts is continued, of which the second is padded."""
    torch.manual_seed(1)
    tokens = torch.randint(1, 53, (rows, TOLD))
    real = torch.ones_like(tokens)
    real[1:, :2] = 0
    with gh.watch(model, STATISTICS, **options) as seen:
        model.generate(
            tokens,
            attention_mask=real,
            max_new_tokens=NEW,
            min_new_tokens=NEW,
            do_sample=False,
            pad_token_id=0,
        )
    return seen


def assert_same(found, expected):
    assert list(found) == list(expected)
    for name in expected:
        assert len(found[name]) == len(expected[name])
        for ours, theirs in zip(found[name], expected[name], strict=True):
            for field in CallInfo._fields:
                one, other = getattr(ours, field), getattr(theirs, field)
                same = torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
                assert same, (name, field)
            assert ours.shape == theirs.shape
            for statistic, value in theirs.values.items():
                assert torch.equal(ours.values[statistic], value), (name, statistic)


@pytest.fixture
def alone(monkeypatch):
    """Return what lets each call be observed as a whole from then on."""
    return lambda: monkeypatch.setattr(AlikeSteps, "firsts", lambda self, calls: ())


@pytest.fixture
def shared(monkeypatch):
    """The names of the attentions that took something from another one, in order."""
    names, original = [], Watcher._record_again

    def noted(self, first, name, *others):
        names.append(name)
        original(self, first, name, *others)

    monkeypatch.setattr(Watcher, "_record_again", noted)
    return names


@pytest.fixture
def continued(monkeypatch):
    """Whether each attention with the arguments of another one continued its text alike."""
    found, original = [], SequenceLedger.continues

    def noted(self, *given):
        found.append(original(self, *given))
        return found[-1]

    monkeypatch.setattr(SequenceLedger, "continues", noted)
    return found


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize(("make", "count"), [(llama, (NEW - 1) * 2), (gemma2, NEW - 1), (gpt2, 0)])
def test_as_each_by_itself(make, count, rows, shared, alone):
    model = make()
    found = written(model, rows=rows)
    # In each step all but the first of a kind; scales that differ are not shared.
    assert len(shared) == count
    alone()
    assert_same(found, written(model, rows=rows))
    assert len(shared) == count


@pytest.mark.parametrize(
    ("option", "count"),
    [
        ({"heads": [1, 3]}, 0),
        ({"keep": "weights"}, 0),
        ({"layers": "*.[02].*"}, NEW - 1),
        ({"attention_mask": torch.tensor([[1] * TOLD, [0, 0] + [1] * (TOLD - 2)])}, 2 * (NEW - 1)),
    ],
    ids=["heads", "kept", "layers", "padding"],
)
def test_options(option, count, shared, alone):
    model = llama()
    found = written(model, **option)
    assert len(shared) == count
    alone()
    assert_same(found, written(model, **option))


def test_a_static_cache(shared, alone):
    model = llama()
    model.generation_config.cache_implementation = "static"
    found = written(model)
    assert len(shared) == 2 * (NEW - 1)
    alone()
    assert_same(found, written(model))


def steps(model, change=None):
    """What is seen of a text that grows token by token, and may be changed before the last one."""
    torch.manual_seed(1)
    tokens = torch.randint(1, 53, (1, TOLD))
    cache = transformers.DynamicCache()
    with torch.no_grad(), gh.watch(model, STATISTICS) as seen:
        model(tokens[:, :3], past_key_values=cache)
        for place in range(3, TOLD):
            if change is not None and place == TOLD - 1:
                change(model, cache)
            model(tokens[:, place : place + 1], past_key_values=cache)
    return seen


def other_keys(_, cache):
    cache.layers[1].keys = cache.layers[1].keys.flip(2)


def other_scale(model, _):
    model.model.layers[1].self_attn.scaling = 3.0


def one_layer_cropped(_, cache):
    cache.layers[1].crop(-1)


def all_cropped(_, cache):
    cache.crop(-1)


def another_text(model, _):
    model(torch.randint(1, 53, (1, 2)), past_key_values=transformers.DynamicCache())


@pytest.mark.parametrize("change", [None, another_text])
def test_layers_continue_their_text_alike(change, continued, alone):
    found = steps(llama(), change)
    assert continued == [True] * (LAYERS - 1) * (TOLD - 3)
    alone()
    assert_same(found, steps(llama(), change))


@pytest.mark.parametrize("change", [other_keys, one_layer_cropped, all_cropped])
def test_a_text_that_was_changed_is_placed_by_itself(change, continued, alone):
    found = steps(llama(), change)
    assert all(continued[: (LAYERS - 1) * (TOLD - 4)])
    assert continued.count(True) < (LAYERS - 1) * (TOLD - 3)
    alone()
    assert_same(found, steps(llama(), change))


def test_rows_that_move_are_placed_by_themselves(continued, alone):
    def seen():
        model = llama()
        torch.manual_seed(1)
        with gh.watch(model, STATISTICS) as seen:
            model.generate(
                torch.randint(1, 53, (2, TOLD)), max_new_tokens=NEW, num_beams=3, pad_token_id=0
            )
        return seen

    found = seen()
    assert any(call.rows is not None for call in found["model.layers.2.self_attn"])
    alone()
    assert_same(found, seen())


def given_more(model, change):
    """Change the arguments of an attention, which its call does not show."""
    model.model.layers[1].self_attn.register_forward_pre_hook(
        lambda module, given, named: (given, {**named, **change}), with_kwargs=True
    )


def given_a_note(model, _):
    given_more(model, {"note": object()})


def given_a_bias(model, _):
    given_more(model, {"attention_mask": torch.linspace(-1, 1, TOLD).view(1, 1, 1, TOLD)})


@pytest.mark.parametrize("change", [other_keys, other_scale, given_a_note, given_a_bias])
def test_a_layer_that_differs_is_observed_by_itself(change, shared, alone):
    found = steps(llama(), change)
    assert shared.count("model.layers.1.self_attn") == TOLD - 3 - 1
    alone()
    assert_same(found, steps(llama(), change))


def test_the_weights_are_those_of_the_queries_and_keys(shared):
    model, made = llama(), []
    layer = model.model.layers[2].self_attn
    original = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS["sdpa"]

    def noted(module, query, key, value, *args, **named):
        if module is layer:
            made.append((query, key))
        return original(module, query, key, value, *args, **named)

    transformers.AttentionInterface.register("noted_sdpa", noted)
    transformers.AttentionMaskInterface.register(
        "noted_sdpa", transformers.masking_utils.ALL_MASK_ATTENTION_FUNCTIONS["sdpa"]
    )
    model.set_attn_implementation("noted_sdpa")
    found = steps(model)
    assert "model.layers.2.self_attn" in shared
    query, key = made[-1]
    weights = (query @ key.repeat_interleave(2, 1).mT / 6**0.5).softmax(-1)
    call = found["model.layers.2.self_attn"][-1]
    torch.testing.assert_close(call.received, weights[:, :, 0])
    torch.testing.assert_close(call.entropy, torch.special.entr(weights).sum(-1))


def test_nothing_of_a_text_is_kept_alive():
    model = llama()
    cache = transformers.DynamicCache()
    with torch.no_grad(), gh.watch(model, STATISTICS) as seen:
        for token in (3, 5, 2, 7):
            model(torch.tensor([[token]]), past_key_values=cache)
        kept = [weakref.ref(cache), *(weakref.ref(one.keys) for one in cache.layers)]
        del cache
        gc.collect()
        assert [one() for one in kept] == [None] * (LAYERS + 1)
    assert len(seen["model.layers.0.self_attn"]) == 4


def test_vectors_alone_may_differ_between_modules():
    linear, other = torch.nn.Linear(5, 5), torch.nn.Linear(5, 5)

    def fits(ours, theirs, **named):
        first = ModuleCall(linear, ((ours,), named))
        return _ModuleFingerprint.of(first).fits(ModuleCall(other, ((theirs,), named)))

    vectors = torch.ones(2, 1, 5)
    assert fits(vectors, vectors + 1, note="as it was")
    assert not fits(vectors, torch.ones(2, 3, 5))
    assert not fits(vectors, vectors.double())
    # A mask of tokens is read by its numbers.
    assert not fits(torch.ones(2, 5), torch.zeros(2, 5))


def test_a_call_whose_mask_is_not_known_again_is_not_kept(shared, monkeypatch):
    kept, original = [], AlikeSteps.firsts
    monkeypatch.setattr(
        AlikeSteps, "firsts", lambda self, calls: kept.append(original(self, calls)) or kept[-1]
    )
    monkeypatch.setattr("glasshead.watching.captured_call._SMALL", 3)
    # A boolean mask of more numbers is not compared by them.
    written(llama())
    assert kept
    assert not any(kept)
    assert not shared


def test_a_fingerprint_tells_values_apart():
    ones = torch.ones(3)
    for value in (None, True, 3, 0.5, "text", ones, (ones, (2, None))):
        assert matches(fingerprint_of(value), value)
    for known, value in ((1, True), (1, 1.0), (ones, torch.ones(3)), ((ones, 2), (ones, 3))):
        assert not matches(fingerprint_of(known), value)
    # A list may be changed, so that it tells nothing.
    several = [ones]
    assert not matches(fingerprint_of(several), several)
    assert not matches(fingerprint_of((several,)), (several,))
    gone = fingerprint_of(torch.ones(5))
    assert not matches(gone, None)
