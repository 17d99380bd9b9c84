"""Which calls belong to a text: caches in turn, beams, rejected tokens and removed keys.

The expected values are those of the same text read alone, in one pass.
"""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
import watched_models as models
from watching.families import FAMILIES

pytest.importorskip("transformers")

STATISTICS = {
    "entropy": gh.Entropy(),
    "received": gh.Received(),
    "top": gh.TopK(3),
    "on": gh.MassOn([1]),
    "distance": gh.MeanDistance(),
}
NAME = "model.layers.1.self_attn"
near = {"rtol": 2e-5, "atol": 2e-5}


@pytest.fixture(scope="module")
def llama():
    return models.llama("sdpa")


def watching(model, **changes):
    return gh.watch(model, STATISTICS, keep="weights", **changes)


def alone(model, text, **given):
    """What is seen of a text that is read in one pass."""
    with torch.no_grad(), watching(model) as seen:
        model(text, **given)
    return seen


def check_same(seen, whole, names=None, *, row=slice(None), length=None):
    """Statistics, weights and rollout of a text are those of another."""
    for name in names or whole:
        one, other = seen[name], whole[name]
        W, V = one.weights.dense()[row], other.weights.dense()
        length = length or V.shape[-2]
        torch.testing.assert_close(W[..., :length, :length], V, **near)
        torch.testing.assert_close(one.entropy[row][..., :length], other.entropy, **near)
        torch.testing.assert_close(one.on[row][..., :length], other.on, **near)
        torch.testing.assert_close(one.distance[row][..., :length], other.distance, **near)
        received = one.received[row]
        torch.testing.assert_close(received[..., :length], other.received, **near)
        assert not received[..., length:].any()
        torch.testing.assert_close(one.top.weights[row][..., :length, :], other.top.weights, **near)


def check_hypotheses(seen, model, sequences, beam_indices):
    """Each returned sequence is seen as when it is read alone."""
    followed = seen.follow(beam_indices)
    rolled = gh.rollout(followed, layers="model.layers.*")
    for row, sequence in enumerate(sequences):
        read = sequences.shape[1] - 1 - int((beam_indices[row] < 0).sum())
        whole = alone(model, sequence[None, :read])
        check_same(followed, whole, row=slice(row, row + 1), length=read)
        own = gh.rollout(whole, layers="model.layers.*")
        torch.testing.assert_close(rolled[row, 0, :read], own[0, 0], **near)
    return followed


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_two_caches_in_turn_are_two_texts(llama, kind):
    from transformers import DynamicCache, StaticCache

    def new():
        if kind == "static":
            return StaticCache(config=llama.config, max_cache_len=17)
        return DynamicCache(config=llama.config)

    one, other, goes_on = models.tokens(2, 7), models.tokens(2, 7, seed=8), models.tokens(2, 3)
    first, second = new(), new()
    with torch.no_grad(), watching(llama) as seen:
        llama(one, past_key_values=first)
        llama(other, past_key_values=second)
        llama(goes_on, past_key_values=first)
    assert [[call.queries for call in text] for text in seen[NAME].texts] == [[7], [7, 3]]
    check_same(seen, alone(llama, torch.cat([one, goes_on], 1)))


def test_guidance_reads_two_texts_in_turn(llama):
    text, negative = models.tokens(1, 7), models.tokens(1, 5, seed=8)
    with watching(llama) as seen:
        written = llama.generate(
            text,
            attention_mask=torch.ones_like(text),
            negative_prompt_ids=negative,
            guidance_scale=1.7,
            max_new_tokens=4,
            do_sample=False,
        )
    assert [[call.queries for call in text] for text in seen[NAME].texts] == [
        [7, 1, 1, 1],
        [5, 1, 1, 1],
    ]
    check_same(seen, alone(llama, torch.cat([negative, written[:, 7:-1]], 1)))


def test_a_copy_of_a_cache_shares_the_beginning(llama):
    from transformers import DynamicCache

    beginning, goes_on, another = (
        models.tokens(2, 7),
        models.tokens(2, 2),
        models.tokens(2, 3, seed=9),
    )
    cache = DynamicCache(config=llama.config)
    with torch.no_grad(), watching(llama) as seen:
        llama(beginning, past_key_values=cache)
        twin = copy.deepcopy(cache)
        llama(goes_on, past_key_values=cache)
        llama(another, past_key_values=twin)
    assert [[call.queries for call in text] for text in seen[NAME].texts] == [[7, 2], [7, 3]]
    check_same(seen, alone(llama, torch.cat([beginning, another], 1)))


@pytest.mark.parametrize(
    "search",
    [
        {"num_beams": 4, "num_return_sequences": 4},
        {"num_beams": 3, "num_return_sequences": 2, "do_sample": True},
        {"num_beams": 3, "eos_token_id": [*range(20, 36)], "num_return_sequences": 3},
    ],
)
@pytest.mark.parametrize("cache", [None, "static"])
def test_beams_are_followed_to_what_generate_returns(llama, search, cache):
    torch.manual_seed(3)
    text = models.tokens(2, 5)
    with watching(llama) as seen:
        output = llama.generate(
            text,
            attention_mask=torch.ones_like(text),
            **{"do_sample": False} | search,
            max_new_tokens=7,
            cache_implementation=cache,
            return_dict_in_generate=True,
            output_scores=True,
        )
    with pytest.raises(ValueError, match=r"changed places.*seen\.follow\(output\.beam_indices\)"):
        _ = seen[NAME].received
    with pytest.raises(ValueError, match="changed places"):
        gh.rollout(seen)
    with pytest.raises(ValueError, match="changed places"):
        seen.summary()
    check_hypotheses(seen, llama, output.sequences, output.beam_indices)


def test_cross_attention_follows_its_beams():
    model, source = models.bart("sdpa"), models.tokens(2, 5)
    with watching(model, layers="*decoder*") as seen:
        output = model.generate(
            source,
            num_beams=3,
            num_return_sequences=3,
            do_sample=False,
            max_new_tokens=6,
            min_new_tokens=6,
            return_dict_in_generate=True,
            output_scores=True,
        )
    followed = seen.follow(output.beam_indices)
    whole = alone(model, source.repeat_interleave(3, 0), decoder_input_ids=output.sequences[:, :-1])
    check_same(followed, whole, names=list(seen))


def test_rows_of_a_last_call_are_followed_without_indices(llama):
    from transformers import DynamicCache

    text, goes_on = models.tokens(2, 5), models.tokens(3, 1)
    cache = DynamicCache(config=llama.config)
    with torch.no_grad(), watching(llama) as seen:
        llama(text, past_key_values=cache)
        cache.batch_repeat_interleave(2)
        cache.batch_select_indices(torch.tensor([3, 0, 2]))
        llama(goes_on, past_key_values=cache)
        for layer in cache.layers:
            layer.keys, layer.values = layer.keys[[1, 2]], layer.values[[1, 2]]
        llama(models.tokens(2, 1, seed=9), past_key_values=cache)
    whole = torch.cat([text[[0, 1]], goes_on[[1, 2]], models.tokens(2, 1, seed=9)], 1)
    check_same(seen.follow(), alone(llama, whole))


def test_beams_of_this_library_are_followed():
    from glasshead.models.decoding import Beam, generate
    from glasshead.models.language_model import LanguageModelSteps

    config = gh.LanguageModelConfig(vocab_size=23, d_model=12, num_heads=3, num_layers=2)
    model = gh.LanguageModel(config).eval()
    text = torch.randint(23, (1, 5))
    with watching(model) as seen:
        generate(LanguageModelSteps(model), text, Beam(3), max_tokens=5)
    with pytest.raises(ValueError, match="changed places"):
        _ = seen["blocks.1.attention"].entropy
    assert seen.follow()["blocks.1.attention"].entropy.shape == (3, 3, 9)


class OfTuple(nn.Module):
    """Attention that goes on with the keys and values that it is given."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(24, 72)

    def forward(self, x, before):
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 6)).transpose(1, 3).unbind(2)
        if before is not None:
            k, v = torch.cat([before[0], k], -2), torch.cat([before[1], v], -2)
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool)
        mask = mask.tril(k.shape[-2] - q.shape[-2])
        made = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return x + made.transpose(1, 2).flatten(2), (k, v)


class Tuples(nn.Module):
    """A model whose keys are given and returned as tuples, as the models of old are."""

    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(31, 24), nn.Embedding(40, 24)
        self.layers = nn.ModuleList(OfTuple() for _ in range(2))

    def forward(self, tokens, past=(None, None)):
        start = 0 if past[0] is None else past[0][0].shape[-2]
        x = self.embed(tokens) + self.place(torch.arange(start, start + tokens.shape[1]))
        held = []
        for layer, before in zip(self.layers, past, strict=True):
            x, keys = layer(x, before)
            held.append(keys)
        return tuple(held)


def test_tuples_of_keys_are_known_by_their_content():
    model = Tuples()
    one, other = torch.randint(31, (2, 7)), torch.randint(31, (2, 7))
    with torch.no_grad(), watching(model) as seen:
        first, second = model(one), model(other)
        first = model(one[:, :1], first)
        model(other[:, :2], second)
        model(one[:, :3], first)
    assert [[call.queries for call in text] for text in seen["layers.1"].texts] == [
        [7, 2],
        [7, 1, 3],
    ]
    whole = torch.cat([one, one[:, :1], one[:, :3]], 1)
    check_same(seen, alone(model, whole))


def test_rows_of_tuples_are_known_by_their_content():
    model = Tuples()
    text, goes_on = torch.randint(31, (3, 5)), torch.randint(31, (4, 2))
    rows = torch.tensor([2, 0, 0, 1])
    with torch.no_grad(), watching(model) as seen:
        past = model(text)
        model(goes_on, tuple((k[rows], v[rows]) for k, v in past))
    check_same(seen.follow(), alone(model, torch.cat([text[rows], goes_on], 1)))


def test_what_may_continue_a_text_or_not_is_not_joined():
    model = Tuples()
    with torch.no_grad(), watching(model) as seen:
        past = model(torch.randint(31, (2, 5)))
        model(torch.randint(31, (2, 1)), tuple((-k, v) for k, v in past))
    assert seen["layers.1"][1].entropy.shape == (2, 4, 1)
    with pytest.raises(ValueError, match="not known whether its last call continues"):
        _ = seen["layers.1"].entropy


@pytest.mark.parametrize("assistant", [True, False])
def test_rejected_tokens_leave_the_text(llama, assistant):
    text = models.tokens(1, 7)
    given = (
        {"assistant_model": models.llama("eager")} if assistant else {"prompt_lookup_num_tokens": 3}
    )
    if assistant:
        for parameter in given["assistant_model"].parameters():
            parameter.data.add_(0.02 * torch.randn(parameter.shape))
    else:
        text = text.repeat(1, 2)
    with watching(llama) as seen:
        written = llama.generate(
            text, attention_mask=torch.ones_like(text), **given, max_new_tokens=9, do_sample=False
        )
    read = seen[NAME].weights.shape[-1]
    assert read >= written.shape[1] - 1
    check_same(seen, alone(llama, written[:, :read]), length=min(read, written.shape[1]))


@pytest.mark.parametrize("build", [models.llama, models.mistral])
def test_tokens_that_leave_a_cache_leave_the_text(build):
    from transformers import DynamicCache

    model, text = build("sdpa"), models.tokens(2, 11)
    cache, whole = DynamicCache(config=model.config), alone(model, text[:, :10])
    if hasattr(cache, "activate_past_recording"):
        cache.activate_past_recording()
    with torch.no_grad(), watching(model) as seen:
        for piece in (slice(0, 7), slice(7, 8), slice(8, 11)):
            model(text[:, piece], past_key_values=cache)
            if piece.stop < 11:
                cache.crop(0)
        cache.crop(-1)
        check_same(seen, whole)
        model(text[:, :1], past_key_values=cache)
        cache.crop(-1)
    assert len(seen[NAME].texts) == 1
    check_same(seen, whole)


def test_a_sum_over_rejected_tokens_takes_kept_weights(llama):
    from transformers import DynamicCache

    cache, text = DynamicCache(config=llama.config), models.tokens(2, 9)
    with torch.no_grad(), gh.watch(llama, [gh.Entropy(), gh.Received()]) as seen:
        llama(text, past_key_values=cache)
        cache.crop(-4)
        llama(text[:, :2], past_key_values=cache)
    whole = alone(llama, torch.cat([text[:, :5], text[:, :2]], 1))
    torch.testing.assert_close(seen[NAME].entropy, whole[NAME].entropy, **near)
    with pytest.raises(ValueError, match="rejected.*keep='weights'"):
        _ = seen[NAME].received


KEPT = torch.tensor([0, 1, 6, 7, 8, 10, 11, 12])


def evicted(model, kept, **given):
    """A text of 13 tokens, of whose keys some were removed, and 3 more that were told theirs."""
    from transformers import DynamicCache

    cache, text, goes_on = (
        DynamicCache(config=model.config),
        models.tokens(1, 13),
        models.tokens(1, 3),
    )
    with torch.no_grad(), watching(model) as seen:
        model(text, past_key_values=cache)
        for one in cache.layers:
            one.keys, one.values = kept(one.keys), kept(one.values)
        model(goes_on, past_key_values=cache, **given)
        step = {name: x[:, -1:] + 1 for name, x in given.items()}
        model(goes_on[:, :1], past_key_values=cache, **step)
    return seen


@pytest.fixture(params=["DeepseekV2", "DeepseekV3"])
def latent(request):
    """A model whose keys are computed from latent ones, with other last bits in each step."""
    model = FAMILIES[request.param].build("sdpa")

    def rounds(_module, _given, made):
        return made * (1 + made.shape[1] * 2.0**-40)

    hooks = [
        layer.self_attn.kv_b_proj.register_forward_hook(rounds) for layer in model.model.layers
    ]
    yield model
    for hook in hooks:
        hook.remove()


def test_latent_keys_show_what_a_call_continues(latent):
    seen = evicted(latent, lambda x: x)
    for layer in seen.values():
        assert [call.position for call in layer] == [0, 13, 16]
        assert all(call.apart is None and call.rows is None for call in layer)
        assert layer.weights.shape[-2:] == (17, 17)


def test_latent_keys_keep_their_numbers_where_others_are_removed(latent):
    given = {"position_ids": torch.arange(13, 16)[None]}
    for layer in evicted(latent, lambda x: x[:, :, KEPT], **given).values():
        W = layer.weights[..., 13:, :]
        assert not W[..., [2, 3, 4, 5, 9]].any()
        torch.testing.assert_close(W.sum(-1), torch.ones_like(W[..., 0]))


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        (lambda x: x[[0, 0]], "changed places"),
        (lambda x: x[[1, 0]], "changed places"),
        (lambda x: torch.cat([x[:1], x[1:] + 1e-9]), "rows of its cache were replaced"),
        (lambda x: x + 1e-9, "rows of its cache were replaced"),
    ],
)
@pytest.mark.parametrize("parts", [("keys", "values"), ("keys",), ("values",)])
def test_latent_keys_of_another_text_are_not_joined(latent, changed, cause, parts):
    from transformers import DynamicCache

    cache, text = DynamicCache(config=latent.config), models.tokens(2, 7)
    with torch.no_grad(), watching(latent) as seen:
        latent(text, past_key_values=cache)
        for layer in cache.layers:
            for part in parts:
                setattr(layer, part, changed(getattr(layer, part)))
        latent(models.tokens(2, 3), past_key_values=cache)
    moved = cause if len(parts) == 2 else "rows of its cache were replaced|changed places"
    for layer in seen.values():
        with pytest.raises(ValueError, match=moved):
            _ = layer.weights


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("kept", [KEPT, torch.arange(4, 13), torch.arange(8)])
def test_keys_keep_their_numbers_where_others_are_removed(llama, kept, told):
    if not told and kept[-1] < 12:
        pytest.skip("this is how a text loses its last tokens")
    given = {"position_ids": torch.arange(13, 16)[None]} if told else {}
    seen = evicted(llama, lambda x: x[:, :, kept], **given)
    for layer in seen.values():
        assert [call.position for call in layer] == [0, 13, 16]
        W = layer.weights[..., 13:, :]
        removed = [key for key in range(13) if key not in kept.tolist()]
        assert not W[..., removed].any()
        torch.testing.assert_close(W.sum(-1), torch.ones(1, 6, 4), **near)
        distance = (torch.arange(13, 17)[:, None] - torch.arange(17)).abs()
        torch.testing.assert_close(layer.distance[..., 13:], (W * distance).sum(-1), **near)
        torch.testing.assert_close(layer.on[..., 13:], W[..., 1], **near)
        assert torch.equal(layer.top.keys[..., 13:, 0], W.argmax(-1))
        torch.testing.assert_close(layer.received, layer.weights.dense().sum(-2), **near)


def test_keys_that_each_head_keeps_are_followed(llama):
    rows = torch.stack([KEPT, KEPT + torch.tensor([0, 1, 0, 0, 1, 0, 0, 0])])
    seen = evicted(llama, lambda x: x.take_along_dim(rows[None, :, :, None], -2))
    W = seen[NAME].weights[0, :, 13]
    for head in range(6):
        held = {*rows[head // 3].tolist(), 13}
        assert not W[head, [key for key in range(17) if key not in held]].any()
        assert float(W[head].sum()) == pytest.approx(1, abs=1e-5)


def test_keys_that_are_not_known_any_more_have_no_numbers(llama):
    seen = evicted(llama, lambda x: x[:, :, KEPT].roll(1, 2) * 2)
    last = seen[NAME][-1]
    assert last.position == 16
    assert last.entropy.shape == (1, 6, 1)
    for name in ("received", "top", "on", "distance"):
        with pytest.raises(ValueError, match="keys were removed from the cache"):
            getattr(last, name)
        with pytest.raises(ValueError, match="keys were removed from the cache"):
            getattr(seen[NAME], name)
    with pytest.raises(ValueError, match="keys were removed from the cache"):
        _ = seen[NAME].weights
    assert seen[NAME].entropy.shape == (1, 6, 17)


def test_texts_rows_and_what_is_not_told_are_saved(llama, tmp_path):
    from transformers import DynamicCache

    cache = DynamicCache(config=llama.config)
    with torch.no_grad(), gh.watch(llama, [gh.Entropy()]) as seen:
        llama(models.tokens(2, 5), past_key_values=cache)
        cache.reorder_cache(torch.tensor([1, 1]))
        llama(models.tokens(2, 1), past_key_values=cache)
    seen.save(tmp_path / "seen.safetensors")
    read = gh.Seen.load(tmp_path / "seen.safetensors")
    with pytest.raises(ValueError, match="changed places"):
        _ = read[NAME].entropy
    assert torch.equal(read.follow()[NAME].entropy, seen.follow()[NAME].entropy)


def test_the_methods_of_caches_are_as_before(llama):
    from transformers import Cache, DynamicCache

    def methods():
        return Cache.reorder_cache, Cache.crop, gh.KVCache.reorder

    def fails():
        with watching(llama):
            assert Cache.reorder_cache is not before[0]
            llama(models.tokens(1, 3), past_key_values=DynamicCache(config=llama.config))
            raise ZeroDivisionError

    before = methods()
    with pytest.raises(ZeroDivisionError):
        fails()
    assert methods() == before


@pytest.mark.parametrize(
    "indices", ["last", [1, 2], torch.ones(2, 2), torch.zeros(0, 2, dtype=torch.int64)]
)
def test_beam_indices_are_whole_numbers_in_two_axes(llama, indices):
    seen = alone(llama, models.tokens(1, 3))
    with pytest.raises(TypeError, match="beam_indices must be whole numbers"):
        seen.follow(indices)


def test_beam_indices_are_of_the_calls(llama):
    text = models.tokens(2, 5)
    with watching(llama) as seen:
        llama.generate(text, max_new_tokens=3, do_sample=False)
    with pytest.raises(ValueError, match="one number for each of 3 calls at most.* got 4"):
        seen.follow(torch.zeros(1, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match="below the number of rows, 2"):
        seen.follow(torch.tensor([[0, 2]]))
