"""With a cache, token by token and chunk by chunk, each finds what it finds in the whole text."""

import pytest
import torch

import glasshead as gh
from layers.torch_names import loud

BATCH, LENGTH, KEYS, D_MODEL = 3, 37, 7, 12


def self_attention(**options):
    rule = gh.Attention(mask=gh.causal())
    return loud(gh.MultiHeadAttention(D_MODEL, 6, attention=rule, **options))


def fed(layer, x, chunks, cache=None, **call):
    """The results of a text that is fed in chunks."""
    cache = gh.KeyValueCache() if cache is None else cache
    return torch.cat([layer(part, cache=cache, **call) for part in x.split(chunks, 1)], 1)


class TestSelfAttention:
    # The buffer's first 16 rows are passed by single tokens, and by a chunk.
    CHUNKS = ([1] * LENGTH, [5, 11, 1, 1, 19], [2, 35], [LENGTH])

    @pytest.mark.parametrize("chunks", CHUNKS, ids=["tokens", "chunks", "a long one", "whole"])
    @pytest.mark.parametrize(
        "options",
        [{}, {"num_kv_heads": 2}, {"rotary": gh.Rotary(2)}, {"head_dim": 5, "bias": False}],
        ids=["plain", "shared keys", "turned", "other width"],
    )
    def test_in_chunks_equals_whole(self, options, chunks):
        layer, x = self_attention(**options), torch.randn(BATCH, LENGTH, D_MODEL).double()
        torch.testing.assert_close(fed(layer, x, chunks), layer(x))
        torch.testing.assert_close(
            fed(layer.float(), x.float(), chunks).double(), layer.double()(x), rtol=1e-5, atol=1e-5
        )

    def test_with_a_bias_and_a_mask_of_the_whole_text(self):
        rule = gh.Attention(mask=gh.causal() & gh.window(before=4), bias=gh.ALiBi(6))
        layer = loud(gh.MultiHeadAttention(D_MODEL, 6, attention=rule))
        x = torch.randn(BATCH, LENGTH, D_MODEL).double()
        unseen = ~gh.prefix([0, 2, 5])
        torch.testing.assert_close(fed(layer, x, [3, 1, 33], mask=unseen), layer(x, mask=unseen))

    @pytest.mark.parametrize("rows", [[2, 0, 1], [1, 1, 0], [2], [0, 1, 2, 2, 0]])
    def test_reordered_rows_go_on_where_they_were(self, rows):
        layer, rows = self_attention(rotary=gh.Rotary(2)), torch.tensor(rows)
        x, more = torch.randn(BATCH, 5, D_MODEL), torch.randn(len(rows), 29, D_MODEL)
        x, more, cache = x.double(), more.double(), gh.KeyValueCache()
        layer(x, cache=cache)
        cache.reorder(rows)
        found = fed(layer, more, [1, 28], cache)
        torch.testing.assert_close(found, layer(torch.cat([x[rows], more], 1))[:, 5:])

    def test_an_empty_cache_may_be_reordered(self):
        cache = gh.KeyValueCache()
        cache.reorder(torch.tensor([1, 0]))
        assert cache.length == 0

    def test_it_holds_what_was_fed(self):
        layer, cache = self_attention(num_kv_heads=2), gh.KeyValueCache()
        x = torch.randn(BATCH, LENGTH, D_MODEL).double()
        fed(layer, x, [5, 32], cache)
        assert cache.length == LENGTH
        torch.testing.assert_close(cache.held, layer.heads(x)[1:])
        assert not any(part.requires_grad for part in cache.held)

    def test_what_was_held_does_not_change_with_what_is_appended(self):
        cache, first = gh.KeyValueCache(), torch.randn(2, 3, 5, 7)
        keys, values = cache.append(first, 2 * first)
        for _ in range(13):
            cache.append(torch.randn(2, 3, 1, 7), torch.randn(2, 3, 1, 7))
        assert torch.equal(keys, first)
        assert torch.equal(values, 2 * first)
        assert cache.length == 18

    def test_works_in_inference_mode(self):
        layer, x = self_attention(rotary=gh.Rotary(2)), torch.randn(2, 19, D_MODEL).double()
        with torch.inference_mode():
            found = fed(layer, x, [1, 18])
        torch.testing.assert_close(found, layer(x))

    @pytest.mark.parametrize("reordered", [False, True])
    def test_what_was_begun_in_inference_mode_goes_on_outside(self, reordered):
        layer, x = self_attention(rotary=gh.Rotary(2)), torch.randn(2, 19, D_MODEL).double()
        cache, (first, *others) = gh.KeyValueCache(), x.split([3, 1, 15], 1)
        with torch.inference_mode():
            parts = [layer(first, cache=cache)]
            if reordered:
                cache.reorder(torch.tensor([0, 1]))
        with torch.no_grad():
            parts += [layer(part, cache=cache) for part in others]
            torch.testing.assert_close(torch.cat(parts, 1), layer(x))


class TestCrossAttention:
    @pytest.mark.parametrize("num_kv_heads", [2, 6])
    def test_keys_are_projected_once(self, num_kv_heads):
        layer = loud(gh.MultiHeadAttention(D_MODEL, 6, num_kv_heads, d_input=(D_MODEL, 5, 7)))
        x = torch.randn(BATCH, LENGTH, D_MODEL).double()
        key, value = torch.randn(BATCH, KEYS, 5).double(), torch.randn(BATCH, KEYS, 7).double()
        mask, cache = gh.padding([7, 3, 5]), gh.KeyValueCache()
        expected = layer(x, key, value, mask=mask)
        first, *others = x.split([2, 1, 34], 1)
        parts = [layer(first, key, value, mask=mask, cache=cache)]
        # Were they projected again, the results would be NaN.
        key.fill_(torch.nan), value.fill_(torch.nan)
        parts += [layer(part, key, value, mask=mask, cache=cache) for part in others]
        torch.testing.assert_close(torch.cat(parts, 1), expected)
        assert cache.length == KEYS

    def test_reordered_rows_look_at_their_own_source(self):
        layer, rows = loud(gh.MultiHeadAttention(D_MODEL, 6)), torch.tensor([2, 0, 0, 1])
        source = torch.randn(BATCH, KEYS, D_MODEL).double()
        cache, x = gh.KeyValueCache(), torch.randn(4, 5, D_MODEL).double()
        layer(x[:BATCH], source, cache=cache)
        cache.reorder(rows)
        torch.testing.assert_close(layer(x, source[rows], cache=cache), layer(x, source[rows]))

    def test_a_rotary_is_refused(self):
        layer = gh.MultiHeadAttention(D_MODEL, 6, rotary=gh.Rotary(2))
        x = torch.randn(BATCH, 5, D_MODEL)
        with pytest.raises(ValueError, match="cross-attention needs an attention without rotary"):
            layer(x, x, cache=gh.KeyValueCache())


class TestOfAModel:
    def test_reorders_every_attention(self):
        cache, x = gh.KVCache(), torch.arange(3.0).reshape(3, 1, 1, 1)
        ones = [caches[layer] for caches in (cache.own, cache.crossed) for layer in range(2)]
        for one in ones:
            one.append(x, -x)
        cache.reorder(torch.tensor([2, 2, 0, 1]))
        assert cache.length == 1
        for one in ones:
            keys, values = one.held
            assert keys.flatten().tolist() == [2, 2, 0, 1]
            assert values.flatten().tolist() == [-2, -2, 0, -1]


class TestErrors:
    def test_an_empty_cache_holds_nothing(self):
        with pytest.raises(ValueError, match=r"this cache is empty\. Run the attention with it"):
            _ = gh.KeyValueCache().held

    def test_another_number_of_rows(self):
        layer, cache = self_attention(), gh.KeyValueCache()
        layer(torch.randn(BATCH, 5, D_MODEL).double(), cache=cache)
        with pytest.raises(
            ValueError, match=r"this cache needs batches of 3 rows, got 2\. Create a"
        ):
            layer(torch.randn(2, 1, D_MODEL).double(), cache=cache)
        assert cache.length == 5


@pytest.mark.parametrize("policy", [None, gh.TOVA(3)])
class TestWhatDoesNotFit:
    TOKENS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])

    def model(self, **changes):
        sizes = {"vocab_size": 11, "d_model": 12, "num_heads": 3, "num_layers": 2}
        return gh.LanguageModel(gh.LanguageModelConfig(**sizes | changes)).eval()

    def fed(self, policy):
        cache = gh.KVCache(policy)
        self.model()(self.TOKENS, cache=cache)
        return cache

    @pytest.mark.parametrize("changes", [{"num_heads": 6}, {"d_model": 24}])
    def test_another_models_cache_is_refused(self, policy, changes):
        with pytest.raises(ValueError, match="this cache needs keys of 3 heads of width 4"):
            self.model(**changes)(self.TOKENS, cache=self.fed(policy))

    @pytest.mark.parametrize("layers", [1, 3])
    def test_a_cache_of_other_layers_is_refused(self, policy, layers):
        with pytest.raises(ValueError, match=rf"all {layers} layers of one model, got 2 with \[5"):
            self.model(num_layers=layers)(self.TOKENS, cache=self.fed(policy))

    def test_what_is_no_cache_is_refused(self, policy):
        with pytest.raises(TypeError, match=r"cache must be made by model\.new_cache\(\), got"):
            self.model()(self.TOKENS, cache=policy or 7)

    def test_rows_that_are_not_there_are_refused(self, policy):
        cache = self.fed(policy)
        for rows in ([2], [0, -1]):
            with pytest.raises(ValueError, match="the rows of reorder must be from 0 to 1, got"):
                cache.reorder(torch.tensor(rows))
        for rows in ([1, 0], torch.tensor([0.5])):
            with pytest.raises(TypeError, match="reorder must be a tensor of whole numbers"):
                cache.reorder(rows)

    def test_no_tokens_change_nothing(self, policy):
        model, cache = self.model(), gh.KVCache(policy)
        for part in (self.TOKENS[:, :0], self.TOKENS, self.TOKENS[:, :0]):
            found = model(part, cache=cache)
            assert found.shape == (*part.shape, 11)
        other = gh.KVCache(policy)
        model(self.TOKENS, cache=other)
        token = self.TOKENS[:, :1]
        assert torch.equal(model(token, cache=cache), model(token, cache=other))
