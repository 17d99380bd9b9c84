"""`observing`: the statistics of every attention, and a model that does not notice."""

import pytest
import torch
from torch import nn

import glasshead as gh
from glasshead.models.observing import observing

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7]])


def language_model(**changed):
    sizes = {"vocab_size": 11, "context_length": 13, "d_model": 18, "num_heads": 3, "num_layers": 2}
    return gh.LanguageModel(gh.LanguageModelConfig(**sizes, **changed))


def hook_counts(model):
    return [
        len(hooks)
        for module in model.modules()
        for hooks in (module._forward_hooks, module._forward_pre_hooks)
    ]


def traces(model, *inputs, **asked):
    """What each attention was given, traced afterwards."""
    given = {}
    handles = [
        module.register_forward_pre_hook(
            lambda module, args, kwargs, name=name: given.update({name: (args, kwargs)}),
            with_kwargs=True,
        )
        for name, module in model.named_modules()
        if isinstance(module, gh.MultiHeadAttention)
    ]
    model(*inputs, **asked)
    for handle in handles:
        handle.remove()
    found = {}
    for name, (args, kwargs) in given.items():
        asked = {key: x for key, x in kwargs.items() if key != "cache"}
        found[name] = model.get_submodule(name).trace(*args, **asked)
    return found


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
def test_each_attention_is_seen_by_its_name_as_its_trace_has_it(positions):
    model = language_model(positions=positions).eval()
    padding = torch.tensor([0, 2])
    with observing(model, [gh.Entropy(), gh.Received()]) as seen:
        model(TOKENS, padding=padding)
    found = traces(model, TOKENS, padding=padding)
    assert list(seen) == list(found) == ["blocks.0.attention", "blocks.1.attention"]
    for name, trace in found.items():
        P = trace.weights
        entropy = -torch.special.xlogy(P, P).sum(-1)
        torch.testing.assert_close(seen[name].entropy, entropy, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(seen[name].received, P.sum(-2), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(seen[name].context, trace.context, atol=1e-5, rtol=1e-5)


def test_both_kinds_of_attention_of_a_translator_are_seen():
    config = gh.TranslatorConfig(vocab_size=11, d_model=12, num_heads=3, num_layers=1)
    model = gh.Translator(config).eval()
    source, lengths = TOKENS[:, :5], torch.tensor([5, 3])
    with observing(model, {"most": gh.MaxWeight()}) as seen:
        model(source, lengths, TOKENS)
    found = traces(model, source, lengths, TOKENS)
    assert len(seen) == 3
    for name, trace in found.items():
        torch.testing.assert_close(seen[name].most, trace.weights.amax(-1), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_output_gradient_and_random_numbers_stay_as_they_are(dropout):
    model = language_model(dropout=dropout, attention_dropout=dropout).train()

    def passed():
        torch.manual_seed(7)
        model.zero_grad()
        logits = model(TOKENS)
        logits.square().sum().backward()
        return [logits, torch.rand(3), *(p.grad.clone() for p in model.parameters())]

    plain = passed()
    with observing(model, [gh.Entropy(), gh.TopK(2)]):
        observed = passed()
    assert all(torch.equal(a, b) for a, b in zip(plain, observed, strict=True))


def test_the_context_is_the_models_own_and_nothing_has_a_gradient():
    model = language_model(attention_dropout=0.5).train()
    rule = model.blocks[0].attention.attention
    contexts = []
    rule.register_forward_hook(lambda rule, inputs, output: contexts.append(output))
    with observing(model, [gh.Entropy()]) as seen:
        model(TOKENS)
    one = seen["blocks.0.attention"]
    assert torch.equal(one.context, contexts[0])
    assert not one.context.requires_grad
    assert not one.entropy.requires_grad


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_with_a_cache_the_keys_so_far_are_seen_and_kept_once(positions):
    model = language_model(positions=positions).eval()
    with torch.no_grad(), observing(model, [gh.Entropy()]) as whole:
        expected = model(TOKENS)
    cache = model.new_cache()
    with torch.no_grad(), observing(model, [gh.Entropy()]) as seen:
        first = model(TOKENS[:, :4], cache=cache)
        assert seen["blocks.1.attention"].entropy.shape == (2, 3, 4)
        second = model(TOKENS[:, 4:], cache=cache)
    assert cache.length == 7
    assert all(own.length == 7 for own in cache.own)
    torch.testing.assert_close(torch.cat([first, second], 1), expected)
    for name in whole:
        torch.testing.assert_close(seen[name].entropy, whole[name].entropy[..., 4:])


def test_blocks_stand_within_each_other():
    model = language_model().eval()
    with observing(model, [gh.Entropy()]) as outer:
        model(TOKENS)
        before = outer["blocks.0.attention"]
        with observing(model, [gh.MaxWeight()]) as inner:
            model(TOKENS[:1, :5])
        assert inner["blocks.0.attention"].max_weight.shape == (1, 3, 5)
        assert outer["blocks.0.attention"].entropy.shape == (1, 3, 5)
        model(TOKENS)
    assert torch.equal(outer["blocks.0.attention"].entropy, before.entropy)
    # What the inner block was to see ended with it.
    assert inner["blocks.0.attention"].max_weight.shape == (1, 3, 5)


def test_hooks_are_gone_whatever_happens():
    model = language_model().eval()
    before = hook_counts(model)
    with observing(model, [gh.Entropy()]):
        assert hook_counts(model) != before
    assert hook_counts(model) == before
    with pytest.raises(ZeroDivisionError), observing(model, [gh.Entropy()]):
        raise ZeroDivisionError
    assert hook_counts(model) == before
    with (
        pytest.raises(ValueError, match="TopK.* takes at least 8 keys"),
        observing(model, [gh.TopK(8)]),
    ):
        model(TOKENS)
    assert hook_counts(model) == before


class Twice(nn.Module):
    """Two attentions around one rule, which is also called alone."""

    def __init__(self):
        super().__init__()
        rule = gh.Attention(mask=gh.causal())
        self.first = gh.MultiHeadAttention(6, 2, attention=rule)
        self.second = gh.MultiHeadAttention(6, 3, attention=rule)
        self.skipped = gh.MultiHeadAttention(6, 1, attention=rule)
        self.rule = rule

    def forward(self, x):
        return self.rule(x, x, x) + self.second(self.first(x))


def test_a_rule_that_is_shared_is_told_apart_and_alone_it_is_none():
    model, x = Twice(), torch.rand(1, 5, 6)
    with observing(model, [gh.Entropy()]) as seen:
        model(x)
    assert {name: one.entropy.shape[1] for name, one in seen.items()} == {"first": 2, "second": 3}
    assert repr(seen) == "Seen(first, second)"
    with pytest.raises(KeyError, match="'skipped' was not observed; there is first, second"):
        seen["skipped"]


def test_after_an_attention_that_fails_nothing_is_taken_for_its_own():
    model, x = Twice(), torch.rand(1, 5, 6)
    with observing(model, [gh.Entropy()]) as seen:
        with pytest.raises(ValueError, match="query takes"):
            model.first(torch.rand(5, 7))
        model.rule(x, x, x)
    assert len(seen) == 0
    with pytest.raises(KeyError, match="'first' was not observed; there is nothing"):
        seen["first"]


@pytest.mark.parametrize(
    ("model", "statistics", "error", "sentence"),
    [
        ("model", [gh.Entropy()], TypeError, "observing takes a model, and got str: build one."),
        (nn.Linear(2, 2), [gh.Entropy()], ValueError, "MultiHeadAttention in it, and Linear has n"),
        (Twice(), [gh.Entropy], TypeError, "and got the class Entropy: write Entropy"),
        (Twice(), [gh.TopK(1), gh.TopK(2)], ValueError, "name each in a dict"),
    ],
)
def test_what_cannot_be_observed_is_refused_before_anything_runs(
    model, statistics, error, sentence
):
    with pytest.raises(error, match=sentence), observing(model, statistics):
        pytest.fail("the block has run")
