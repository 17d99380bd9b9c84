"""An encoder and a decoder that writes: whose attention is kept apart, and joined text by text."""

import pytest
import torch

import glasshead as gh
import watched_models as models
import watched_weights as eager

pytest.importorskip("transformers")

NEW = 6
TRANSLATORS = [
    (build, mode) for build, mode in models.MODES if "cross_attentions" in models.NAMES[build]
]


def source(build, side=None, length=11, seed=5):
    """What is translated."""
    if build is models.whisper:
        return {"input_features": torch.randn(2, 3, 22)}
    given = {"input_ids": models.tokens(2, length, seed)}
    return given | ({"attention_mask": models.padding(2, length, side)} if side else {})


def written(model, given, cache="dynamic"):
    """A translation, as the model likes."""
    return model.generate(
        **given,
        max_new_tokens=NEW,
        do_sample=False,
        cache_implementation=None if cache == "dynamic" else cache,
        return_dict_in_generate=True,
        output_scores=True,
    )


def check_whole(seen, build, given, sequences):
    """What was seen of the last text is what one reading of it sees."""
    given = given | {"decoder_input_ids": sequences[:, :-1]}
    for name, one in eager.weights_of(build, given).items():
        eager.check(seen[name], one, real=eager.real_queries(build, given, name))


@pytest.mark.parametrize("side", [None, "right"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize(("build", "mode"), TRANSLATORS)
def test_steps_make_the_whole(build, mode, cache, side):
    given = source(build, side)
    model = build(mode)
    with gh.watch(model, eager.STATISTICS, keep="weights") as seen:
        output = written(model, given, cache)
    check_whole(seen, build, given, output.sequences)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize(("build", "mode"), TRANSLATORS)
def test_each_translation_is_a_text(build, mode, cache):
    model = build(mode)
    first, second = source(build), source(build, length=7, seed=6)
    with gh.watch(model, eager.STATISTICS, keep="weights") as seen:
        written(model, first, cache)
        output = written(model, second, cache)
    for name in seen:
        calls = 1 if "encoder." in name else output.sequences.shape[1] - 1
        assert [len(text) for text in seen[name].texts] == [calls, calls]
    check_whole(seen, build, second, output.sequences)


@pytest.mark.parametrize(("build", "mode"), TRANSLATORS)
def test_watched_it_writes_the_same_with_the_same_scores(build, mode):
    given = source(build, "right")
    model = build(mode)
    alone = written(model, given)
    with gh.watch(model, eager.STATISTICS, keep="weights"):
        watched = written(model, given)
    assert torch.equal(watched.sequences, alone.sequences)
    assert all(map(torch.equal, watched.scores, alone.scores))


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize(("build", "mode"), TRANSLATORS)
def test_steps_of_cross_attention_are_placed_where_nothing_else_is_watched(build, mode, cache):
    given = source(build, "right")
    model = build(mode)
    cross = models.NAMES[build]["cross_attentions"].format("*")
    with gh.watch(model, eager.STATISTICS, layers=cross, keep="weights") as seen:
        output = written(model, given, cache)
    assert len(seen) == 2
    given = given | {"decoder_input_ids": output.sequences[:, :-1]}
    weights = eager.weights_of(build, given)
    for name, watched in seen.items():
        assert [call.position for call in watched] == list(range(NEW))
        eager.check(watched, weights[name])


@pytest.mark.parametrize("build", [models.t5, models.bart, models.whisper])
def test_one_cross_attention_of_several_is_placed_too(build):
    given, model = source(build), build("sdpa")
    cross = models.NAMES[build]["cross_attentions"].format(1)
    with gh.watch(model, eager.STATISTICS, layers=cross, keep="weights") as seen:
        for _ in range(2):
            output = written(model, given)
    assert [len(text) for text in seen[cross].texts] == [NEW, NEW]
    given = given | {"decoder_input_ids": output.sequences[:, :-1]}
    eager.check(seen[cross], eager.weights_of(build, given)[cross])
