"""The embedding and its slots, and what a classifier makes of them."""

import pytest
import torch
from torch import nn

import glasshead as gh
from glasshead.models.layer_factory import Embedding

VOCABULARY, LENGTH, D_MODEL = 13, 11, 29
WHERE = torch.arange(LENGTH)


def texts(*shape):
    return torch.randint(VOCABULARY, shape)


def test_is_the_norm_of_words_and_positions():
    norm = nn.LayerNorm(D_MODEL, eps=1e-3)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    embedding = Embedding(VOCABULARY, D_MODEL, gh.Sinusoidal(D_MODEL), scale=3.0, norm=norm)
    tokens = texts(5, LENGTH)
    rows = 3.0 * embedding.tokens.weight[tokens] + gh.Sinusoidal(D_MODEL)(WHERE)
    mean, variance = rows.mean(-1, keepdim=True), rows.var(-1, correction=0, keepdim=True)
    expected = (rows - mean) / (variance + 1e-3).sqrt() * norm.weight + norm.bias
    torch.testing.assert_close(embedding(tokens, WHERE), expected)


@pytest.mark.parametrize(("given", "own"), [(None, 0.125), (0.375, 0.375), (0.0, 0.0)])
def test_what_a_classifier_drops_of_its_embedding(given, own):
    config = gh.ClassifierConfig(
        vocab_size=VOCABULARY,
        d_model=12,
        num_heads=3,
        dropout=0.125,
        embedding_dropout=given,
    )
    model = gh.Classifier(config)
    assert model.embedding.dropout.p == own
    block = model.blocks[0]
    assert {block.around_attention.dropout.p, block.around_feed_forward.dropout.p} == {0.125}


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_a_classifiers_embedding_has_the_models_norm_or_none(norm):
    def model(**given):
        config = gh.ClassifierConfig(
            vocab_size=VOCABULARY, d_model=12, num_heads=3, norm=norm, **given
        )
        return gh.Classifier(config).eval()

    tokens, where = texts(5, 7), WHERE[:7]
    normed = model(embedding_norm=True)
    assert type(normed.embedding.norm) is {"layer": nn.LayerNorm, "rms": nn.RMSNorm}[norm]
    power = normed.embedding(tokens, where).square().mean(-1)
    torch.testing.assert_close(power, torch.ones(5, 7), rtol=0.1, atol=0)
    assert model().embedding.norm is None


def linears(model):
    return [module for module in model.modules() if isinstance(module, nn.Linear)]


def test_a_classifier_begins_with_small_weights_or_as_pytorchs_layers():
    def model(**given):
        torch.manual_seed(5)
        sizes = {"vocab_size": VOCABULARY, "d_model": 64, "positions": "none"}
        return gh.Classifier(gh.ClassifierConfig(**sizes, **given))

    torch.manual_seed(5)
    table = nn.Embedding(VOCABULARY, 64).weight
    begun = model(initial="torch")
    assert torch.equal(begun.embedding.tokens.weight, table)
    for linear in linears(begun):
        bound = linear.in_features**-0.5
        assert 0.9 * bound < linear.weight.abs().max() <= bound
        assert linear.bias.any()
    small = model()
    assert 0.015 < small.embedding.tokens.weight.std() < 0.025
    assert all(linear.weight.std() < 0.025 for linear in linears(small))
    assert not any(linear.bias.any() for linear in linears(small))
