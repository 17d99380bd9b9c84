"""Rung 10: two bridges between encoder and decoder, and nothing else that differs."""

import pytest
import torch
from torch import nn

import glasshead as gh
from glasshead.ladder import (
    AttentionContext,
    FixedContext,
    SequenceToSequence,
    sentences_to_reverse,
)

BATCH, TOKENS, LENGTH, WORDS, D_MODEL = 3, 7, 5, 11, 13

CONTEXTS = {"fixed": FixedContext, "attention": lambda: AttentionContext(D_MODEL)}
each_context = pytest.mark.parametrize("name", CONTEXTS)


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def words(*shape):
    return torch.randint(1, WORDS, shape)


def a_model(name):
    model = SequenceToSequence(WORDS, D_MODEL, CONTEXTS[name]()).double()
    for weight in model.parameters():  # so large that no two words score alike
        weight.data.mul_(2)
    return model


class TestAttentionContext:
    def test_is_attention_with_an_additive_score(self):
        context = AttentionContext(D_MODEL).double()
        score = gh.Additive(D_MODEL).double()
        score.load_state_dict(context.state_dict())
        state, annotations = randn(BATCH, D_MODEL), randn(BATCH, TOKENS, D_MODEL)

        steps = gh.Attention(score=score).trace(state[:, None], annotations, annotations)
        expected = torch.cat([steps.context[:, 0], steps.weights[:, 0]], dim=1)
        actual = torch.cat(context(state, annotations), dim=1)
        torch.testing.assert_close(actual, expected)
        upstream = torch.randn_like(expected)
        torch.testing.assert_close(
            torch.autograd.grad(actual, [state, annotations, *context.parameters()], upstream),
            torch.autograd.grad(
                expected,
                [
                    state,
                    annotations,
                    *(score.get_parameter(n) for n, _ in context.named_parameters()),
                ],
                upstream,
            ),
        )

    def test_is_the_fixed_one_where_the_last_word_outscores_all(self):
        context, state = AttentionContext(2).double(), torch.zeros(1, 2).double()
        annotations = torch.tensor([[[-9.0, 3.0], [-9.0, 5.0], [9.0, 7.0]]]).double()
        with torch.no_grad():
            context.W_key.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
            context.v.copy_(torch.tensor([1000.0, 0.0]))
        for actual, expected in zip(
            context(state, annotations), FixedContext()(state, annotations), strict=True
        ):
            torch.testing.assert_close(actual, expected)


class TestFixedContext:
    def test_is_what_its_weights_make_of_the_annotations(self):
        annotations = randn(BATCH, TOKENS, D_MODEL)
        context, weights = FixedContext()(randn(BATCH, D_MODEL), annotations)
        torch.testing.assert_close(weights.sum(1), torch.ones(BATCH).double())
        torch.testing.assert_close((weights[:, None] @ annotations)[:, 0], context)
        assert torch.equal(context, annotations[:, -1])


class TestSequenceToSequence:
    def test_the_models_differ_in_the_context_alone(self):
        fixed, attention = (
            {n: w.shape for n, w in a_model(name).state_dict().items()} for name in CONTEXTS
        )
        assert {n: s for n, s in attention.items() if not n.startswith("context.")} == fixed

    @each_context
    def test_only_attention_looks_back_at_every_word(self, name):
        model, annotations = a_model(name), []
        model.encoder.register_forward_hook(lambda *call: annotations.append(call[-1][0]))
        scores = model(words(BATCH, TOKENS), words(BATCH, LENGTH))
        (gradient,) = torch.autograd.grad(scores.sin().sum(), annotations)
        looked_at = [name == "attention"] * (TOKENS - 1) + [True]
        assert gradient.any(dim=-1).all(dim=0).tolist() == looked_at
        assert gradient.any(dim=-1).any(dim=0).tolist() == looked_at

    def test_with_a_fixed_context_is_pytorchs_gru_told_it_at_each_step(self):
        model, source, target = a_model("fixed"), words(BATCH, TOKENS), words(BATCH, LENGTH)
        decoder = nn.GRU(2 * D_MODEL, D_MODEL, batch_first=True).double()
        decoder.load_state_dict({f"{n}_l0": w for n, w in model.decoder.state_dict().items()})
        _, last = model.encoder(model.words(source))
        context = last[0][:, None].expand(-1, LENGTH, -1)
        told = torch.cat([torch.zeros(BATCH, 1, dtype=torch.long), target[:, :-1]], dim=1)
        states, _ = decoder(torch.cat([model.words(told), context], dim=-1), last)
        expected = model.output(torch.cat([states, context], dim=-1))
        torch.testing.assert_close(model(source, target), expected)

    def test_with_attention_asks_with_the_state_before(self):
        model, source, target = a_model("attention"), words(BATCH, TOKENS), words(BATCH, LENGTH)
        score = gh.Additive(D_MODEL).double()
        score.load_state_dict(model.context.state_dict())
        annotations, last = model.encoder(model.words(source))
        state, before = last[0], torch.zeros(BATCH, dtype=torch.long)
        scores, alignment = model(source, target), model.alignment(source, target)
        for i in range(LENGTH):
            steps = gh.Attention(score=score).trace(state[:, None], annotations, annotations)
            context = steps.context[:, 0]
            state = model.decoder(torch.cat([model.words(before), context], dim=1), state)
            expected = model.output(torch.cat([state, context], dim=1))
            torch.testing.assert_close(scores[:, i], expected)
            torch.testing.assert_close(alignment[:, i], steps.weights[:, 0])
            before = target[:, i]

    @each_context
    def test_no_score_knows_its_word_or_those_after(self, name):
        model, source, target = a_model(name), words(BATCH, TOKENS), words(BATCH, LENGTH)
        other = target.clone()
        other[:, 2] = other[:, 2] % (WORDS - 1) + 1
        apart = (model(source, target) - model(source, other)).abs().amax(dim=(0, 2))
        assert (apart > 0).tolist() == [False, False, False, True, True]

    @each_context
    def test_rows_of_the_alignment_sum_to_1(self, name):
        alignment = a_model(name).alignment(words(BATCH, TOKENS), words(BATCH, LENGTH))
        assert alignment.shape == (BATCH, LENGTH, TOKENS)
        torch.testing.assert_close(alignment.sum(-1), torch.ones(BATCH, LENGTH).double())

    @each_context
    def test_the_answer_is_the_likeliest_word_after_its_own(self, name):
        model, source = a_model(name), words(BATCH, TOKENS)
        answer = model.answer(source, LENGTH)
        assert torch.equal(model(source, answer).argmax(-1), answer)
        assert torch.equal(model.answer(source, 2), answer[:, :2])
        assert len(answer.unique()) > 1

    @each_context
    def test_a_batch_answers_as_each_alone(self, name):
        model, source = a_model(name), words(BATCH, TOKENS)
        alone = torch.cat([model.answer(sentence[None], LENGTH) for sentence in source])
        assert torch.equal(model.answer(source, LENGTH), alone)

    @each_context
    def test_learns_to_reverse_two_words(self, name):
        model = SequenceToSequence(5, D_MODEL, CONTEXTS[name]())
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        for step in range(60):
            source, target = sentences_to_reverse(31, length=2, vocab_size=5, seed=step)
            loss = nn.functional.cross_entropy(
                model(source, target).flatten(0, 1), target.flatten()
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        source, target = sentences_to_reverse(101, length=2, vocab_size=5, seed=2015)
        assert torch.equal(model.answer(source, length=2), target)


class TestSentencesToReverse:
    def test_are_reversed(self):
        source, target = sentences_to_reverse(BATCH, TOKENS, WORDS, seed=1)
        assert source.shape == (BATCH, TOKENS)
        assert target.tolist() == [row[::-1] for row in source.tolist()]

    def test_have_every_word_but_the_start(self):
        source, _ = sentences_to_reverse(101, TOKENS, WORDS, seed=1)
        assert source.unique().tolist() == list(range(1, WORDS))

    def test_are_the_seeds_alone(self):
        first = sentences_to_reverse(BATCH, TOKENS, WORDS, seed=1)[0]
        state = torch.get_rng_state()
        assert torch.equal(sentences_to_reverse(BATCH, TOKENS, WORDS, seed=1)[0], first)
        assert not torch.equal(sentences_to_reverse(BATCH, TOKENS, WORDS, seed=2)[0], first)
        assert torch.equal(torch.get_rng_state(), state)

    def test_have_a_word_at_all(self):
        with pytest.raises(ValueError, match=r"vocab_size must be at least 2, got 1\. Word 0 is"):
            sentences_to_reverse(BATCH, TOKENS, 1, seed=1)


class TestErrors:
    @pytest.mark.parametrize("shape", [(TOKENS,), (BATCH, 0), (1, BATCH, TOKENS), ()])
    def test_batch_of_other_shape(self, shape):
        got = ", ".join(map(str, shape))
        model, odd, right = a_model("fixed"), torch.ones(shape, dtype=torch.long), words(3, 7)
        with pytest.raises(ValueError, match=rf"source must be .*, got \[{got}\]\. Pass one"):
            model(odd, right)
        with pytest.raises(ValueError, match=rf"source must be .*, got \[{got}\]\. Pass one"):
            model.answer(odd, LENGTH)
        with pytest.raises(ValueError, match=rf"target must be .*, got \[{got}\]\. Pass one"):
            model.alignment(right, odd)

    def test_targets_of_other_sources(self):
        with pytest.raises(ValueError, match=r"got \[2, 5\] for \[3, 7\]\. Give each source"):
            a_model("fixed")(words(3, 7), words(2, 5))

    @pytest.mark.parametrize("word", [-1, WORDS])
    def test_word_that_the_vocabulary_lacks(self, word):
        with pytest.raises(ValueError, match=rf"source must hold words from 0 to 10, got {word}\."):
            a_model("fixed").answer(torch.tensor([[3, word]]), LENGTH)
        with pytest.raises(ValueError, match=rf"target must hold words from 0 to 10, got {word}\."):
            a_model("fixed")(words(1, 7), torch.tensor([[3, word]]))

    def test_no_words_wanted(self):
        with pytest.raises(ValueError, match=r"length must be at least 1, got 0\. Say how long"):
            a_model("fixed").answer(words(BATCH, TOKENS), 0)

    @pytest.mark.parametrize(
        "shapes", [[(3, 5), (3, 7, 13)], [(2, 13), (3, 7, 13)], [(3, 5), (3, 7, 5)]]
    )
    def test_states_and_annotations_that_do_not_fit(self, shapes):
        with pytest.raises(
            ValueError, match=r"must be \[batch, 13\] and \[batch, tokens, 13\], got"
        ):
            AttentionContext(D_MODEL)(*map(torch.ones, shapes))
