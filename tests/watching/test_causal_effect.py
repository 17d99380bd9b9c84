"""The effect of interventions is the difference between a clean run and a changed one."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
import watched_models as models


class Classifies(nn.Module):
    """Two classes: the mean of what a head reads, and nothing."""

    def __init__(self):
        super().__init__()
        self.rule, self.dropout = gh.Attention(), nn.Dropout(0.5)

    def forward(self, x):
        logit = self.rule(x, x, x).mean((-3, -1))
        return self.dropout(torch.stack([torch.zeros_like(logit), logit], -1))


X = math.log(3) * torch.ones(1, 1, 2, 1)


def test_by_hand():
    model = Classifies().eval()
    labels = torch.tensor([1, 1])
    effect = gh.causal_effect(
        model,
        {"": gh.ZeroAblation(queries=[1])},
        X,
        loss=lambda logits: F.cross_entropy(logits[0], labels),
    )
    # Probabilities are 1/4 and 3/4, and 1/2 each where the head is ablated.
    torch.testing.assert_close(effect.clean, torch.tensor([[[0.0, math.log(3)]] * 2]))
    change = torch.tensor([[[0.0, 0.0], [0.0, -math.log(3)]]])
    torch.testing.assert_close(effect.logit_change, change)
    divergence = 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
    torch.testing.assert_close(effect.kl_divergence, torch.tensor([[0.0, divergence]]))
    expected = (math.log(2) - math.log(4 / 3)) / 2
    torch.testing.assert_close(effect.loss_change, torch.tensor(expected))
    assert repr(effect) == (
        "CausalEffect: largest logit change 1.099, mean KL divergence 0.06541 nats, "
        "loss 0.2877 → 0.4904 (+0.2027)"
    )


def test_nothing_changes_nothing_in_training_too():
    model = Classifies().train()
    torch.manual_seed(3)
    effect = gh.causal_effect(model, {}, X[:, :, :1].expand(1, 1, 31, 1))
    torch.manual_seed(3)
    with torch.no_grad():
        plain = model(X[:, :, :1].expand(1, 1, 31, 1))
    assert torch.equal(effect.changed, effect.clean)
    assert torch.equal(effect.clean, plain)
    assert (effect.kl_divergence == 0).all()


def test_of_transformers_the_loss_is_the_model_s_own():
    pytest.importorskip("transformers")
    model, tokens = models.llama("sdpa"), models.tokens(2, 7)
    changes = {"model.layers.*.self_attn": gh.ForbidKeys([0], queries=range(1, 7))}
    effect = gh.causal_effect(model, changes, input_ids=tokens, labels=tokens)
    with torch.no_grad():
        clean = model(tokens, labels=tokens)
        with gh.intervene(model, changes):
            changed = model(tokens, labels=tokens)
    assert torch.equal(effect.logit_change, changed.logits - clean.logits)
    assert torch.equal(effect.loss_change, changed.loss - clean.loss)
    assert effect.loss_change != 0


class TestErrors:
    def test_without_a_loss(self):
        effect = gh.causal_effect(Classifies().eval(), {"": []}, X)
        with pytest.raises(ValueError, match=r"needs a loss, but the model gave none\. Pass lab"):
            effect.loss_change  # noqa: B018

    def test_without_logits(self):
        class Pair(nn.Module):
            def forward(self, x):
                return x, x

        with pytest.raises(TypeError, match=r"returns logits, but this one returns tuple\. Wrap"):
            gh.causal_effect(Pair(), {}, X)

    @pytest.mark.parametrize("ours", [True, False])
    def test_a_cache(self, ours):
        if ours:
            config = gh.LanguageModelConfig(vocab_size=61, d_model=12, num_heads=3, num_layers=2)
            model = gh.LanguageModel(config)
            named = {"cache": model.new_cache()}
        else:
            pytest.importorskip("transformers")
            from transformers import DynamicCache

            model, named = models.llama(), {"past_key_values": DynamicCache()}
        with pytest.raises(ValueError, match=f"its input {next(iter(named))!r} is a cache"):
            gh.causal_effect(model, {}, models.tokens(1, 5), **named)
