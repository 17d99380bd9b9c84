"""Of a rule with a window a cache holds what can still be seen, and finds the same."""

import pytest
import torch

import glasshead as gh
from glasshead.layers.layer_cache import lookback
from layers.torch_names import loud

D_MODEL, LENGTH, REACH = 12, 89, 5
CHUNKS = {
    "tokens": [1] * LENGTH,
    "chunks": [7, 1, 1, 31, 2, 47],
    "a prompt": [71, *[1] * 18],
    "whole": [LENGTH],
}


def self_attention(mask, **options):
    rule = gh.Attention(mask=mask, bias=options.pop("bias", None))
    return loud(gh.MultiHeadAttention(D_MODEL, 6, 2, attention=rule, **options))


def windowed(**options):
    return self_attention(gh.causal() & gh.window(before=REACH), **options)


def fed(layer, x, chunks, cache, **call):
    """The results of a text that is fed in chunks."""
    return torch.cat([layer(part, cache=cache, **call) for part in x.split(chunks, 1)], 1)


@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=CHUNKS)
@pytest.mark.parametrize(
    "options",
    [{}, {"rotary": gh.Rotary(2)}, {"bias": gh.ALiBi(6)}],
    ids=["plain", "turned", "alibi"],
)
class TestExact:
    def test_in_chunks_equals_whole(self, options, chunks):
        layer, cache = windowed(**options), gh.KeyValueCache()
        x = torch.randn(2, LENGTH, D_MODEL).double()
        torch.testing.assert_close(fed(layer, x, chunks, cache), layer(x))
        assert (cache.length, cache.count) == (LENGTH, REACH)

    def test_what_pads_is_hidden_where_it_stood(self, options, chunks):
        layer, cache = windowed(**options), gh.KeyValueCache()
        x, unseen = torch.randn(3, LENGTH, D_MODEL).double(), ~gh.prefix([0, 4, 73])
        torch.testing.assert_close(fed(layer, x, chunks, cache, mask=unseen), layer(x, mask=unseen))
        assert cache.count == REACH


class TestMemory:
    def test_does_not_grow_with_the_text(self):
        layer, cache, taken = windowed().float(), gh.KeyValueCache(), set()
        with torch.inference_mode():
            for part in torch.randn(1, 3 * LENGTH, D_MODEL).split(1, 1):
                layer(part, cache=cache)
                taken.add(cache.memory)
        # 16 places of two heads of two numbers of four bytes, keys and values.
        assert taken == {2 * 16 * 2 * 2 * 4}

    def test_is_given_back_after_a_long_prompt(self):
        layer, cache = windowed().float(), gh.KeyValueCache()
        layer(torch.randn(1, 3 * LENGTH, D_MODEL), cache=cache)
        assert cache.memory == 2 * 16 * 2 * 2 * 4

    def test_a_token_costs_no_copy_of_those_before_it(self):
        layer, cache = windowed(), gh.KeyValueCache()
        layer(torch.randn(1, 40, D_MODEL).double(), cache=cache)
        buffers = []
        for part in torch.randn(1, 100, D_MODEL).double().split(1, 1):
            layer(part, cache=cache)
            if all(cache._keys._buffer is not one for one in buffers):
                buffers.append(cache._keys._buffer)
        # Of 16 places, 5 are held when memory is made again, and 11 are free.
        assert len(buffers) == 1 + 100 // 11

    def test_of_no_window_is_all(self):
        layer, cache = self_attention(gh.causal()), gh.KeyValueCache()
        layer(torch.randn(1, LENGTH, D_MODEL).double(), cache=cache)
        assert cache.count == cache.length == LENGTH


def test_a_window_of_the_token_alone():
    layer, cache = self_attention(gh.window(before=0)), gh.KeyValueCache()
    x = torch.randn(2, 17, D_MODEL).double()
    torch.testing.assert_close(fed(layer, x, [1] * 17, cache), layer(x))
    assert (cache.length, cache.count) == (17, 0)


def test_reordered_rows_go_on_where_they_were():
    layer, rows = windowed(rotary=gh.Rotary(2)), torch.tensor([2, 0, 0, 1])
    x, more = torch.randn(3, 29, D_MODEL).double(), torch.randn(4, 23, D_MODEL).double()
    cache = gh.KeyValueCache()
    fed(layer, x, [17, 12], cache)
    cache.reorder(rows)
    found = fed(layer, more, [1, 22], cache)
    torch.testing.assert_close(found, layer(torch.cat([x[rows], more], 1))[:, 29:])


def test_a_bias_of_the_call_is_that_of_the_whole_text():
    layer, cache, bias = windowed(), gh.KeyValueCache(), torch.randn(6, 29, 29).double()
    x = torch.randn(2, 29, D_MODEL).double()
    parts = [
        layer(x[:, start:stop], cache=cache, bias=bias[:, start:stop, :stop])
        for start, stop in ((0, 11), (11, 12), (12, 29))
    ]
    torch.testing.assert_close(torch.cat(parts, 1), layer(x, bias=bias))


@pytest.mark.parametrize(
    ("rule", "reach"),
    [
        (gh.Attention(), None),
        (gh.Attention(mask=gh.causal()), None),
        (gh.Attention(mask=gh.window(before=7)), 7),
        (gh.Attention(mask=gh.window(before=7, after=None)), 7),
        (gh.Attention(mask=gh.causal() & gh.window(before=7) & gh.window(before=3)), 3),
        (gh.Attention(mask=gh.causal() & gh.window(before=7), bias=gh.ALiBi(6)), 7),
        # What reads more than distances is not to lose a key.
        (gh.Attention(mask=gh.window(before=7, offset=0)), None),
        (gh.Attention(mask=gh.window(before=7) | gh.prefix(2)), None),
        (gh.Attention(mask=gh.window(before=7) & gh.prefix(20)), None),
        (gh.Attention(mask=gh.window(before=7), bias=torch.zeros(3, 3)), None),
    ],
)
def test_how_far_back_a_rule_looks(rule, reach):
    assert lookback(rule) == reach


class TestOfAModel:
    def test_sliding_windows_through_layers_equal_the_whole_text(self):
        config = gh.LanguageModelConfig(
            vocab_size=23,
            context_length=LENGTH,
            d_model=12,
            num_heads=3,
            num_layers=3,
            positions="rotary",
            window=REACH + 1,
            dropout=0.0,
        )
        model, cache = gh.LanguageModel(config).eval(), gh.KVCache()
        tokens, padding = torch.randint(23, (3, LENGTH)), torch.tensor([0, 3, 61])
        with torch.no_grad():
            parts = [
                model(part, padding=padding, cache=cache)
                for part in tokens.split([71, *[1] * 18], 1)
            ]
            found, whole = torch.cat(parts, 1), model(tokens, padding=padding)
        for row, pads in enumerate(padding):
            torch.testing.assert_close(found[row, pads:], whole[row, pads:], rtol=1e-5, atol=1e-5)
        assert (cache.length, cache.count) == (LENGTH, REACH)
