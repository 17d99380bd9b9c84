"""glasshead's own models: a watch agrees with hooks, with caches, padding and beams."""

import pytest
import torch
from torch import nn

import glasshead as gh
from glasshead.models.decoding import Beam, Greedy, generate
from glasshead.models.language_model import LanguageModelSteps
from glasshead.models.translator import TranslatorSteps
from watching.hooked import observing
from watching.torch.explicit import STATISTICS, check, undisturbed

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7]])
SIZES = {"vocab_size": 11, "context_length": 17, "d_model": 18, "num_heads": 3, "num_layers": 2}


def loud(model):
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, 0.0, 0.4)
    return model


def language_model(**changed):
    return loud(gh.LanguageModel(gh.LanguageModelConfig(**SIZES, **changed)))


def translator():
    return loud(gh.Translator(gh.TranslatorConfig(**SIZES, num_decoder_layers=1))).eval()


def observed(model, *inputs, **asked):
    with observing(model, STATISTICS) as found:
        model(*inputs, **asked)
    return found


def assert_same(watched, found, left_out=()):
    assert list(watched) == list(found)
    for name, one in found.items():
        for statistic in STATISTICS.keys() - {*left_out}:
            ours, theirs = watched[name][statistic], one[statistic]
            pairs = zip(ours, theirs, strict=True) if statistic == "top" else [(ours, theirs)]
            for mine, expected in pairs:
                torch.testing.assert_close(mine, expected)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
def test_a_language_model(positions, training):
    model = language_model(positions=positions, dropout=0.1, attention_dropout=0.2).train(training)
    padding = torch.tensor([0, 2])
    torch.manual_seed(31)
    found = observed(model, TOKENS, padding=padding)
    assert_same(undisturbed(model, TOKENS, gradient=training, padding=padding), found)


def check_received(model, seen, lengths, *inputs):
    """What keys receive from the queries that are no padding, where a layer has any."""
    with gh.watch(model, keep="weights") as kept:
        model(*inputs)
    for name, watched in seen.items():
        weights = kept[name].weights.dense()
        real = torch.arange(weights.shape[-2]) < lengths[:, None]
        padded = not name.startswith("decoder")
        assert (watched.real is None) != padded
        counted = weights * real[:, None, :, None] if padded else weights
        torch.testing.assert_close(watched.received, counted.sum(-2))


def test_a_classifier():
    model = loud(gh.Classifier(gh.ClassifierConfig(**SIZES, num_answers=3))).eval()
    lengths = torch.tensor([7, 4])
    seen = undisturbed(model, TOKENS, lengths)
    assert_same(seen, observed(model, TOKENS, lengths), ["received"])
    check_received(model, seen, lengths, TOKENS, lengths)


def test_a_translator():
    model = translator()
    source, lengths = TOKENS[:, :5], torch.tensor([5, 3])
    seen = undisturbed(model, source, lengths, TOKENS)
    found = observed(model, source, lengths, TOKENS)
    for name in list(found):
        if name.endswith("cross_attention"):
            # Queries and keys are of two texts, both counted from their beginning.
            assert seen[name][0].position == 0
    distances = {name: one.values.pop("distance") for name, one in found.items()}
    statistics = STATISTICS.keys() - {"distance", "received"}
    for name, one in found.items():
        for statistic in statistics:
            torch.testing.assert_close(seen[name][statistic], one[statistic])
        if len(one.received[0, 0]) == one.entropy.shape[-1]:
            torch.testing.assert_close(seen[name].distance, distances[name])
    check_received(model, seen, lengths, source, lengths, TOKENS)


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
def test_a_text_written_with_a_cache_is_seen_as_in_one_go(positions):
    model = language_model(positions=positions).eval()
    with gh.watch(model, STATISTICS) as seen:
        written = generate(LanguageModelSteps(model), TOKENS[:, :3], Greedy(), max_tokens=5)
    text = torch.cat([TOKENS[:, :3], torch.tensor(written.tokens)], 1)[:, :-1]
    whole = undisturbed(model, text)
    for name, watched in seen.items():
        assert [call.position for call in watched] == [0, 3, 4, 5, 6]
        assert len(watched.texts) == 1
        assert (watched.prefill.queries, len(watched.steps)) == (3, 4)
        for statistic in ("entropy", "received", "sink", "largest", "distance"):
            torch.testing.assert_close(watched[statistic], whole[name][statistic])
        torch.testing.assert_close(watched.top.weights, whole[name].top.weights)


def test_a_text_that_outgrows_the_model_begins_anew():
    model = language_model().eval()
    with gh.watch(model, STATISTICS) as seen:
        generate(LanguageModelSteps(model), TOKENS[:, :3], Greedy(), max_tokens=17)
    texts = seen["blocks.1.attention"].texts
    assert [text[0].queries for text in texts] == [3, 8]
    assert [sum(call.queries for call in text) for text in texts] == [17, 9]


@pytest.mark.parametrize("width", [1, 3])
def test_a_translation_by_beams_is_seen_step_by_step(width):
    model = translator()
    source, lengths = TOKENS[:, :5], torch.tensor([5, 3])

    def translate():
        steps = TranslatorSteps(model, source, lengths)
        return generate(steps, torch.full((2, 1), 2), Beam(width), max_tokens=4)

    alone = translate()
    with gh.watch(model, STATISTICS) as seen:
        watched = translate()
    assert watched.tokens == alone.tokens
    assert watched.scores == alone.scores
    own = seen["decoder.0.attention"]
    assert [call.position for call in own] == [0, 1, 2, 3]
    assert [call.keys for call in own] == [1, 2, 3, 4]
    crossed = seen["decoder.0.cross_attention"]
    assert [call.position for call in crossed] == [0, 1, 2, 3]
    assert {call.keys for call in crossed} == {5}
    assert [call.batch for call in crossed] == [call.batch for call in own]
    # A source of three words has no more than three keys to look at.
    assert not crossed[-1].received[-width:, :, 3:].any()
    if width == 1:
        assert crossed.entropy.shape == (2, 3, 4)
        assert own.received.shape == (2, 3, 4)


def test_one_rule_of_several_attentions_goes_by_the_name_of_each():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.rule = gh.Attention(mask=gh.causal())
            self.first = gh.MultiHeadAttention(6, 2, attention=self.rule)
            self.second = gh.MultiHeadAttention(6, 3, attention=self.rule)

        def forward(self, x):
            return self.second(self.first(x)) + self.rule(x, x, x)

    model, x = Twice(), torch.randn(1, 5, 6)
    seen = undisturbed(model, x)
    assert list(seen) == ["first", "second", ""]
    assert [len(watched) for watched in seen.values()] == [1, 1, 1]
    check(seen["first"], model.first.trace(x).weights.detach())
    check(seen["second"], model.second.trace(model.first(x)).weights.detach())
