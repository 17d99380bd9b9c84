"""What is seen while a model writes is what it sees in the whole text at once."""

import pytest
import torch

import glasshead as gh
import watched_models as models
import watched_weights as eager

pytest.importorskip("transformers")

# Of the sliding windows, 5 keys wide: some prompts are shorter, some longer.
PROMPTS = [3, 8]
NEW = 6
CACHES = ["dynamic", "static"]
DECODERS = [
    (models.llama, "eager"),
    (models.llama, "sdpa"),
    (models.gpt2, "eager"),
    (models.gpt2, "sdpa"),
    (models.mistral, "eager"),
    (models.mistral, "sdpa"),
    (models.gemma2, "eager"),
    (models.gpt_oss, "eager"),
]


def written(model, given, cache="dynamic", **asked):
    """A text that goes on as the model likes."""
    return model.generate(
        **given,
        max_new_tokens=NEW,
        do_sample=False,
        cache_implementation=None if cache == "dynamic" else cache,
        return_dict_in_generate=True,
        output_scores=True,
        **asked,
    )


def as_one(given, text):
    """The whole text but its last word, which nobody has read yet."""
    read = {"input_ids": text[:, :-1]}
    if "attention_mask" in given:
        mask = given["attention_mask"]
        words = torch.ones(len(text), read["input_ids"].shape[1] - mask.shape[1], dtype=mask.dtype)
        read["attention_mask"] = mask = torch.cat([mask, words], 1)
        read["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
    return read


@pytest.mark.parametrize("side", [None, "left"])
@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize(("build", "mode"), DECODERS)
def test_steps_make_the_whole(build, mode, cache, prompt, side):
    given = models.inputs(build, side, batch=2, length=prompt)
    model = build(mode)
    with gh.watch(model, eager.STATISTICS, keep="weights") as seen:
        output = written(model, given, cache)
    whole = as_one(given, output.sequences)
    weights = eager.weights_of(build, whole)
    assert set(seen) == set(weights)
    for name, one in weights.items():
        watched = seen[name]
        assert watched.prefill.queries == prompt
        assert [step.position for step in watched.steps] == list(range(prompt, prompt + NEW - 1))
        assert [call.keys for call in watched] == list(range(prompt, prompt + NEW))
        window = eager.window_of(model, name)
        gone = [max(0, call.position + 1 - window) if window else 0 for call in watched.steps]
        assert [call.first_key for call in watched] == [0, *gone]
        eager.check(watched, one, real=eager.real_queries(build, whole, name))


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize(("build", "mode"), DECODERS)
def test_watched_it_writes_the_same_with_the_same_scores(build, mode, cache):
    given = models.inputs(build, "left", batch=2, length=8)
    model = build(mode)
    alone = written(model, given, cache)
    with gh.watch(model, eager.STATISTICS, keep="weights"):
        watched = written(model, given, cache)
    assert torch.equal(watched.sequences, alone.sequences)
    assert all(map(torch.equal, watched.scores, alone.scores))
