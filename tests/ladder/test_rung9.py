"""Rung 9 is PyTorch's encoder and the library's with the same weights, and padding is read in it.

Unless it is told the lengths: then padding changes nothing.
"""

import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import glasshead as gh
from glasshead import layers
from glasshead.ladder import (
    CNN,
    Embeddings,
    Encoder,
    EncoderLayer,
    EncoderMultiHeadAttention,
    TransformerClassifier,
    create_sinusoidal_embeddings,
)
from hypothesis_profiles import examples

BATCH, TOKENS, D_MODEL, HEADS, HIDDEN, WORDS, LONGEST, ANSWERS = 3, 7, 10, 2, 13, 17, 11, 5
PADDING = 1


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def words(*shape):
    return torch.randint(2, WORDS, shape)


def an_encoder(num_layers=2, p=0.0):
    return Encoder(num_layers, D_MODEL, HEADS, HIDDEN, WORDS, LONGEST, p).double()


def a_classifier(num_layers=2, p=0.0):
    return TransformerClassifier(num_layers, D_MODEL, HEADS, HIDDEN, WORDS, ANSWERS, p).double()


def in_pytorch(layer):
    """PyTorch's own layer with the same weights; its q, k and v have biases, which stay 0."""
    theirs = nn.TransformerEncoderLayer(
        D_MODEL, HEADS, HIDDEN, dropout=0.0, layer_norm_eps=1e-6, batch_first=True
    ).double()
    pairs = {
        theirs.self_attn.out_proj: layer.mha.W_h,
        theirs.linear1: layer.cnn.k1convL1,
        theirs.linear2: layer.cnn.k1convL2,
        theirs.norm1: layer.layernorm1,
        theirs.norm2: layer.layernorm2,
    }
    with torch.no_grad():
        theirs.self_attn.in_proj_weight.copy_(
            torch.cat([layer.mha.W_q.weight, layer.mha.W_k.weight, layer.mha.W_v.weight])
        )
        for copy, ours in pairs.items():
            copy.load_state_dict(ours.state_dict())
    return theirs


def in_layers(rung):
    """The library's own block with the same weights."""
    block = layers.EncoderBlock(
        layers.MultiHeadAttention.from_module(rung.mha),
        layers.FeedForward(D_MODEL, HIDDEN).double(),
        norm=partial(nn.LayerNorm, eps=1e-6),
    ).double()
    for copy, ours in (
        (block.feed_forward.hidden, rung.cnn.k1convL1),
        (block.feed_forward.output, rung.cnn.k1convL2),
        (block.around_attention.norm, rung.layernorm1),
        (block.around_feed_forward.norm, rung.layernorm2),
    ):
        copy.load_state_dict(ours.state_dict())
    return block


def scramble_norms(module):
    """Give every norm weights of its own, so that swapping two of them is seen."""
    for part in module.modules():
        if isinstance(part, nn.LayerNorm):
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.normal_(part.bias)


class TestTheTwoConvolutions:
    def test_are_convolutions_of_one_word(self):
        cnn, x = CNN(D_MODEL, HIDDEN, p=0.0).double(), randn(BATCH, TOKENS, D_MODEL)
        first, second = (
            nn.Conv1d(D_MODEL, HIDDEN, kernel_size=1).double(),
            nn.Conv1d(HIDDEN, D_MODEL, kernel_size=1).double(),
        )
        with torch.no_grad():
            for convolution, linear in ((first, cnn.k1convL1), (second, cnn.k1convL2)):
                convolution.weight.copy_(linear.weight[..., None])
                convolution.bias.copy_(linear.bias)
        expected = second(first(x.transpose(1, 2)).relu()).transpose(1, 2)
        torch.testing.assert_close(cnn(x), expected)


class TestEncoderLayer:
    def test_is_pytorchs_in_value_and_gradient(self):
        layer, x = EncoderLayer(D_MODEL, HEADS, HIDDEN, p=0.0).double(), randn(5, TOKENS, D_MODEL)
        scramble_norms(layer)
        theirs, upstream = in_pytorch(layer), torch.randn(5, TOKENS, D_MODEL).double()
        actual, expected = layer(x), theirs(x)
        torch.testing.assert_close(actual, expected)

        actual.backward(upstream)
        (x_gradient,) = torch.autograd.grad(expected, x, upstream, retain_graph=True)
        torch.testing.assert_close(x.grad, x_gradient)
        expected.backward(upstream)
        mha, cnn = layer.mha, layer.cnn
        stacked = torch.cat([W.weight.grad for W in (mha.W_q, mha.W_k, mha.W_v)])
        torch.testing.assert_close(stacked, theirs.self_attn.in_proj_weight.grad)
        for ours, copy in (
            (mha.W_h, theirs.self_attn.out_proj),
            (cnn.k1convL1, theirs.linear1),
            (cnn.k1convL2, theirs.linear2),
            (layer.layernorm1, theirs.norm1),
            (layer.layernorm2, theirs.norm2),
        ):
            torch.testing.assert_close(ours.weight.grad, copy.weight.grad)
            torch.testing.assert_close(ours.bias.grad, copy.bias.grad)

    def test_is_the_librarys_block_in_value_and_gradient(self):
        rung, x = EncoderLayer(D_MODEL, HEADS, HIDDEN, p=0.0).double(), randn(5, TOKENS, D_MODEL)
        scramble_norms(rung)
        block, upstream = in_layers(rung), torch.randn(5, TOKENS, D_MODEL).double()
        actual, expected = rung(x), block(x)
        torch.testing.assert_close(actual, expected)

        parts = [rung.mha.W_h.weight, *rung.cnn.parameters(), *rung.layernorm1.parameters()]
        twins = [
            block.attention.output.weight,
            *block.feed_forward.parameters(),
            *block.around_attention.norm.parameters(),
        ]
        torch.testing.assert_close(
            torch.autograd.grad(actual, [x, *parts], upstream),
            torch.autograd.grad(expected, [x, *twins], upstream),
        )

    def test_is_rung_7_where_all_around_it_changes_nothing(self):
        layer, x = EncoderLayer(D_MODEL, HEADS, HIDDEN, p=0.0).double(), randn(3, TOKENS, D_MODEL)
        below = EncoderMultiHeadAttention(D_MODEL, HEADS, p=0.0).double()
        below.load_state_dict(layer.mha.state_dict())
        nn.init.zeros_(layer.cnn.k1convL2.weight)
        nn.init.zeros_(layer.cnn.k1convL2.bias)
        layer.layernorm1 = layer.layernorm2 = nn.Identity()
        torch.testing.assert_close(layer(x) - x, below(x, x, x)[0])


class TestSinusoidalEmbeddings:
    E = create_sinusoidal_embeddings(nb_p=LONGEST, dim=6)

    @pytest.mark.parametrize(
        ("p", "column", "value"),
        [
            (0, 0, 0.0),
            (0, 1, 1.0),
            (7, 0, math.sin(7)),
            (7, 1, math.cos(7)),
            (3, 2, math.sin(3 / 10000 ** (2 / 6))),
            (3, 3, math.cos(3 / 10000 ** (2 / 6))),
            (10, 4, math.sin(10 / 10000 ** (4 / 6))),
            (10, 5, math.cos(10 / 10000 ** (4 / 6))),
        ],
    )
    def test_by_hand(self, p, column, value):
        assert self.E[p, column].item() == pytest.approx(value, abs=1e-7)

    def test_a_step_is_the_same_rotation_wherever_it_starts(self):
        hands = torch.complex(self.E[:, 1::2], self.E[:, 0::2])
        turned = hands[3:] / hands[:-3]
        torch.testing.assert_close(turned, turned[:1].expand_as(turned))

    def test_far_positions_are_as_exact_as_near_ones(self):
        far = create_sinusoidal_embeddings(nb_p=9974, dim=4)[9973]
        expected = [f(9973 / b) for b in (1, 100) for f in (math.sin, math.cos)]
        assert far.tolist() == pytest.approx(expected, abs=1e-7)

    @pytest.mark.parametrize("dim", [6, 7])
    def test_are_the_librarys(self, dim):
        expected = layers.Sinusoidal(dim)(torch.arange(101))
        torch.testing.assert_close(create_sinusoidal_embeddings(101, dim), expected)

    def test_an_odd_width_ends_with_a_sine(self):
        odd = create_sinusoidal_embeddings(nb_p=5, dim=3)
        assert odd[4, 2].item() == pytest.approx(math.sin(4 / 10000 ** (2 / 3)))


class TestEmbeddings:
    def test_are_words_and_positions_with_mean_0_and_variance_1(self):
        embeddings, x = Embeddings(D_MODEL, WORDS, LONGEST, p=0.0).double(), words(BATCH, TOKENS)
        rows = create_sinusoidal_embeddings(TOKENS, D_MODEL) + embeddings.word_embeddings.weight[x]
        mean, variance = rows.mean(-1, keepdim=True), rows.var(-1, correction=0, keepdim=True)
        expected = (rows - mean) / (variance + 1e-6).sqrt()
        torch.testing.assert_close(embeddings(x), expected, rtol=1e-8, atol=1e-8)

    def test_positions_and_padding_do_not_learn(self):
        embeddings = Embeddings(D_MODEL, WORDS, LONGEST, p=0.0)
        embeddings(torch.tensor([[5, PADDING, 7]])).sin().sum().backward()
        assert embeddings.position_embeddings.weight.grad is None
        gradient = embeddings.word_embeddings.weight.grad
        assert gradient.any(dim=1).nonzero().flatten().tolist() == [5, 7]
        assert not embeddings.word_embeddings.weight[PADDING].any()


class TestEncoder:
    def test_is_pytorchs_layers_on_the_embeddings(self):
        encoder, x = an_encoder(num_layers=3), words(BATCH, TOKENS)
        scramble_norms(encoder)
        expected = encoder.embedding(x)
        for layer in encoder.enc_layers:
            expected = in_pytorch(layer)(expected)
        torch.testing.assert_close(encoder(x), expected)

    def test_every_layer_has_weights_of_its_own(self):
        first, second = an_encoder(num_layers=2).enc_layers
        assert not torch.equal(first.cnn.k1convL1.weight, second.cnn.k1convL1.weight)

    @examples(20)
    @given(st.permutations(range(TOKENS)))
    def test_without_positions_the_order_of_the_words_is_that_of_the_result(self, order):
        encoder, x = an_encoder(), words(BATCH, TOKENS)
        encoder.embedding.position_embeddings.weight.zero_()
        torch.testing.assert_close(encoder(x[:, order]), encoder(x)[:, order])

    def test_with_positions_the_order_matters(self):
        encoder, x = an_encoder(), words(BATCH, TOKENS)
        assert not torch.allclose(encoder(x.flip(1)), encoder(x).flip(1), atol=1e-3)


class TestTransformerClassifier:
    def test_is_one_matrix_on_the_largest_of_the_words(self):
        classifier, x = a_classifier(), words(BATCH, TOKENS)
        encoded = classifier.encoder(x)
        largest = torch.stack([torch.stack(sentence.unbind()).amax(0) for sentence in encoded])
        expected = largest @ classifier.dense.weight.T + classifier.dense.bias
        assert classifier(x).shape == (BATCH, ANSWERS)
        torch.testing.assert_close(classifier(x), expected)

    def test_is_the_courses_when_nothing_is_said(self):
        shapes = {n: tuple(w.shape) for n, w in TransformerClassifier().state_dict().items()}
        layer = "encoder.enc_layers.0"
        assert shapes == {
            "encoder.embedding.word_embeddings.weight": (50002, 32),
            "encoder.embedding.position_embeddings.weight": (10000, 32),
            "encoder.embedding.LayerNorm.weight": (32,),
            "encoder.embedding.LayerNorm.bias": (32,),
            **{f"{layer}.mha.W_{name}.weight": (32, 32) for name in "qkvh"},
            f"{layer}.mha.W_h.bias": (32,),
            f"{layer}.cnn.k1convL1.weight": (128, 32),
            f"{layer}.cnn.k1convL1.bias": (128,),
            f"{layer}.cnn.k1convL2.weight": (32, 128),
            f"{layer}.cnn.k1convL2.bias": (32,),
            **{
                f"{layer}.layernorm{i}.{part}": (32,) for i in (1, 2) for part in ("weight", "bias")
            },
            "dense.weight": (2, 32),
            "dense.bias": (2,),
        }
        assert TransformerClassifier().encoder.enc_layers[0].mha.num_heads == 2

    def test_learns_whether_a_word_is_there(self):
        classifier = TransformerClassifier(1, D_MODEL, HEADS, HIDDEN, WORDS, p=0.0)
        optimizer = torch.optim.AdamW(classifier.parameters(), lr=0.02)
        x = words(101, TOKENS)
        is_there = (x == 5).any(dim=1).long()
        for _ in range(40):
            loss = nn.functional.cross_entropy(classifier(x), is_there)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert 0.2 < is_there.float().mean() < 0.8
        assert (classifier(x).argmax(dim=1) == is_there).float().mean() > 0.97


class TestLengths:
    lengths = torch.tensor([TOKENS, 2, 5])

    def padded(self, padding=PADDING):
        x = words(BATCH, TOKENS)
        return x.where(torch.arange(TOKENS) < self.lengths[:, None], padding)

    def test_padding_changes_nothing_with_them(self):
        classifier, x = a_classifier(), self.padded()
        alone = [classifier(row[None, :n]) for row, n in zip(x, self.lengths, strict=True)]
        torch.testing.assert_close(classifier(x, self.lengths), torch.cat(alone))

    def test_anything_may_stand_in_the_padding_with_them(self):
        classifier, x = a_classifier(), self.padded()
        noise = x.where(torch.arange(TOKENS) < self.lengths[:, None], words(BATCH, TOKENS))
        torch.testing.assert_close(classifier(noise, self.lengths), classifier(x, self.lengths))

    def test_are_what_a_mask_comes_to(self):
        classifier, x = a_classifier(), self.padded()
        hidden = torch.arange(TOKENS) >= self.lengths[:, None]
        seen = classifier.encoder.embedding(x)
        for layer in classifier.encoder.enc_layers:
            seen = in_pytorch(layer)(seen, src_key_padding_mask=hidden)
        largest = seen.masked_fill(hidden[..., None], -torch.inf).amax(dim=1)
        torch.testing.assert_close(classifier(x, self.lengths), classifier.dense(largest))

    def test_are_what_the_librarys_mask_comes_to(self):
        classifier, x = a_classifier(), self.padded()
        seen = classifier.encoder.embedding(x)
        for rung in classifier.encoder.enc_layers:
            seen = in_layers(rung)(seen, mask=gh.padding(self.lengths))
        hidden = torch.arange(TOKENS) >= self.lengths[:, None]
        largest = seen.masked_fill(hidden[..., None], -torch.inf).amax(dim=1)
        torch.testing.assert_close(classifier(x, self.lengths), classifier.dense(largest))

    def test_full_ones_change_nothing(self):
        classifier, x = a_classifier(), words(BATCH, TOKENS)
        full = torch.full((BATCH,), TOKENS)
        torch.testing.assert_close(classifier(x, full), classifier(x))

    def test_without_them_padding_is_read(self):
        classifier, x = a_classifier(), self.padded()
        apart = (classifier(x) - classifier(x, self.lengths)).abs().amax(dim=1)
        assert (apart > 1e-3).tolist() == [False, True, True]


class TestDropout:
    p = 0.25

    def assert_some_dropped_and_the_rest_rescaled(self, dropped, whole):
        kept = dropped != 0
        assert 0.1 < (~kept).float().mean() < 0.4
        torch.testing.assert_close(dropped[kept], whole[kept] / (1 - self.p))

    def test_of_the_two_convolutions(self):
        cnn, x = CNN(29, HIDDEN, self.p), torch.randn(BATCH, 31, 29)
        self.assert_some_dropped_and_the_rest_rescaled(cnn(x), cnn.eval()(x))

    def test_of_the_embeddings(self):
        embeddings, x = Embeddings(29, WORDS, 31, self.p), words(BATCH, 31)
        self.assert_some_dropped_and_the_rest_rescaled(embeddings(x), embeddings.eval()(x))

    def test_of_what_attention_adds(self):
        layer, x = EncoderLayer(29, 1, HIDDEN, self.p), torch.zeros(BATCH, 31, 29)
        nn.init.ones_(layer.mha.W_h.bias)  # with words of zeros, H is this bias
        layer.layernorm1 = layer.layernorm2 = nn.Identity()
        layer.cnn = nn.Linear(29, 29, bias=False)
        nn.init.zeros_(layer.cnn.weight)
        self.assert_some_dropped_and_the_rest_rescaled(layer(x), torch.ones(BATCH, 31, 29))

    def test_reaches_every_part(self):
        parts = [part for part in a_classifier(p=self.p).modules() if isinstance(part, nn.Dropout)]
        assert [part.p for part in parts] == [self.p] * (1 + 2 * 3)

    def test_is_off_in_evaluation_and_at_0(self):
        classifier, x = a_classifier(p=self.p).eval(), words(BATCH, TOKENS)
        twin = a_classifier(p=0.0).train()
        twin.load_state_dict(classifier.state_dict())
        assert torch.equal(classifier(x), twin(x))
        assert not torch.equal(classifier.train()(x), twin(x))

    def test_is_a_tenth_when_nothing_is_said(self):
        defaults = EncoderLayer(6, 2, 11), Encoder(1, 6, 2, 11, 17, 13), TransformerClassifier()
        for module in defaults:
            assert {d.p for d in module.modules() if isinstance(d, nn.Dropout)} == {0.1}


class TestErrors:
    def test_no_layers(self):
        with pytest.raises(ValueError, match="num_layers must be at least 1, got 0"):
            an_encoder(num_layers=0)

    def test_no_word_beside_the_padding(self):
        with pytest.raises(ValueError, match=r"vocab_size must be at least 2, got 1\. Word 1 is"):
            Embeddings(D_MODEL, 1, LONGEST, 0.0)

    def test_heads_that_do_not_divide_the_width(self):
        with pytest.raises(ValueError, match=r"got d_model=10 and num_heads=3\. Choose"):
            EncoderLayer(10, 3, HIDDEN)

    @pytest.mark.parametrize("build", [lambda p: CNN(2, 3, p), lambda p: Embeddings(2, 3, 5, p)])
    def test_dropout_that_is_no_probability(self, build):
        with pytest.raises(ValueError, match=r"between 0 and 1, but got 1\.5"):
            build(1.5)

    def test_vectors_instead_of_words(self):
        with pytest.raises(TypeError, match=r"input_ids must be integers, got torch\.float64"):
            an_encoder()(randn(BATCH, TOKENS))

    @pytest.mark.parametrize("shape", [(TOKENS,), (BATCH, 0), (BATCH, 12), (1, BATCH, TOKENS)])
    def test_batch_of_other_shape(self, shape):
        got = ", ".join(map(str, shape))
        with pytest.raises(ValueError, match=rf"with 1 to 11 tokens, got \[{got}\]\. Pass one"):
            an_encoder()(torch.full(shape, 3))

    @pytest.mark.parametrize("word", [-1, WORDS])
    def test_word_that_the_vocabulary_lacks(self, word):
        with pytest.raises(ValueError, match=rf"must be from 0 to 16, got {word}\. Build with the"):
            an_encoder()(torch.tensor([[3, word]]))

    def test_not_one_length_for_each_sentence(self):
        with pytest.raises(ValueError, match=r"got \[3, 7\] and \[2\]\. Give one length for each"):
            a_classifier()(words(BATCH, TOKENS), torch.tensor([5, 5]))
        with pytest.raises(ValueError, match=r"got \[7\] and \[7\]\. Give one length for each"):
            a_classifier()(words(TOKENS), torch.ones(TOKENS))

    @pytest.mark.parametrize("length", [0, TOKENS + 1])
    def test_length_that_no_row_has(self, length):
        expected = rf"from 1 to the 7 tokens of a row, got \[2, {length}, 5\]\. Count the words"
        with pytest.raises(ValueError, match=expected):
            a_classifier()(words(BATCH, TOKENS), torch.tensor([2, length, 5]))


class TestSlipsOfTheNotebook:
    """Those that docs/tutorials/errata.md names."""

    # Best validation and test accuracy as printed, how many full batches, how many in the last.
    printed = ((0.8613821138211383, 15, 40), (0.8047465589787477, 152, 72))

    @pytest.mark.parametrize(("accuracy", "full", "last"), printed)
    def test_accuracies_are_sums_divided_by_one_batch_too_few(self, accuracy, full, last):
        def is_a_sum_over_batches(total):
            """Whether some whole number of right answers in each batch gives this sum."""
            rights = [(total - right / last) * 164 for right in range(last + 1)]
            return any(abs(right - round(right)) < 1e-7 for right in rights)

        assert is_a_sum_over_batches(accuracy * full)
        assert not is_a_sum_over_batches(accuracy * (full + 1))

    def test_a_parameter_that_is_to_learn_cannot_be_written_into(self):
        table = nn.Embedding(5, 8)
        with pytest.raises(RuntimeError, match="view of a leaf Variable that requires grad"):
            table.weight[:, 0::2] = 0
        table.weight.requires_grad = False
        table.weight[:, 0::2] = 0
        assert not table.weight[:, 0::2].any()

    def test_padding_is_as_long_as_a_word(self):
        embeddings = Embeddings(D_MODEL, WORDS, LONGEST, p=0.0)
        lengths = embeddings(torch.tensor([[7, PADDING, PADDING]])).norm(dim=-1)
        torch.testing.assert_close(lengths, torch.full((1, 3), D_MODEL**0.5))
