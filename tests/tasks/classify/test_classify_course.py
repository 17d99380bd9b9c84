"""The preset `course` is rung 9 of the ladder, in value, gradient and size."""

import pytest
import torch
from torch import nn

import glasshead as gh
from glasshead.ladder import TransformerClassifier
from glasshead.tasks.classify import ClassifySettings

WORDS, LENGTH = 17, 11
LENGTHS = torch.tensor([11, 2, 7, 1, 5])
# Word 1 is the rung's padding.
PADDING = 1


def rung_of(words):
    """The rung with weights of its own in the norms and biases too, so that each matters."""
    rung = TransformerClassifier(input_vocab_size=words, p=0.0).double()
    with torch.no_grad():
        for parameter in (p for p in rung.parameters() if p.requires_grad and p.ndim == 1):
            parameter.add_(0.3 * torch.randn_like(parameter))
    return rung


def config_of(words):
    settings = ClassifySettings.from_preset("course")
    return settings.model_config(vocab_size=words, num_answers=2)


def twins(rung, model):
    """Each module of the rung, and that of the model which does the same."""
    (layer,), (block,) = rung.encoder.enc_layers, model.blocks
    return {
        rung.encoder.embedding.word_embeddings: model.embedding.tokens,
        rung.encoder.embedding.LayerNorm: model.embedding.norm,
        layer.mha.W_h: block.attention.output,
        layer.cnn.k1convL1: block.feed_forward.hidden,
        layer.cnn.k1convL2: block.feed_forward.output,
        layer.layernorm1: block.around_attention.norm,
        layer.layernorm2: block.around_feed_forward.norm,
        rung.dense: model.answer,
    }


def stacked(rung, of):
    """Queries, keys and values of the rung's layer, one below the other."""
    mha = rung.encoder.enc_layers[0].mha
    return torch.cat([of(W.weight) for W in (mha.W_q, mha.W_k, mha.W_v)])


def copied(rung, words):
    model = gh.Classifier(config_of(words)).double()
    with torch.no_grad():
        for theirs, mine in twins(rung, model).items():
            mine.load_state_dict(theirs.state_dict())
        model.blocks[0].attention.projections.stacks[0].weight.copy_(stacked(rung, lambda W: W))
    return model


def padded():
    tokens = torch.randint(2, WORDS, (len(LENGTHS), LENGTH))
    return tokens.where(torch.arange(LENGTH) < LENGTHS[:, None], PADDING)


@pytest.mark.parametrize("training", [True, False])
def test_is_rung_9_in_value_and_gradient_with_padding(training):
    rung = rung_of(WORDS)
    model = copied(rung, WORDS)
    tokens, answers = padded(), torch.tensor([0, 1, 1, 0, 1])
    rung.train(training)
    model.train(training)
    found, expected = model(tokens, LENGTHS), rung(tokens, LENGTHS)
    torch.testing.assert_close(found, expected)
    nn.functional.cross_entropy(found, answers).backward()
    nn.functional.cross_entropy(expected, answers).backward()
    for theirs, mine in twins(rung, model).items():
        for own, other in zip(mine.parameters(), theirs.parameters(), strict=True):
            assert own.grad.any()
            torch.testing.assert_close(own.grad, other.grad)
    torch.testing.assert_close(
        model.blocks[0].attention.projections.stacks[0].weight.grad,
        stacked(rung, lambda W: W.grad),
    )


def test_is_not_the_notebook_which_reads_the_padding():
    rung = rung_of(WORDS)
    tokens = padded()
    apart = (copied(rung, WORDS)(tokens, LENGTHS) - rung(tokens)).abs().amax(1)
    assert (apart > 1e-3).tolist() == [False, True, True, True, True]


def test_every_parameter_has_its_twin_in_the_rung():
    rung, model = TransformerClassifier(), gh.Classifier(config_of(50_002))
    pairs = twins(rung, model).items()
    for theirs, mine in pairs:
        shapes = [[p.shape for p in module.parameters()] for module in (theirs, mine)]
        assert shapes[0] == shapes[1]
    qkv = model.blocks[0].attention.projections.stacks[0]
    assert (qkv.weight.shape, qkv.bias) == ((3 * 32, 32), None)
    found, expected = (
        sum(p.numel() for p in module.parameters() if p.requires_grad) for module in (model, rung)
    )
    assert found == expected == 50_002 * 32 + 64 + 4 * 32 * 32 + 32 + 2 * 4096 + 160 + 128 + 66


def test_begins_as_the_rung_does():
    """The same distributions: a table of variance 1, uniform matrices, no small weights."""
    rung, model = TransformerClassifier(input_vocab_size=997), gh.Classifier(config_of(997))
    qkv = model.blocks[0].attention.projections.stacks[0].weight
    matrices = [(qkv, stacked(rung, lambda W: W))]
    for theirs, mine in twins(rung, model).items():
        matrices.append((mine.weight, theirs.weight))
    for own, other in matrices:
        assert own.std(correction=0).item() == pytest.approx(
            other.std(correction=0).item(), rel=0.1
        )
        assert own.max().item() == pytest.approx(other.max().item(), rel=0.25)
