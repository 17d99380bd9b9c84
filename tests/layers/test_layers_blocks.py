"""Feed-forwards and residuals by their formulas, and blocks that go token by token."""

import copy
import pickle
import shutil

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
from layers.torch_names import loud

BATCH, LENGTH, D_MODEL, HIDDEN = 2, 7, 12, 31


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def encoder_block(rule=None, **options):
    attention = gh.MultiHeadAttention(D_MODEL, 3, attention=rule, rotary=gh.Rotary(4))
    return gh.EncoderBlock(attention, gh.GatedFeedForward(D_MODEL, HIDDEN), **options)


def decoder_block(**options):
    causal = gh.Attention(mask=gh.causal())
    return gh.DecoderBlock(
        gh.MultiHeadAttention(D_MODEL, 3, attention=causal),
        gh.MultiHeadAttention(D_MODEL, 2, d_input=(D_MODEL, 5, 5)),
        gh.FeedForward(D_MODEL, HIDDEN),
        **options,
    )


class TestFeedForward:
    @pytest.mark.parametrize("bias", [True, False])
    @pytest.mark.parametrize("activation", [F.relu, F.gelu, torch.tanh])
    def test_by_its_formula(self, activation, bias):
        layer = loud(gh.FeedForward(5, 13, activation=activation, bias=bias))
        x, parameters = randn(2, 7, 5), dict(layer.named_parameters())
        b_1, b_2 = (parameters.get(f"{name}.bias", 0.0) for name in ("hidden", "output"))
        W_1, W_2 = layer.hidden.weight, layer.output.weight
        torch.testing.assert_close(layer(x), activation(x @ W_1.T + b_1) @ W_2.T + b_2)
        assert len(parameters) == (4 if bias else 2)

    def test_is_a_convolution_one_position_wide(self):
        layer, x = loud(gh.FeedForward(5, 13)), randn(2, 7, 5)
        first, second = nn.Conv1d(5, 13, 1).double(), nn.Conv1d(13, 5, 1).double()
        for convolution, linear in ((first, layer.hidden), (second, layer.output)):
            convolution.load_state_dict({"weight": linear.weight[..., None], "bias": linear.bias})
        torch.testing.assert_close(layer(x), second(first(x.mT).relu()).mT)

    def test_by_hand(self):
        layer = gh.FeedForward(1, 2)
        layer.load_state_dict(
            {
                "hidden.weight": torch.tensor([[2.0], [-1.0]]),
                "hidden.bias": torch.tensor([1.0, 0.5]),
                "output.weight": torch.tensor([[3.0, 5.0]]),
                "output.bias": torch.tensor([-1.0]),
            }
        )
        # 3 · max(0, 2·1 + 1) + 5 · max(0, -1 + 0.5) - 1;  3 · 0 + 5 · 2.5 - 1
        assert layer(torch.tensor([[1.0], [-2.0]])).tolist() == [[8.0], [11.5]]

    @pytest.mark.parametrize("bias", [True, False])
    @pytest.mark.parametrize("activation", [F.silu, F.gelu])
    def test_gated_by_its_formula(self, activation, bias):
        layer = loud(gh.GatedFeedForward(5, 13, activation=activation, bias=bias))
        x, ((W_g, b_g), (W_1, b_1)) = randn(2, 7, 5), layer.hidden.maps()
        hidden = activation(F.linear(x, W_g, b_g)) * F.linear(x, W_1, b_1)
        torch.testing.assert_close(
            layer(x), F.linear(hidden, layer.output.weight, layer.output.bias)
        )
        assert sum(p.numel() for p in layer.parameters()) == 3 * 5 * 13 + bias * (2 * 13 + 5)

    def test_swiglu_by_hand(self):
        layer = gh.GatedFeedForward(1, 1)
        layer.load_state_dict(
            {
                "hidden.stacks.0.weight": torch.tensor([[2.0], [3.0]]),
                "output.weight": torch.tensor([[5.0]]),
            }
        )
        # silu(2) · 3 · 5, with silu(2) = 2 / (1 + e^-2)
        assert layer(torch.tensor([1.0])).item() == pytest.approx(5 * 3 * 1.7615942)

    @pytest.mark.parametrize("kind", [gh.FeedForward, gh.GatedFeedForward])
    def test_drops_hidden_numbers_in_training_only(self, kind):
        layer, x = kind(5, 1009, dropout=0.25), torch.ones(5)
        seen = []
        layer.output.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
        layer(x), layer.eval()(x)
        dropped, whole = seen
        kept = dropped != 0
        torch.testing.assert_close(dropped[kept], whole[kept] / 0.75)
        assert (whole[~kept] != 0).any()


class TestBlocks:
    @pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm])
    def test_post_norm_by_its_formula(self, norm):
        block, x = loud(encoder_block(norm=norm)), randn(BATCH, LENGTH, D_MODEL)
        y = block.around_attention.norm(x + block.attention(x))
        expected = block.around_feed_forward.norm(y + block.feed_forward(y))
        torch.testing.assert_close(block(x), expected)
        assert isinstance(block.around_attention.norm, norm)

    @pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm])
    def test_pre_norm_by_its_formula(self, norm):
        block = loud(encoder_block(norm=norm, residual=gh.PreNorm))
        x = randn(BATCH, LENGTH, D_MODEL)
        y = x + block.attention(block.around_attention.norm(x))
        expected = y + block.feed_forward(block.around_feed_forward.norm(y))
        torch.testing.assert_close(block(x), expected)

    def test_norms_of_outputs_by_their_formula(self):
        x = randn(BATCH, LENGTH, D_MODEL)
        block = loud(encoder_block(residual=gh.ResPostNorm))
        y = x + block.around_attention.norm(block.attention(x))
        expected = y + block.around_feed_forward.norm(block.feed_forward(y))
        torch.testing.assert_close(block(x), expected)
        block = loud(encoder_block(residual=gh.SandwichNorm))
        one, other = block.around_attention, block.around_feed_forward
        y = x + one.after(block.attention(one.norm(x)))
        expected = y + other.after(block.feed_forward(other.norm(y)))
        torch.testing.assert_close(block(x), expected)
        norms = {one.norm, one.after, other.norm, other.after}
        assert len({norm.weight.data_ptr() for norm in norms}) == 4

    def test_a_parallel_block_by_its_formula(self):
        block, x = loud(encoder_block(residual=gh.PreNorm, parallel=True)), randn(2, 7, D_MODEL)
        attended = block.attention(block.around_attention.norm(x))
        fed = block.feed_forward(block.around_feed_forward.norm(x))
        torch.testing.assert_close(block(x), x + attended + fed)

    def test_a_parallel_block_adds_updates(self):
        with pytest.raises(ValueError, match="a residual that adds updates, .*, got PostNorm"):
            encoder_block(parallel=True)

    def test_a_decoder_block_by_its_formula(self):
        block, x = loud(decoder_block(residual=gh.PreNorm)), randn(BATCH, LENGTH, D_MODEL)
        source, mask, source_mask = randn(BATCH, 11, 5), gh.padding([7, 3]), gh.padding([2, 11])
        y = x + block.attention(block.around_attention.norm(x), mask=mask)
        asked = block.around_cross_attention.norm(y)
        y = y + block.cross_attention(asked, source, mask=source_mask)
        expected = y + block.feed_forward(block.around_feed_forward.norm(y))
        torch.testing.assert_close(block(x, source, mask=mask, source_mask=source_mask), expected)

    @pytest.mark.parametrize("residual", [gh.PreNorm, gh.PostNorm])
    def test_without_a_feed_forward_attention_is_all(self, residual):
        x, source = randn(BATCH, LENGTH, D_MODEL), randn(BATCH, 11, 5)
        block = loud(gh.EncoderBlock(encoder_block().attention, None, residual=residual))
        y = block.around_attention(x, block.attention)
        torch.testing.assert_close(block(x), y)
        whole = decoder_block()
        block = loud(
            gh.DecoderBlock(whole.attention, whole.cross_attention, None, residual=residual)
        )
        y = block.around_attention(x, block.attention)
        y = block.around_cross_attention(y, lambda y: block.cross_attention(y, source))
        torch.testing.assert_close(block(x, source), y)
        assert not [name for name, _ in block.named_parameters() if "feed_forward" in name]

    def test_token_by_token(self):
        x, source = randn(BATCH, LENGTH, D_MODEL), randn(BATCH, 11, 5)
        block, cache = loud(encoder_block(gh.Attention(mask=gh.causal()))), gh.KeyValueCache()
        parts = [block(token, cache=cache) for token in x.split(1, 1)]
        torch.testing.assert_close(torch.cat(parts, 1), block(x))
        block, caches = loud(decoder_block()), (gh.KeyValueCache(), gh.KeyValueCache())
        call = {"source_mask": gh.padding([2, 11])}
        cached = call | {"cache": caches[0], "source_cache": caches[1]}
        parts = [block(token, source, **cached) for token in x.split([1, 5, 1], 1)]
        torch.testing.assert_close(torch.cat(parts, 1), block(x, source, **call))
        assert [cache.length for cache in caches] == [LENGTH, 11]

    @pytest.mark.parametrize("residual", [gh.PostNorm, gh.PreNorm, gh.ResPostNorm, gh.SandwichNorm])
    def test_drops_what_a_sublayer_adds_in_training_only(self, residual):
        around, x = residual(nn.Identity(), dropout=0.25), torch.zeros(1009)
        added = around(x, torch.ones_like)
        assert (added == 0).any()
        torch.testing.assert_close(added[added != 0], torch.full_like(added[added != 0], 1 / 0.75))
        assert torch.equal(around.eval()(x, torch.ones_like), torch.ones(1009))

    @pytest.mark.parametrize("build", [encoder_block, decoder_block])
    def test_the_dropout_of_a_block_is_that_of_each_sublayer(self, build):
        block = build(dropout=0.25)
        found = [getattr(block, name).dropout.p for name in dir(block) if name.startswith("around")]
        assert found == [0.25] * (2 if build is encoder_block else 3)

    def test_a_source_of_no_words_adds_nothing_that_is_not_finite(self):
        block, x, source = decoder_block(), torch.randn(2, 7, D_MODEL), torch.randn(2, 11, 5)
        found = block(x, source, source_mask=gh.padding([0, 11]))
        found.sum().backward()
        assert torch.isfinite(found).all()
        assert all(torch.isfinite(p.grad).all() for p in block.parameters())


class TestCitizen:
    def test_copies_pickles_and_loads(self):
        block, x = encoder_block(), torch.randn(BATCH, LENGTH, D_MODEL)
        expected = block(x)
        assert torch.equal(copy.deepcopy(block)(x), expected)
        assert torch.equal(pickle.loads(pickle.dumps(block))(x), expected)
        fresh = encoder_block()
        fresh.load_state_dict(block.state_dict())
        assert torch.equal(fresh(x), expected)

    def test_traces_whole(self):
        torch.compiler.reset()
        block, x = decoder_block(), torch.randn(BATCH, LENGTH, D_MODEL)
        source = torch.randn(BATCH, 11, 5)
        traced = torch.compile(block, fullgraph=True, backend="eager")
        torch.testing.assert_close(traced(x, source), block(x, source))

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")
    @pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile wants a C++ compiler")
    def test_compiled_code_is_the_block(self):
        torch.compiler.reset()
        causal, rotary = gh.Attention(mask=gh.causal()), gh.Rotary(2)
        attention = gh.MultiHeadAttention(4, 2, attention=causal, rotary=rotary)
        block, x = gh.EncoderBlock(attention, gh.FeedForward(4, 5)), torch.randn(2, 3, 4)
        with torch.no_grad(), torch._inductor.config.patch(compile_threads=1):
            torch.testing.assert_close(torch.compile(block, fullgraph=True)(x), block(x))
