"""Whether keys belong to another text, which lengths alone do not tell."""

import pytest
import torch
from torch import nn

import glasshead as gh
import watched_models as models

WIDTH = 6


def crossing(model, *inputs, **asked):
    with torch.no_grad(), gh.watch(model, keep="weights") as seen:
        model(*inputs, **asked)
    return {name: [call.crossing for call in one] for name, one in seen.items()}


def text(length=5):
    return torch.randn(2, length, WIDTH)


def test_a_layer_of_ours_crosses_where_it_is_given_keys_of_another_text():
    layer, x, y = gh.MultiHeadAttention(WIDTH, 2), text(), text()
    assert crossing(layer, x) == crossing(layer, x, x) == crossing(layer, x, key=x) == {"": [False]}
    assert crossing(layer, x, y) == crossing(layer, query=x, key=y) == {"": [True]}
    assert crossing(layer, x, text(7)) == {"": [True]}
    # Whoever compares positions is in one text.
    assert crossing(layer, x, y, mask=gh.causal()) == {"": [False]}


@pytest.mark.parametrize("recipe", [{"bias": gh.ALiBi(3)}, {"mask": gh.prefix(2) | gh.window(2)}])
def test_statistics_count_positions_from_where_the_call_does(recipe):
    attention = gh.Attention(**recipe)
    query, key = torch.randn(2, 3, 7, 5), torch.randn(2, 3, 11, 5)
    asked = [gh.Entropy(), gh.Received(), gh.MeanDistance()]
    with gh.watch(attention, asked) as seen:
        attention(query, key, key)
    expected = attention.observe(query, key, key, asked)
    for name, value in expected.values.items():
        torch.testing.assert_close(seen[""][name], value)


@pytest.mark.parametrize("length", [1, 5])
def test_a_translator_of_ours_stands_where_it_is_however_long_its_source(length):
    config = gh.TranslatorConfig(vocab_size=11, d_model=WIDTH, num_heads=2, num_layers=1)
    model, cache = gh.Translator(config).eval(), gh.KVCache()
    lengths = torch.tensor([length, length])
    with torch.no_grad(), gh.watch(model, [gh.Entropy()]) as seen:
        encoded = model.encode(torch.randint(11, (2, length)), lengths)
        for new in (5, 1, 1):
            model.decode(torch.randint(11, (2, new)), encoded, lengths, cache=cache)
    assert {name: one[-1].crossing for name, one in seen.items()} == {
        "encoder.0.attention": False,
        "decoder.0.attention": False,
        "decoder.0.cross_attention": True,
    }
    assert [call.position for call in seen["decoder.0.cross_attention"]] == [0, 5, 6]
    assert seen["decoder.0.cross_attention"].entropy.shape == (2, 2, 7)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_layers_of_torch_cross_where_queries_and_keys_are_two_tensors(batch_first, need_weights):
    layer = nn.MultiheadAttention(WIDTH, 2, batch_first=batch_first)
    x, y = text(), text()
    asked = {"need_weights": need_weights}
    assert crossing(layer, x, x, x, **asked) == crossing(layer, x, x, y, **asked) == {"": [False]}
    assert crossing(layer, x, y, y, **asked) == {"": [True]}


def test_a_decoder_of_torch():
    layer = nn.TransformerDecoderLayer(WIDTH, 2, batch_first=True).eval()
    assert crossing(layer, text(), text()) == {"self_attn": [False], "multihead_attn": [True]}


@pytest.mark.parametrize("build", [models.t5, models.bart])
def test_translators_of_transformers(build):
    pytest.importorskip("transformers")
    tokens = models.tokens(2, 7)
    found = crossing(build("sdpa"), input_ids=tokens, decoder_input_ids=tokens)
    crosses = ("EncDecAttention", "encoder_attn")
    assert found == {name: [name.endswith(crosses)] for name in found}
    assert sum(map(sum, found.values())) > 0
