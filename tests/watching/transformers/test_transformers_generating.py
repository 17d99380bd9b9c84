"""What is seen while a model writes is what it sees in the whole text at once.

Beam search changes the order of its rows between steps, and each step is seen as it was.
A text that is read piece by piece with a cache is seen as one.
"""

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


pytest.importorskip("transformers")

PROMPT = 5


@pytest.mark.parametrize(
    ("build", "mode"), [(models.llama, "sdpa"), (models.gpt2, "eager"), (models.mistral, "sdpa")]
)
def test_each_step_is_of_the_beams_that_it_goes_on_with(build, mode):
    model = build(mode)
    given = {"input_ids": models.tokens(2, PROMPT)}

    def searched():
        return model.generate(
            **given,
            max_new_tokens=NEW,
            num_beams=3,
            do_sample=False,
            return_dict_in_generate=True,
            output_scores=True,
        )

    alone = searched()
    with gh.watch(model, eager.STATISTICS) as seen:
        output = searched()
    assert torch.equal(output.sequences, alone.sequences)
    assert torch.equal(output.sequences_scores, alone.sequences_scores)
    assert all(map(torch.equal, output.scores, alone.scores))

    rows = output.beam_indices[:, :NEW]
    assert len(rows.unique()) > 2
    for name, weights in eager.weights_of(build, {"input_ids": output.sequences[:, :-1]}).items():
        for place, step in enumerate(seen[name].steps):
            query, keys = PROMPT + place, PROMPT + place + 1
            assert step.position == query
            # The row that chose a word has read the one before it.
            row = rows[:, place + 1]
            received = step.received[row]
            torch.testing.assert_close(received, weights[..., query, :keys], rtol=3e-5, atol=3e-5)


pytest.importorskip("transformers")

CHUNKS = [4, 1, 3, 1, 5]


CHUNKS_DECODERS = [(build, mode) for build, mode in models.MODES if build in models.DECODERS]


def cache_of(kind, model):
    from transformers import DynamicCache, StaticCache

    if kind == "static":
        return StaticCache(config=model.config, max_cache_len=17)
    return DynamicCache(config=model.config)


def read(model, given, cache, chunks):
    """Read a text piece by piece."""
    start, mask = 0, given.get("attention_mask")
    for length in chunks:
        stop = start + length
        piece = {"input_ids": given["input_ids"][:, start:stop]}
        if mask is not None:
            piece["attention_mask"] = mask[:, :stop]
            piece["position_ids"] = given["position_ids"][:, start:stop]
        model(**piece, past_key_values=cache)
        start = stop


def whole(build, side):
    given = models.inputs(build, side, batch=3, length=sum(CHUNKS))
    if side:
        given["position_ids"] = (given["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    return given


@pytest.mark.parametrize("side", [None, "left"])
@pytest.mark.parametrize("kind", ["dynamic", "static"])
@pytest.mark.parametrize(("build", "mode"), CHUNKS_DECODERS)
def test_pieces_make_the_whole(build, mode, kind, side):
    given = whole(build, side)
    model = build(mode)
    with torch.no_grad(), models.skipped_where_transformers_fails(RuntimeError):
        read(model, given, cache_of(kind, model), CHUNKS)
    with torch.no_grad(), gh.watch(model, eager.STATISTICS, keep="weights") as seen:
        read(model, given, cache_of(kind, model), CHUNKS)
    for name, one in eager.weights_of(build, given).items():
        watched = seen[name]
        assert [call.position for call in watched] == [0, 4, 5, 8, 9]
        eager.check(watched, one, real=eager.real_queries(build, given, name))


@pytest.mark.parametrize("kind", ["dynamic", "static"])
@pytest.mark.parametrize("build", [models.llama, models.mistral])
def test_a_cache_that_begins_anew_begins_another_text(build, kind):
    given = whole(build, None)
    model = build("sdpa")

    def twice():
        cache = cache_of(kind, model)
        read(model, given, cache, [6, 1, 1])
        cache.reset()
        if cache.get_seq_length():
            pytest.skip("the caches of this version of transformers keep their length")
        read(model, given, cache, [3, 4])

    with torch.no_grad(), models.skipped_where_transformers_fails(RuntimeError, IndexError):
        twice()
    with torch.no_grad(), gh.watch(model, eager.STATISTICS, keep="weights") as seen:
        twice()
    name = "model.layers.1.self_attn"
    assert [len(text) for text in seen[name].texts] == [3, 2]
    given = {"input_ids": given["input_ids"][:, :7]}
    one = eager.weights_of(build, given)[name]
    eager.check(seen[name], one)
