"""A text that is read piece by piece with a cache is seen as one."""

import pytest
import torch

import glasshead as gh
import watched_models as models
import watched_weights as eager

pytest.importorskip("transformers")

CHUNKS = [4, 1, 3, 1, 5]
DECODERS = [(build, mode) for build, mode in models.MODES if build in models.DECODERS]


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
@pytest.mark.parametrize(("build", "mode"), DECODERS)
def test_pieces_make_the_whole(build, mode, kind, side):
    given = whole(build, side)
    model = build(mode)
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
    cache = cache_of(kind, model)
    with torch.no_grad(), gh.watch(model, eager.STATISTICS, keep="weights") as seen:
        read(model, given, cache, [6, 1, 1])
        cache.reset()
        read(model, given, cache, [3, 4])
    name = "model.layers.1.self_attn"
    assert [len(text) for text in seen[name].texts] == [3, 2]
    given = {"input_ids": given["input_ids"][:, :7]}
    one = eager.weights_of(build, given)[name]
    eager.check(seen[name], one)
