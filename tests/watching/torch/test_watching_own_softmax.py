"""Modules that compute attention by code of their own are named; other softmaxes are none."""

import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
from watching.torch.explicit import nothing_is_open, undisturbed

WIDTH = 12


def near(x):
    """Scores that grow as two vectors come nearer, without a product of queries and keys."""
    return -(x.unsqueeze(-2) - x.unsqueeze(-3)).square().sum(-1)


class CausalSelfAttention(nn.Module):
    """Weights by a softmax of distances, which follow from no product."""

    def __init__(self, softmax):
        super().__init__()
        self.softmax = softmax

    def forward(self, x):
        scores = near(x).masked_fill(torch.ones(x.shape[1], x.shape[1]).triu(1).bool(), -1e9)
        return self.softmax(scores) @ x


class Router(nn.Module):
    """Mixes two experts by a softmax that is no attention."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, 2)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))

    def forward(self, x):
        mixed = torch.stack([expert(x) for expert in self.experts], -1)
        return (mixed * self.gate(x).softmax(-1).unsqueeze(-2)).sum(-1)


class Fused(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x)


class Failing(nn.Module):
    def forward(self, x):
        raise ZeroDivisionError


class Model(nn.Module):
    def __init__(self, *blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def refusal(model, *inputs, **asked):
    """The sentence by which a watch of a run is refused."""
    with pytest.raises(RuntimeError) as refused, gh.watch(model, [gh.Entropy()], **asked):
        model(*inputs)
    assert nothing_is_open()
    return str(refused.value)


SOFTMAXES = {
    "torch.softmax": lambda scores: torch.softmax(scores, -1),
    "method": lambda scores: scores.softmax(-1),
    "F.softmax": lambda scores: F.softmax(scores, dim=-1),
    "of another type": lambda scores: F.softmax(scores, dim=-1, dtype=torch.float64).float(),
    "nn.Softmax": nn.Softmax(-1),
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("softmax", SOFTMAXES)
def test_a_module_with_a_softmax_of_its_own_is_named(softmax, inference):
    model = Model(Fused(), CausalSelfAttention(SOFTMAXES[softmax]))
    sentence = (
        "^watch sees attention that goes through .*, and CausalSelfAttention at 'blocks.1' "
        "computes its own: .* leave these out by layers=.$"
    )
    with (
        torch.inference_mode(inference),
        pytest.raises(RuntimeError, match=sentence),
        gh.watch(model, [gh.Entropy()]),
    ):
        model(torch.randn(2, 5, WIDTH))
    assert nothing_is_open()


def test_of_several_the_first_is_named():
    softmax = SOFTMAXES["method"]
    model = Model(CausalSelfAttention(softmax), CausalSelfAttention(softmax))
    sentence = "CausalSelfAttention at 'blocks.0' and 1 more computes"
    with pytest.raises(RuntimeError, match=sentence), gh.watch(model, [gh.Entropy()]):
        model(torch.randn(2, 5, WIDTH))


def test_it_can_be_left_out():
    model = Model(Fused(), CausalSelfAttention(SOFTMAXES["method"]))
    x = torch.randn(2, 5, WIDTH)
    seen = undisturbed(model, x, asked={"layers": "blocks.0"})
    assert list(seen) == ["blocks.0"]


def test_a_router_of_experts_is_no_attention():
    model = Model(Fused(), Router())
    assert list(undisturbed(model, torch.randn(2, 5, WIDTH))) == ["blocks.0"]


def test_a_router_alone_has_no_attention_at_all():
    sentence = (
        "^watch saw no attention of Model, which ran: if the softmax of Router at 'blocks.0' is "
        "attention, call F.scaled_dot_product_attention there instead of that softmax, else there "
        "is nothing to watch.$"
    )
    assert re.match(sentence, refusal(Model(Router()), torch.randn(2, 5, WIDTH)))


def test_an_error_of_the_model_is_told_and_not_what_was_unseen():
    model = Model(CausalSelfAttention(SOFTMAXES["method"]))
    model.blocks.append(Failing())
    with pytest.raises(ZeroDivisionError), gh.watch(model, [gh.Entropy()]):
        model(torch.randn(2, 5, WIDTH))


class SwitchedAttention(CausalSelfAttention):
    """Has a fused path beside the other, and an attribute that chooses."""

    def __init__(self, switch, value):
        super().__init__(SOFTMAXES["method"])
        setattr(self, switch, value)
        self.switch = switch

    def forward(self, x):
        if getattr(self, self.switch):
            return F.scaled_dot_product_attention(x, x, x, is_causal=True)
        return super().forward(x)


@pytest.mark.parametrize("switch", ["flash", "fused_attn", "use_sdpa", "use_flash_attention"])
def test_a_fused_path_that_is_switched_off_is_named_and_helps(switch):
    model, x = Model(Fused(), SwitchedAttention(switch, value=False)), torch.randn(2, 5, WIDTH)
    told = refusal(model, x)
    assert "SwitchedAttention at 'blocks.1' computes its own" in told
    sentence = f"its {switch} is False, so set {switch} to True, or build the model so, or leave"
    assert sentence in told
    assert "attn_implementation" not in told
    setattr(model.blocks[1], switch, True)
    assert list(undisturbed(model, x)) == ["blocks.0", "blocks.1"]


@pytest.mark.parametrize(
    ("library", "switch", "advice"),
    [
        ("timm.layers.attention", "fused_attn", "timm.layers.set_fused_attn(True)"),
        ("x_transformers.attend", "flash", "build the model with attn_flash=True"),
    ],
)
def test_a_library_is_switched_in_its_own_words(monkeypatch, library, switch, advice):
    monkeypatch.setattr(SwitchedAttention, "__module__", library)
    told = refusal(Model(SwitchedAttention(switch, value=False)), torch.randn(2, 5, WIDTH))
    assert advice in told
    assert "attn_implementation" not in told


def test_what_is_pasted_is_told_what_to_call():
    told = refusal(Model(CausalSelfAttention(SOFTMAXES["method"])), torch.randn(2, 5, WIDTH))
    assert "call F.scaled_dot_product_attention there instead of that softmax" in told
    assert "attn_implementation" not in told


def test_one_text_without_a_batch_is_not_passed_over():
    class SelfAttention(nn.Module):
        def forward(self, x):
            return torch.softmax(near(x), dim=-1) @ x

    told = refusal(nn.Sequential(SelfAttention()), torch.randn(5, WIDTH))
    assert "SelfAttention at '0' computes its own" in told


class Head(nn.Module):
    """One of the heads of a class that says what it is; its own name does not."""

    def forward(self, x):
        return near(x).softmax(-1) @ x


class MultiHeadAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList([Head(), Head(), Head()])

    def forward(self, x):
        return sum(head(x) for head in self.heads)


def test_heads_are_of_the_attention_that_lists_them():
    model = nn.ModuleDict({"sa": MultiHeadAttention(), "fused": Fused()})
    model.forward = lambda x: model["sa"](model["fused"](x))
    told = refusal(model, torch.randn(2, 5, WIDTH))
    assert "Head at 'sa.heads.0' and 2 more computes its own" in told


def test_a_model_without_attention_is_told_that_it_has_none():
    model = nn.Sequential(nn.Conv2d(3, 7, 3), nn.GELU(), nn.Conv2d(7, 5, 3))
    told = refusal(model, torch.randn(2, 3, 11, 13))
    assert told.startswith("watch saw no attention of Sequential, which ran: ")
    assert "inside the block" not in told


@pytest.mark.parametrize(
    "weigh", [lambda s: s.exp() / s.exp().sum(-1, keepdim=True), lambda s: s.log_softmax(-1).exp()]
)
def test_weights_without_a_softmax_are_not_told_to_run_inside_the_block(weigh):
    told = refusal(Model(CausalSelfAttention(weigh)), torch.randn(2, 5, WIDTH))
    assert told.startswith("watch saw no attention of Model, which ran: ")


def test_a_pattern_beside_the_attention_is_told_where_that_is():
    model = Model(Fused(), Router())
    told = refusal(model, torch.randn(2, 5, WIDTH), layers="blocks.1")
    assert "in what layers='blocks.1' names, 'blocks.1'; it saw 'blocks.0': " in told
    assert "if the softmax of Router at 'blocks.1' is attention" in told
