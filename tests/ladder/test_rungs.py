"""Each rung is projections and `Attention`, and the rung below with one idea more."""

import pytest
import torch
from torch import nn

import glasshead as gh
from glasshead.ladder import (
    CausalAttention,
    EncoderMultiHeadAttention,
    MultiHeadAttention,
    MultiHeadAttentionWrapper,
    ScaledDotProductAttention,
    SelfAttentionV1,
    SelfAttentionV2,
    simple_self_attention,
)

BATCH, TOKENS, D_IN, HEADS, HEAD_DIM = 2, 7, 5, 3, 11
D_OUT = HEADS * HEAD_DIM
CONTEXT_LENGTH = 13


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20170612)


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def split(x):
    return x.reshape(*x.shape[:2], HEADS, HEAD_DIM).transpose(1, 2)


def group(x):
    return x.transpose(1, 2).reshape(x.shape[0], -1, D_OUT)


def assert_same_value_and_gradients(actual, expected, leaves):
    """Both results, and the gradient of both by every leaf, are equal."""
    torch.testing.assert_close(actual, expected)
    upstream = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(actual, leaves, upstream),
        torch.autograd.grad(expected, leaves, upstream),
    )


class TestEachRungIsProjectionsAndAttention:
    def test_simple_self_attention(self):
        x = randn(TOKENS, D_IN)
        expected = gh.Attention(score=gh.Dot())(x, x, x)
        assert_same_value_and_gradients(simple_self_attention(x), expected, [x])

    def test_self_attention_v1(self):
        rung, x = SelfAttentionV1(D_IN, HEAD_DIM).double(), randn(TOKENS, D_IN)
        expected = gh.Attention()(x @ rung.W_query, x @ rung.W_key, x @ rung.W_value)
        assert_same_value_and_gradients(rung(x), expected, [x, *rung.parameters()])

    @pytest.mark.parametrize("qkv_bias", [False, True])
    def test_self_attention_v2(self, qkv_bias):
        rung, x = SelfAttentionV2(D_IN, HEAD_DIM, qkv_bias).double(), randn(TOKENS, D_IN)
        expected = gh.Attention()(rung.W_query(x), rung.W_key(x), rung.W_value(x))
        assert_same_value_and_gradients(rung(x), expected, [x, *rung.parameters()])

    @pytest.mark.parametrize("tokens", [1, TOKENS, CONTEXT_LENGTH])
    def test_causal_attention(self, tokens):
        rung = CausalAttention(D_IN, HEAD_DIM, CONTEXT_LENGTH, dropout=0.0).double()
        x = randn(BATCH, tokens, D_IN)
        attention = gh.Attention(mask=gh.causal())
        expected = attention(rung.W_query(x), rung.W_key(x), rung.W_value(x))
        assert_same_value_and_gradients(rung(x), expected, [x, *rung.parameters()])

    def test_multi_head_attention_wrapper(self):
        rung = MultiHeadAttentionWrapper(D_IN, HEAD_DIM, CONTEXT_LENGTH, 0.0, HEADS).double()
        x = randn(BATCH, TOKENS, D_IN)
        queries, keys, values = (
            torch.stack([getattr(head, name)(x) for head in rung.heads], dim=1)
            for name in ("W_query", "W_key", "W_value")
        )
        expected = group(gh.Attention(mask=gh.causal())(queries, keys, values))
        assert_same_value_and_gradients(rung(x), expected, [x, *rung.parameters()])

    @pytest.mark.parametrize("tokens", [1, TOKENS, CONTEXT_LENGTH])
    def test_multi_head_attention(self, tokens):
        rung = MultiHeadAttention(D_IN, D_OUT, CONTEXT_LENGTH, 0.0, HEADS).double()
        x = randn(BATCH, tokens, D_IN)
        heads = split(rung.W_query(x)), split(rung.W_key(x)), split(rung.W_value(x))
        expected = rung.out_proj(group(gh.Attention(mask=gh.causal())(*heads)))
        assert_same_value_and_gradients(rung(x), expected, [x, *rung.parameters()])

    def test_encoder_multi_head_attention(self):
        rung = EncoderMultiHeadAttention(D_OUT, HEADS, p=0.0, d_input=(5, 17, 19)).double()
        X_q, X_k, X_v = randn(BATCH, 7, 5), randn(BATCH, 13, 17), randn(BATCH, 13, 19)
        steps = gh.Attention().trace(
            split(rung.W_q(X_q)), split(rung.W_k(X_k)), split(rung.W_v(X_v))
        )
        H, A = rung(X_q, X_k, X_v)
        # In one, so that the gradient runs through the contexts and the weights at once.
        actual = torch.cat([H.flatten(), A.flatten()])
        expected = torch.cat([rung.W_h(group(steps.context)).flatten(), steps.weights.flatten()])
        assert_same_value_and_gradients(actual, expected, [X_q, X_k, X_v, *rung.parameters()])
        assert A.shape == steps.weights.shape


class TestEachRungIsTheOneBelowWithOneIdeaMore:
    def test_rung_2_is_rung_1_where_its_matrices_change_nothing(self):
        x = randn(TOKENS, D_IN)
        rung = SelfAttentionV1(D_IN, D_IN).double()
        with torch.no_grad():
            for matrix in rung.parameters():
                matrix.copy_(torch.eye(D_IN))
            rung.W_query.mul_(D_IN**0.5)
        torch.testing.assert_close(rung(x), simple_self_attention(x))

    def test_rung_3_is_rung_2_with_its_matrices_transposed(self):
        x = randn(TOKENS, D_IN)
        below, rung = (
            SelfAttentionV1(D_IN, HEAD_DIM).double(),
            SelfAttentionV2(D_IN, HEAD_DIM).double(),
        )
        with torch.no_grad():
            for name, matrix in below.named_parameters():
                getattr(rung, name).weight.copy_(matrix.T)
        torch.testing.assert_close(rung(x), below(x))

    def test_rung_3_has_two_names(self):
        assert ScaledDotProductAttention is SelfAttentionV2

    def test_rung_4_is_rung_3_on_what_each_word_may_see(self):
        x = randn(BATCH, TOKENS, D_IN)
        rung = CausalAttention(D_IN, HEAD_DIM, CONTEXT_LENGTH, 0.0, qkv_bias=True).double()
        below = SelfAttentionV2(D_IN, HEAD_DIM, qkv_bias=True).double()
        below.load_state_dict({n: p for n, p in rung.state_dict().items() if n != "mask"})
        each_word = [[below(words[: i + 1])[i] for i in range(TOKENS)] for words in x]
        torch.testing.assert_close(rung(x), torch.stack([torch.stack(rows) for rows in each_word]))

    def test_rung_5_of_one_head_is_rung_4(self):
        x = randn(BATCH, TOKENS, D_IN)
        rung = MultiHeadAttentionWrapper(D_IN, HEAD_DIM, CONTEXT_LENGTH, 0.0, 1, True).double()
        below = CausalAttention(D_IN, HEAD_DIM, CONTEXT_LENGTH, 0.0, True).double()
        below.load_state_dict(rung.heads[0].state_dict())
        torch.testing.assert_close(rung(x), below(x))

    def test_rung_6_is_rung_5_with_its_matrices_stacked(self):
        x = randn(BATCH, TOKENS, D_IN)
        rung = MultiHeadAttention(D_IN, D_OUT, CONTEXT_LENGTH, 0.0, HEADS, True).double()
        below = MultiHeadAttentionWrapper(D_IN, HEAD_DIM, CONTEXT_LENGTH, 0.0, HEADS, True).double()
        with torch.no_grad():
            for name in ("W_query", "W_key", "W_value"):
                for part in ("weight", "bias"):
                    parts = [getattr(getattr(head, name), part) for head in below.heads]
                    getattr(getattr(rung, name), part).copy_(torch.cat(parts))
        torch.testing.assert_close(rung(x), rung.out_proj(below(x)))

    def test_rung_7_is_rung_6_for_the_last_word_from_which_nothing_is_hidden(self):
        x = randn(BATCH, TOKENS, D_IN)
        below = MultiHeadAttention(D_IN, D_OUT, CONTEXT_LENGTH, 0.0, HEADS).double()
        rung = EncoderMultiHeadAttention(D_OUT, HEADS, p=0.0, d_input=D_IN).double()
        twins = {"W_q": "W_query", "W_k": "W_key", "W_v": "W_value", "W_h": "out_proj"}
        for mine, theirs in twins.items():
            getattr(rung, mine).load_state_dict(getattr(below, theirs).state_dict())
        H, _ = rung(x, x, x)
        torch.testing.assert_close(H[:, -1], below(x)[:, -1])
        assert not torch.allclose(H[:, 0], below(x)[:, 0])


class TestDropout:
    """With projections that change nothing and unit vectors as words, a context is its weights."""

    tokens, p = 29, 0.25
    x = torch.eye(tokens)[None]

    def assert_some_dropped_and_the_rest_rescaled(self, dropped, weights):
        kept = dropped != 0
        assert 0 < (~kept & (weights > 0)).sum() < kept.sum()
        torch.testing.assert_close(dropped[kept], weights[kept] / (1 - self.p))

    @pytest.mark.parametrize(
        "rung",
        [
            CausalAttention(tokens, tokens, tokens, p),
            MultiHeadAttention(tokens, tokens, tokens, p, num_heads=1),
        ],
        ids=lambda rung: type(rung).__name__,
    )
    def test_drops_weights_when_training_only(self, rung):
        nn.init.eye_(rung.W_value.weight)
        if isinstance(rung, MultiHeadAttention):
            nn.init.eye_(rung.out_proj.weight)
            nn.init.zeros_(rung.out_proj.bias)
        weights = rung.eval()(self.x)
        torch.testing.assert_close(weights.sum(-1), torch.ones(1, self.tokens))
        self.assert_some_dropped_and_the_rest_rescaled(rung.train()(self.x), weights)

    def test_rung_7_hands_back_the_weights_before_dropout(self):
        rung = EncoderMultiHeadAttention(self.tokens, num_heads=1, p=self.p)
        nn.init.eye_(rung.W_v.weight)
        nn.init.eye_(rung.W_h.weight)
        nn.init.zeros_(rung.W_h.bias)
        weights, A = rung.eval()(self.x, self.x, self.x)
        torch.testing.assert_close(weights, A[:, 0])
        dropped, A_training = rung.train()(self.x, self.x, self.x)
        assert torch.equal(A_training, A)
        self.assert_some_dropped_and_the_rest_rescaled(dropped, weights)

    def test_the_wrapper_gives_dropout_to_every_head(self):
        rung = MultiHeadAttentionWrapper(D_IN, HEAD_DIM, CONTEXT_LENGTH, self.p, HEADS)
        assert [head.dropout.p for head in rung.heads] == [self.p] * HEADS


class TestEncoderWidths:
    @pytest.mark.parametrize(
        ("d_input", "widths"), [(None, (6, 6, 6)), (5, (5, 5, 5)), ([2, 3, 5], (2, 3, 5))]
    )
    def test_of_the_three_inputs(self, d_input, widths):
        rung = EncoderMultiHeadAttention(6, 2, p=0.0, d_input=d_input)
        assert (rung.W_q.in_features, rung.W_k.in_features, rung.W_v.in_features) == widths

    def test_only_the_last_projection_has_a_bias(self):
        names = {name for name, _ in EncoderMultiHeadAttention(6, 2, p=0.0).named_parameters()}
        assert names == {"W_q.weight", "W_k.weight", "W_v.weight", "W_h.weight", "W_h.bias"}


def test_the_mask_is_saved_and_moves_with_the_module():
    for rung in (CausalAttention(3, 2, 5, 0.0), MultiHeadAttention(3, 2, 5, 0.0, 1)):
        assert "mask" in rung.state_dict()
        assert rung.to("meta").mask.is_meta


class TestErrors:
    def test_words_as_integers(self):
        with pytest.raises(
            TypeError, match=r"floating-point numbers, got torch.int64\. Pass x\.float\(\)\."
        ):
            simple_self_attention(torch.eye(3, dtype=torch.int64))

    def test_one_word_instead_of_a_sentence(self):
        with pytest.raises(ValueError, match=r"x must be \[tokens, d\], got \[3\]"):
            simple_self_attention(torch.ones(3))

    @pytest.mark.parametrize("rung", [SelfAttentionV1(3, 2), SelfAttentionV2(3, 2)])
    @pytest.mark.parametrize("shape", [(6, 4), (1, 6, 3), (3,)])
    def test_one_sentence_of_other_shape(self, rung, shape):
        got = ", ".join(map(str, shape))
        with pytest.raises(ValueError, match=rf"x must be \[tokens, 3\], got \[{got}\]\. Pass one"):
            rung(torch.ones(shape))

    @pytest.mark.parametrize(
        "rung", [CausalAttention(3, 2, 5, 0.0), MultiHeadAttention(3, 2, 5, 0.0, num_heads=2)]
    )
    class TestCausal:
        @pytest.mark.parametrize("shape", [(5, 3), (1, 5, 4), (1, 1, 5, 3)])
        def test_batch_of_other_shape(self, rung, shape):
            got = ", ".join(map(str, shape))
            expected = rf"x must be \[batch, tokens, 3\], got \[{got}\]\. Pass one sentence as x"
            with pytest.raises(ValueError, match=expected):
                rung(torch.ones(shape))

        def test_sentence_longer_than_the_context(self, rung):
            expected = r"at most context_length=5 tokens, got 7\. Shorten x, .* context_length=7"
            with pytest.raises(ValueError, match=expected):
                rung(torch.ones(1, 7, 3))

    @pytest.mark.parametrize("num_heads", [0, -2, 3])
    def test_heads_that_do_not_divide_the_width(self, num_heads):
        with pytest.raises(ValueError, match=rf"got d_out=8 and num_heads={num_heads}\. Choose"):
            MultiHeadAttention(3, 8, 5, 0.0, num_heads)
        with pytest.raises(ValueError, match=rf"got d_model=8 and num_heads={num_heads}\. Choose"):
            EncoderMultiHeadAttention(8, num_heads, 0.0)

    def test_no_heads_at_all(self):
        with pytest.raises(ValueError, match="num_heads must be at least 1, got 0"):
            MultiHeadAttentionWrapper(3, 2, 5, 0.0, num_heads=0)

    @pytest.mark.parametrize(
        "build",
        [
            lambda p: CausalAttention(3, 2, 5, p),
            lambda p: MultiHeadAttention(3, 2, 5, p, 1),
            lambda p: EncoderMultiHeadAttention(4, 2, p),
        ],
    )
    def test_dropout_that_is_no_probability(self, build):
        with pytest.raises(ValueError, match=r"between 0 and 1, but got 1\.5"):
            build(1.5)

    def test_two_widths_for_three_inputs(self):
        with pytest.raises(
            ValueError, match=r"one width or three, got \(3, 4\)\. Name the widths of X_q"
        ):
            EncoderMultiHeadAttention(4, 2, 0.0, d_input=(3, 4))

    @pytest.mark.parametrize(
        ("name", "width", "shapes"),
        [
            ("X_q", 2, [(1, 7, 3), (1, 11, 3), (1, 11, 5)]),
            ("X_k", 3, [(1, 7, 2), (11, 3), (1, 11, 5)]),
            ("X_v", 5, [(1, 7, 2), (1, 11, 3), (1, 11, 3)]),
        ],
    )
    def test_input_of_other_width(self, name, width, shapes):
        rung = EncoderMultiHeadAttention(4, 2, 0.0, d_input=(2, 3, 5))
        with pytest.raises(ValueError, match=rf"{name} must be \[batch, length, {width}\], got \["):
            rung(*map(torch.ones, shapes))

    @pytest.mark.parametrize(
        "shapes",
        [
            [(2, 7, 4), (2, 11, 4), (2, 13, 4)],
            [(1, 7, 4), (2, 11, 4), (2, 11, 4)],
            [(2, 7, 4), (2, 11, 4), (1, 11, 4)],
        ],
        ids=["lengths", "batch of queries", "batch of values"],
    )
    def test_inputs_that_do_not_fit_one_another(self, shapes):
        with pytest.raises(
            ValueError, match="must have one batch size, and X_k and X_v one length"
        ):
            EncoderMultiHeadAttention(4, 2, 0.0)(*map(torch.ones, shapes))
