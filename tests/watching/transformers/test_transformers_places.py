"""Where calls stand: caches that let keys go or are cut back, and attention across to a text."""

import pytest
import torch

import glasshead as gh
import watched_models as models
import watched_weights as eager

pytest.importorskip("transformers")


def places(watched):
    return [(call.position, call.first_key, call.keys) for call in watched]


@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize("mode", ["eager", "sdpa"])
def test_a_cache_of_a_chunk_lets_keys_go(mode, cache):
    from transformers import Llama4ForCausalLM, Llama4TextConfig

    def llama4(mode):
        changes = {"attention_chunk_size": 5, "num_local_experts": 2, "intermediate_size_mlp": 29}
        config = Llama4TextConfig(**models.sizes_of_a_decoder(**changes, num_hidden_layers=4))
        return models.built(Llama4ForCausalLM, config, mode)

    model, given = llama4(mode), models.tokens(2, 7)
    asked = {"max_new_tokens": 6, "do_sample": False, "cache_implementation": cache}
    with models.skipped_where_transformers_fails(TypeError, AssertionError):
        told = {"output_logits": True, "return_dict_in_generate": True}
        alone = model.generate(given, **asked, **told)
        with torch.no_grad():
            whole = model(alone.sequences).logits[:, 6:-1]
        torch.testing.assert_close(torch.stack(alone.logits, 1), whole)
    with gh.watch(model, eager.STATISTICS, keep="weights") as seen:
        text = model.generate(given, **asked)
    with torch.no_grad():
        output = llama4("eager")(text[:, :-1], output_attentions=True)
    for watched, weights in zip(seen.values(), output.attentions, strict=True):
        eager.check(watched, weights)
    assert places(seen["model.layers.0.self_attn"])[-1] == (11, 7, 12)
    assert places(seen["model.layers.3.self_attn"])[-1] == (11, 0, 12)


@pytest.mark.parametrize("build", [models.llama, models.mistral])
def test_a_cache_that_is_cut_back_is_believed(build):
    from transformers import DynamicCache

    model = build("sdpa")
    text = models.tokens(2, 12)
    cache = DynamicCache(config=model.config)
    # Since transformers 5.20 a crop counts the tokens that go, also where layers slide.
    counts = hasattr(cache, "activate_past_recording")
    if counts:
        cache.activate_past_recording()
    elif build is models.mistral:
        pytest.skip("a cache that slides cannot be cut back in this version of transformers")
    with torch.no_grad(), gh.watch(model, eager.STATISTICS) as seen:
        model(text[:, :7], past_key_values=cache)
        if counts:
            cache.crop(0)
        model(models.tokens(2, 4, seed=8), past_key_values=cache)
        cache.crop(-4)
        model(text[:, 7:], past_key_values=cache)
    for name, weights in eager.weights_of(build, {"input_ids": text}).items():
        last = seen[name][-1]
        assert (last.position, last.keys) == (7, 12)
        received = torch.zeros(2, 6, 12)
        received[..., : last.received.shape[-1]] = last.received
        torch.testing.assert_close(received, weights[..., 7:, :].sum(-2), rtol=3e-5, atol=3e-5)
        torch.testing.assert_close(last.sink, weights[..., 7:, 0], rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize("build", [models.llama, models.mistral])
def test_a_watch_that_begins_late_knows_where(build):
    from transformers import DynamicCache

    model = build("sdpa")
    text = models.tokens(2, 12)
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(text[:, :9], past_key_values=cache)
        with gh.watch(model, eager.STATISTICS, keep="weights") as seen:
            model(text[:, 9:11], past_key_values=cache)
            model(text[:, 11:], past_key_values=cache)
    for name, weights in eager.weights_of(build, {"input_ids": text}).items():
        assert [call.position for call in seen[name]] == [9, 11]
        assert len(seen[name].texts) == 1
        eager.check(seen[name], weights[..., 9:, :])


def test_padding_at_the_right_of_a_static_cache_is_no_end_of_the_text():
    from transformers import StaticCache

    model = models.llama("sdpa")
    given = models.inputs(models.llama, "right", length=9)
    given["attention_mask"][:, 5:] = 0
    cache = StaticCache(config=model.config, max_cache_len=17)
    with torch.no_grad(), gh.watch(model, eager.STATISTICS, keep="weights") as seen:
        for piece in (slice(0, 6), slice(6, 9)):
            model(
                given["input_ids"][:, piece],
                attention_mask=given["attention_mask"][:, : piece.stop],
                past_key_values=cache,
            )
    for name, weights in eager.weights_of(models.llama, given).items():
        assert [call.position for call in seen[name]] == [0, 6]
        eager.check(seen[name], weights, real=given["attention_mask"] > 0)


@pytest.mark.parametrize("build", [models.t5, models.bart])
def test_a_source_of_one_word_is_crossed_to_step_by_step(build):
    model = build("sdpa")
    with gh.watch(model, eager.STATISTICS) as seen:
        model.generate(models.tokens(2, 1), max_new_tokens=4, do_sample=False)
    name = models.NAMES[build]["cross_attentions"].format(1)
    assert places(seen[name]) == [(0, 0, 1), (1, 0, 1), (2, 0, 1), (3, 0, 1)]
    assert torch.equal(seen[name].largest, torch.ones(seen[name].largest.shape))


@pytest.mark.parametrize("mode", ["eager", "sdpa"])
def test_a_module_that_does_not_say_that_it_crosses(mode):
    from transformers import DynamicCache, MllamaForCausalLM
    from transformers.models.mllama.configuration_mllama import MllamaTextConfig

    # Transformers 4 calls it by the other name.
    turns = {"rope_type": "default", "rope_theta": 10000.0}
    rope = {"rope_parameters": turns, "rope_scaling": turns}
    changes = {"cross_attention_layers": [1], "hidden_size": 60, **rope}
    config = MllamaTextConfig(**models.sizes_of_a_decoder(**changes))
    model = models.built(MllamaForCausalLM, config, mode)
    picture, text = torch.randn(2, 13, 60), models.tokens(2, 9)
    cache = DynamicCache(config=config)

    def read(piece, **given):
        length = piece.shape[1]
        return model(
            piece,
            cross_attention_mask=torch.zeros(2, 1, length, 13),
            full_text_row_masked_out_mask=torch.ones(2, 1, length, 1),
            past_key_values=cache,
            **given,
        )

    with torch.no_grad(), gh.watch(model, eager.STATISTICS) as seen:
        read(text[:, :7], cross_attention_states=picture)
        read(text[:, 7:8])
        read(text[:, 8:])
    assert places(seen["model.layers.1.cross_attn"]) == [(0, 0, 13), (7, 0, 13), (8, 0, 13)]
    assert seen["model.layers.1.cross_attn"].received.shape == (2, 6, 13)


def test_without_a_cache_in_sight_what_was_read_is_counted():
    model = models.Alone("sdpa", sliding_window=3)
    query, key, value = torch.randn(3, 2, 5, 8, 7).unbind()

    def read(asking, held):
        queries, keys = len(range(8)[asking]), len(range(8)[held])
        mask = eager.causal(queries, keys, window=3)[None, None]
        model(query[..., asking, :], key[..., held, :], value[..., held, :], mask)

    with gh.watch(model, eager.STATISTICS, keep="weights") as seen:
        read(slice(0, 5), slice(0, 5))
        for last in (5, 6, 7):
            read(slice(last, last + 1), slice(last - 2, last + 1))
    scores = query @ key.mT / 7**0.5
    weights = scores.masked_fill(~eager.causal(8, 8, window=3), -torch.inf).softmax(-1)
    assert places(seen[""]) == [(0, 0, 5), (5, 3, 6), (6, 4, 7), (7, 5, 8)]
    eager.check(seen[""], weights)


def test_without_a_cache_in_sight_the_mask_tells_how_much_room_is_left():
    model = models.Alone("sdpa")
    query, key, value = torch.randn(3, 2, 5, 8, 7).unbind()
    visible = eager.causal(8, 8)
    with gh.watch(model, eager.STATISTICS, keep="weights") as seen:
        for piece in (slice(0, 3), slice(3, 4), slice(4, 6)):
            model(query[..., piece, :], key, value, visible[piece][None, None])
    scores = query[..., :6, :] @ key[..., :6, :].mT / 7**0.5
    weights = scores.masked_fill(~visible[:6, :6], -torch.inf).softmax(-1)
    assert places(seen[""]) == [(0, 0, 3), (3, 0, 4), (4, 0, 6)]
    eager.check(seen[""], weights)
